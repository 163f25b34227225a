//! One connection through a proxy.

use std::{convert::Infallible, io};

use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::messages::Message;
use crate::support::servers::proxy::{Answer, Progress, Switches};

/// See [`Upstream::pass`](super::Upstream::pass).
pub(super) async fn pass(
    client: TcpStream,
    server: TcpStream,
    switches: &Switches,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let progress = Progress::after(0, switches);
    tokio::select! {
        // What a server says before it closes still arrives.
        biased;
        ended = progress.pass_answers::<Message>(from_server, to_client) => ended,
        failed = pass_requests(from_client, to_server, &progress, switches) => match failed? {},
    }
}

async fn pass_requests(
    from_client: OwnedReadHalf,
    mut to_server: OwnedWriteHalf,
    progress: &Progress<'_>,
    switches: &Switches,
) -> io::Result<Infallible> {
    let mut from_client = BufReader::new(from_client);
    loop {
        let message = Message::read(&mut from_client).await?;
        switches.go_ahead().await;
        progress.withhold_if_armed_for(&message.texts());
        progress.ask();
        to_server.write_all(message.bytes()).await?;
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
        !self.is_push()
    }

    fn is_sent_back(&self) -> bool {
        self.error().is_some_and(|code| SENT_BACK.contains(&code))
    }
}

const SENT_BACK: [&[u8]; 7] = [
    b"NOSCRIPT",
    b"MOVED",
    b"ASK",
    b"TRYAGAIN",
    b"CLUSTERDOWN",
    b"LOADING",
    b"READONLY",
];
