//! Whether what the tests of the Redis store stand on holds: servers that crash
//! and come back, replicas, clusters that fail over, and proxies that cut.

mod cluster;
mod proxy;
mod server;
mod shared;

use std::{io, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// A connection that is kept, unlike that of `redis-cli`.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    async fn connect(url: &str) -> io::Result<Self> {
        let place = url.strip_prefix("redis://").expect("a URL of Redis");
        let place = place.split('/').next().unwrap_or_default();
        let stream = BufReader::new(TcpStream::connect(place).await?);
        Ok(Self { stream })
    }

    /// The answer to a command, as it is sent, or the string in it.
    async fn ask(&mut self, command: &[&str]) -> io::Result<String> {
        let strings = command
            .iter()
            .map(|text| format!("${}\r\n{text}\r\n", text.len()));
        let request = format!("*{}\r\n{}", command.len(), strings.collect::<String>());
        self.stream.write_all(request.as_bytes()).await?;
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let Some(Ok(length)) = line.strip_prefix('$').map(str::parse::<usize>) else {
            return Ok(line.to_owned());
        };
        let mut text = vec![0; length + 2];
        self.stream.read_exact(&mut text).await?;
        text.truncate(length);
        Ok(String::from_utf8(text).expect("text"))
    }
}

/// How long nothing may come from a server that does not answer.
const SILENCE: Duration = Duration::from_millis(300);
