//! One connection through a proxy.
//!
//! A client's requests are numbered: its startup is the first, and each that it
//! ends by a simple query, a function call or a sync is another. The server
//! ends its answer to each by saying that it is ready.

use std::{collections::HashMap, convert::Infallible, io};

use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::messages::{
    BIND, CLOSE, FUNCTION_CALL, Message, NO_ENCRYPTION, PARSE, QUERY, READY_FOR_QUERY, SYNC,
};
use crate::support::servers::proxy::{Answer, Progress, Switches};

/// See [`Upstream::pass`](super::Upstream::pass).
pub(super) async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    switches: &Switches,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    start(&mut client, &mut server, switches).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let progress = Progress::after(1, switches);
    let requests = Requests {
        progress: &progress,
        statements: HashMap::new(),
        switches,
    };
    tokio::select! {
        // What a server says before it closes still arrives.
        biased;
        ended = progress.pass_answers::<Message>(from_server, to_client) => ended,
        failed = requests.pass(from_client, to_server) => match failed? {},
    }
}

/// Passes on a client's first message that is not about encryption.
async fn start(
    client: &mut TcpStream,
    server: &mut TcpStream,
    switches: &Switches,
) -> io::Result<()> {
    loop {
        let message = Message::read_first(client).await?;
        switches.go_ahead().await;
        if !message.asks_for_encryption() {
            return server.write_all(message.bytes()).await;
        }
        client.write_u8(NO_ENCRYPTION).await?;
    }
}

struct Requests<'a> {
    progress: &'a Progress<'a>,
    /// The texts of prepared statements by their names.
    statements: HashMap<Vec<u8>, Vec<u8>>,
    switches: &'a Switches,
}

impl Requests<'_> {
    async fn pass(
        mut self,
        from_client: OwnedReadHalf,
        mut to_server: OwnedWriteHalf,
    ) -> io::Result<Infallible> {
        let mut from_client = BufReader::new(from_client);
        loop {
            let message = Message::read(&mut from_client).await?;
            self.switches.go_ahead().await;
            self.note(&message);
            to_server.write_all(message.bytes()).await?;
        }
    }

    fn note(&mut self, message: &Message) {
        let content = message.content();
        match message.kind() {
            Some(PARSE) => {
                let (name, rest) = Message::split_string(content);
                let (text, _) = Message::split_string(rest);
                self.statements.insert(name.to_owned(), text.to_owned());
            }
            Some(CLOSE) => {
                if let Some(name) = content.strip_prefix(b"S") {
                    self.statements.remove(Message::split_string(name).0);
                }
            }
            Some(BIND) => {
                let (_portal, rest) = Message::split_string(content);
                let (name, parameters) = Message::split_string(rest);
                let text = self.statements.get(name).map_or(&[][..], Vec::as_slice);
                self.progress.withhold_if_armed_for(&[text, parameters]);
            }
            Some(QUERY) => {
                self.progress.withhold_if_armed_for(&[content]);
                self.progress.ask();
            }
            Some(SYNC | FUNCTION_CALL) => self.progress.ask(),
            _ => {}
        }
    }
}

impl Answer for Message {
    async fn read(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Self> {
        Self::read(from).await
    }

    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn is_complete(&self) -> bool {
        self.kind() == Some(READY_FOR_QUERY)
    }
}
