//! What may happen between a client and Redis.
//!
//! Every command is a request and a round trip, also those that clients begin
//! a connection with, and each of a pipeline. A command that is answered by
//! `NOSCRIPT`, `MOVED`, `ASK` and the like has done nothing, so that its answer
//! passes, and the next command is waited for. In a transaction it is `EXEC` that
//! does something.

mod connection;
mod messages;

use std::io;

use tokio::net::TcpStream;

use super::address::Address;
use crate::support::servers::proxy::{self, Switches, Upstream};

pub(crate) type Proxy = proxy::Proxy<Address>;

impl Upstream for Address {
    fn parse(url: &str) -> Self {
        Self::parse(url)
    }

    fn place(&self) -> String {
        self.place()
    }

    fn url_by_way_of(&self, port: u16) -> String {
        self.by_way_of(port).to_string()
    }

    async fn pass(client: TcpStream, server: TcpStream, switches: &Switches) -> io::Result<()> {
        connection::pass(client, server, switches).await
    }
}
