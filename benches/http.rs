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

const CONNECTIONS: usize = 32;
/// A store each, so that memory is reused as a sweeper would have it.
const STORES: usize = 6;
const ROUNDS: usize = 10;
const ROUND: Duration = Duration::from_millis(150);

pub(crate) async fn throughput() {
    let keys = Arc::new(AtomicU64::new(0));
    let fresh_keys = || Keys::Fresh(Arc::clone(&keys));
    let (mut fresh_ratios, mut replay_ratios, mut bares) = (vec![], vec![], vec![]);
    for store in 0..STORES {
        let bare = Server::start(measure::bare()).await;
        let fresh = Server::start(crate::protected()).await;
        let replay = Server::start(crate::protected()).await;
        // Warm up, and record what is replayed.
        for server in [&bare, &fresh, &replay] {
            drive(server.port, Keys::Repeated).await;
        }
        for _ in 0..ROUNDS {
            let alone = drive(bare.port, fresh_keys()).await;
            let first = drive(fresh.port, fresh_keys()).await;
            let again = drive(replay.port, Keys::Repeated).await;
            // The first store's memory is the process's first: it is not counted.
            if store > 0 {
                fresh_ratios.push(first / alone);
                replay_ratios.push(again / alone);
                bares.push(alone);
            }
        }
    }
    println!(
        "HTTP throughput, memory store, 1 KiB JSON, {CONNECTIONS} connections, against the bare handler"
    );
    println!(
        "  fresh   {:.3} (to reach: 0.90)",
        measure::median(fresh_ratios)
    );
    println!(
        "  replay  {:.3} (to reach: 1.00)",
        measure::median(replay_ratios)
    );
    println!(
        "  (the bare handler served {:.0} requests a second)",
        measure::median(bares)
    );
}

struct Server {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("a server");
        });
        Self { port, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
enum Keys {
    Fresh(Arc<AtomicU64>),
    /// One key a connection.
    Repeated,
}

/// Requests a second over all connections for one round.
async fn drive(port: u16, keys: Keys) -> f64 {
    let begun = Instant::now();
    let connections = (0..CONNECTIONS).map(|number| {
        let keys = keys.clone();
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            let body = measure::kibibyte();
            let mut answer = vec![0; 8 * 1024];
            let mut served = 0_u64;
            while begun.elapsed() < ROUND {
                let key = match &keys {
                    Keys::Fresh(next) => next.fetch_add(1, Ordering::Relaxed),
                    Keys::Repeated => u64::MAX - number as u64,
                };
                let request = format!(
                    "POST /charges HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer token\r\nidempotency-key: key-{key}\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(request.as_bytes()).await.expect("a request sent");
                read_answer(&mut stream, &mut answer).await;
                served += 1;
            }
            served
        })
    });
    let connections: Vec<_> = connections.collect();
    let mut served = 0;
    for connection in connections {
        served += connection.await.expect("a connection's count");
    }
    served as f64 / begun.elapsed().as_secs_f64()
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
