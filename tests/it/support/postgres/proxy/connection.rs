//! One connection through a proxy.
//!
//! A client's requests are numbered: its startup is the first, and each that it
//! ends by a simple query, a function call or a sync is another. The server
//! ends its answer to each by saying that it is ready.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{
    messages::{
        BIND, CLOSE, FUNCTION_CALL, Message, NO_ENCRYPTION, PARSE, QUERY, READY_FOR_QUERY, SYNC,
    },
    switches::{Rest, Switches},
};

/// Passes messages on until an answer is withheld, which is all that is not an
/// error here. Both sides are closed afterwards.
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
    let progress = Mutex::new(Progress {
        asked: 1,
        ..Progress::default()
    });
    let requests = Requests {
        progress: &progress,
        statements: HashMap::new(),
        switches,
    };
    let answers = Answers {
        progress: &progress,
        switches,
    };
    tokio::select! {
        // What a server says before it closes still arrives.
        biased;
        ended = answers.pass(from_server, to_client) => ended,
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

#[derive(Default)]
struct Progress {
    asked: usize,
    answered: usize,
    /// The request from which on no answer is passed on.
    withheld: Option<(usize, Rest)>,
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Requests<'a> {
    progress: &'a Mutex<Progress>,
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
                self.withhold_if_armed_for([text, parameters]);
            }
            Some(QUERY) => {
                self.withhold_if_armed_for([content, &[]]);
                self.ask();
            }
            Some(SYNC | FUNCTION_CALL) => self.ask(),
            _ => {}
        }
    }

    fn ask(&self) {
        lock(self.progress).asked += 1;
        self.switches.count_round_trip();
    }

    fn withhold_if_armed_for(&self, texts: [&[u8]; 2]) {
        let mut progress = lock(self.progress);
        if progress.withheld.is_none() {
            let this = progress.asked + 1;
            let rest = self.switches.take_if_in(texts);
            progress.withheld = rest.map(|rest| (this, rest));
        }
    }
}

struct Answers<'a> {
    progress: &'a Mutex<Progress>,
    switches: &'a Switches,
}

impl Answers<'_> {
    async fn pass(
        self,
        from_server: OwnedReadHalf,
        mut to_client: OwnedWriteHalf,
    ) -> io::Result<()> {
        let mut from_server = BufReader::new(from_server);
        loop {
            let message = Message::read(&mut from_server).await?;
            match self.withheld(&message) {
                None => {
                    self.switches.go_ahead().await;
                    to_client.write_all(message.bytes()).await?;
                }
                Some(Withheld::All(Rest::Cut)) => return Ok(()),
                Some(Withheld::All(Rest::Swallow)) => self.switches.fire(),
                Some(Withheld::Part) => {}
            }
        }
    }

    fn withheld(&self, message: &Message) -> Option<Withheld> {
        let mut progress = lock(self.progress);
        let answering = progress.answered + 1;
        let is_end = message.kind() == Some(READY_FOR_QUERY);
        progress.answered += usize::from(is_end);
        let (from, rest) = progress.withheld?;
        match answering {
            this if this < from => None,
            this if this == from && is_end => Some(Withheld::All(rest)),
            _ => Some(Withheld::Part),
        }
    }
}

/// What is kept from a client.
enum Withheld {
    /// With this the server's answer is complete.
    All(Rest),
    Part,
}
