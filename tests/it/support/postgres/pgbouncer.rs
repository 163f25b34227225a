//! A connection pooler in front of a server.

use super::address::Address;
use crate::support::servers::{daemon::Daemon, home::Home, port, programs, until};

/// PgBouncer in transaction pooling: each transaction of a client may get
/// another of its few connections to the server. It ends when the value is
/// dropped.
///
/// A password in the server's URL must not need percent-encoding.
pub(crate) struct PgBouncer {
    /// Before the home, which must outlive it.
    server: Option<Daemon>,
    _home: Home,
    address: Address,
}

impl PgBouncer {
    /// In front of a server, with so many connections to each of its databases.
    pub(crate) async fn before(server_url: &str, pool_size: usize) -> Self {
        let server = Address::parse(server_url);
        let home = Home::new();
        let mut refusal = String::new();
        for _ in 0..port::TRIED {
            let port = port::free();
            home.write("pgbouncer.ini", &configuration(&server, port, pool_size));
            match launch(&home).await {
                Ok(running) => {
                    return Self {
                        server: Some(running),
                        _home: home,
                        address: server.by_way_of(port),
                    };
                }
                Err(log) => refusal = log,
            }
        }
        panic!("PgBouncer does not start:\n{refusal}");
    }

    /// The server's URL by way of the pooler.
    pub(crate) fn url(&self) -> String {
        self.address.to_string()
    }

    /// PgBouncer's own console. It speaks the simple protocol only.
    pub(crate) fn console_url(&self) -> String {
        let console = Address {
            database: "pgbouncer".to_owned(),
            parameters: String::new(),
            ..self.address.clone()
        };
        console.to_string()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.end("KILL");
        }
    }
}

/// Starts it, and waits until it takes connections. Otherwise the result is
/// what it said.
async fn launch(home: &Home) -> Result<Daemon, String> {
    let mut server = Daemon::start(home, &programs::find("pgbouncer"), ["pgbouncer.ini"]);
    let mut exit = None;
    until("PgBouncer is ready or has given up", || {
        exit = server.exit();
        exit.is_some() || server.log().contains("process up")
    })
    .await;
    match exit {
        Some(_) => Err(server.log()),
        None => Ok(server),
    }
}

fn configuration(server: &Address, port: u16, pool_size: usize) -> String {
    // An empty password would be a syntax error.
    let login = match server.login.split_once(':') {
        Some((user, password)) => format!("user={user} password='{password}'"),
        None => format!("user={}", server.login),
    };
    let (host, to_port) = (server.host.trim_matches(['[', ']']), server.port);
    format!(
        "[databases]\n\
         * = host={host} port={to_port} {login}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {pool_size}\n\
         max_client_conn = 1000\n\
         ignore_startup_parameters = extra_float_digits\n"
    )
}
