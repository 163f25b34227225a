//! Ports for what tests start.

use std::net::TcpListener;

use uuid::Uuid;

/// A port of this machine on which nobody listens.
///
/// Whoever starts a server there tries others when somebody else was faster.
/// It is none of those that the kernel gives to outgoing connections, so that a
/// server that was stopped can be started again where it was.
pub(crate) fn free() -> u16 {
    loop {
        let port = any();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn any() -> u16 {
    let [low, high, ..] = Uuid::new_v4().into_bytes();
    FIRST + u16::from_le_bytes([low, high]) % COUNT
}

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// How many ports are tried for one server.
pub(crate) const TRIED: usize = 10;
