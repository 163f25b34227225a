//! Where a server is, as a connection URL says it.

use std::fmt;

/// A connection URL, taken apart as far as tests rewrite it. Its parts are
/// text as it stands in the URL.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// User and, after a colon, password.
    pub login: String,
    pub host: String,
    pub port: u16,
    pub database: String,
    /// Parameters, joined by `&`.
    pub parameters: String,
}

impl Address {
    /// A server of a test's own.
    pub(super) fn local(port: u16) -> Self {
        Self {
            login: "postgres".to_owned(),
            host: "127.0.0.1".to_owned(),
            port,
            database: "postgres".to_owned(),
            parameters: String::new(),
        }
    }

    pub(super) fn parse(url: &str) -> Self {
        Self::try_parse(url).unwrap_or_else(|| {
            panic!("not of the form postgres://USER@HOST[:PORT]/DATABASE: {url}")
        })
    }

    fn try_parse(url: &str) -> Option<Self> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/')?;
        let (login, place) = authority.rsplit_once('@')?;
        let with_port = place
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = with_port.unwrap_or((place, 5432));
        (!host.is_empty() && !database.is_empty()).then(|| Self {
            login: login.to_owned(),
            host: host.to_owned(),
            port,
            database: database.to_owned(),
            parameters: parameters.to_owned(),
        })
    }

    /// Host and port.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The same place by way of a port of this machine.
    pub(super) fn by_way_of(&self, port: u16) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port,
            ..self.clone()
        }
    }

    pub(super) fn with_parameter(mut self, name: &str, value: &str) -> Self {
        let before = self.parameters.split('&').filter(|text| !text.is_empty());
        let parameter = format!("{name}={value}");
        self.parameters = before.chain([&*parameter]).collect::<Vec<_>>().join("&");
        self
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (login, place) = (&self.login, self.place());
        write!(f, "postgres://{login}@{place}/{}", self.database)?;
        match self.parameters.as_str() {
            "" => Ok(()),
            parameters => write!(f, "?{parameters}"),
        }
    }
}

#[test]
fn an_address_reads_like_its_url() {
    for url in [
        "postgres://postgres@127.0.0.1:5433/postgres",
        "postgres://me:se%40cret@[::1]:5432/mine?sslmode=disable&a=b",
    ] {
        assert_eq!(Address::parse(url).to_string(), url);
    }
    let address = Address::parse("postgresql://me@db/mine").with_parameter("a", "b");
    assert_eq!(address.to_string(), "postgres://me@db:5432/mine?a=b");
    let address = address.by_way_of(7).with_parameter("c", "d");
    assert_eq!(
        address.to_string(),
        "postgres://me@127.0.0.1:7/mine?a=b&c=d"
    );
}
