//! Throughput over HTTP/1.1 on loopback, bare against protected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::Router;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::measure;

/// How long one side is measured at a time.
const ROUND: Duration = Duration::from_millis(150);

pub(crate) struct Server {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("a server");
        });
        Self { port, task }
    }

    /// Requests a second over so many connections for one round. Anything but
    /// the handler's answer fails.
    pub(crate) async fn drive(&self, connections: usize, keys: &Keys) -> f64 {
        let begun = Instant::now();
        let connections = (0..connections)
            .map(|number| tokio::spawn(requests(self.port, number, keys.clone(), begun)));
        let connections: Vec<_> = connections.collect();
        let mut served = 0;
        for connection in connections {
            served += connection.await.expect("a connection's count");
        }
        served as f64 / begun.elapsed().as_secs_f64()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
pub(crate) enum Keys {
    Fresh(Arc<AtomicU64>),
    /// One key a connection.
    Repeated,
}

impl Keys {
    pub(crate) fn fresh() -> Self {
        Self::Fresh(Arc::default())
    }
}

/// Sends one request after the other, and tells how many were answered.
async fn requests(port: u16, number: usize, keys: Keys, begun: Instant) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let body = measure::kibibyte();
    let mut answer = vec![0; 8 * 1024];
    let mut served = 0;
    while begun.elapsed() < ROUND {
        let key = match &keys {
            Keys::Fresh(next) => next.fetch_add(1, Ordering::Relaxed),
            Keys::Repeated => u64::MAX - number as u64,
        };
        let request = format!(
            "POST /charges HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer token\r\nidempotency-key: key-{key}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream
            .write_all(request.as_bytes())
            .await
            .expect("a request sent");
        read_answer(&mut stream, &mut answer).await;
        served += 1;
    }
    served
}

async fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await.expect("an answer");
        assert!(read > 0, "the server closed the connection");
        filled += read;
        let Some(head) = buffer[..filled]
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
        else {
            continue;
        };
        assert!(
            buffer.starts_with(b"HTTP/1.1 201"),
            "not created: {}",
            String::from_utf8_lossy(&buffer[..filled])
        );
        let text = str::from_utf8(&buffer[..head]).expect("a head in ASCII");
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.parse::<usize>().ok())
            .expect("a content-length");
        if filled >= head + 4 + length {
            return;
        }
    }
}
