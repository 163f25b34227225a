//! A client over real sockets: one request a connection, its answer read to
//! the end.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::PATIENCE;

/// A request to a service; by default of one tenant, and without a key.
#[derive(Clone, Debug)]
pub(super) struct Request {
    to: SocketAddr,
    method: &'static str,
    target: String,
    tenant: Option<String>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn new(to: SocketAddr, method: &'static str, target: &str) -> Self {
        Self {
            to,
            method,
            target: target.to_owned(),
            tenant: Some("acct_1".to_owned()),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(super) fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    pub(super) fn tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    pub(super) fn anonymous(mut self) -> Self {
        self.tenant = None;
        self
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json")
            .body(body.to_string())
    }

    /// The answer, which has to come.
    pub(super) async fn send(&self) -> Answer {
        let answer = self.try_send().await;
        answer.unwrap_or_else(|error| panic!("{} {}: no answer: {error}", self.method, self.target))
    }

    /// The answer, unless the connection breaks first.
    pub(super) async fn try_send(&self) -> io::Result<Answer> {
        self.connect().await?.begin().await?.answer().await
    }

    /// A connection on which nothing is sent yet.
    pub(super) async fn connect(&self) -> io::Result<Connected<'_>> {
        Ok(Connected {
            stream: TcpStream::connect(self.to).await?,
            request: self,
        })
    }

    /// Sends the request; dropped, the client has hung up.
    pub(super) async fn begin(&self) -> Waiting {
        let begun = async { self.connect().await?.begin().await }.await;
        begun.expect("the service takes the request")
    }

    /// Sends all but the end of the body, and hangs up.
    pub(super) async fn break_off(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.to).await?;
        let whole = self.bytes();
        stream.write_all(&whole[..whole.len() - 1]).await?;
        stream.shutdown().await
    }

    /// Sends the head alone, and this with it about the body to come.
    pub(super) async fn begin_with(&self, length: &str) -> Waiting {
        let mut stream = TcpStream::connect(self.to).await.expect("a connection");
        let sent = stream.write_all(&self.head(length)).await;
        sent.expect("the service takes the head");
        Waiting(stream)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head(&format!("Content-Length: {}", self.body.len()));
        bytes.extend(&self.body);
        bytes
    }

    fn head(&self, length: &str) -> Vec<u8> {
        let (method, target) = (self.method, &self.target);
        let mut head =
            format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let tenant = self
            .tenant
            .iter()
            .map(|token| format!("Authorization: Bearer {token}\r\n"));
        head.extend(tenant);
        let headers = self.headers.iter();
        head.extend(headers.map(|(name, value)| format!("{name}: {value}\r\n")));
        head.push_str(length);
        head.push_str("\r\n\r\n");
        head.into_bytes()
    }
}

pub(super) struct Connected<'a> {
    stream: TcpStream,
    request: &'a Request,
}

impl Connected<'_> {
    pub(super) async fn begin(mut self) -> io::Result<Waiting> {
        self.stream.write_all(&self.request.bytes()).await?;
        Ok(Waiting(self.stream))
    }
}

/// A request that was sent and not answered yet.
pub(super) struct Waiting(pub(super) TcpStream);

impl Waiting {
    pub(super) async fn answer(mut self) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await;
        read.unwrap_or_else(|_| panic!("no answer after {PATIENCE:?}"))?;
        Answer::parse(&bytes).ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// `None` when it broke off.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = find(bytes, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let rest = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        });
        let mut answer = Self {
            status,
            headers: headers.collect::<Option<_>>()?,
            body: Vec::new(),
        };
        answer.body = match answer.header("transfer-encoding") {
            Some(_) => unchunked(rest)?,
            None if status == 204 => rest.to_vec(),
            None => {
                let length: usize = answer.header("content-length")?.parse().ok()?;
                (rest.len() == length).then(|| rest.to_vec())?
            }
        };
        Some(answer)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// All values of a header, in order.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(header, _)| header == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub(super) fn json(&self) -> Value {
        let json = serde_json::from_slice(&self.body);
        json.unwrap_or_else(|_| panic!("no JSON: {self}"))
    }

    pub(super) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The code of a problem document.
    pub(super) fn code(&self) -> Option<String> {
        let is_problem = self.header("content-type") == Some("application/problem+json");
        let code = is_problem.then(|| self.json()["code"].as_str().map(str::to_owned));
        code.flatten()
    }

    /// The problem document, which has to be of this status and code.
    #[track_caller]
    pub(super) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.code().as_deref(), Some(code), "{self}");
        assert_eq!(self.status, status, "{self}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{self}");
        problem
    }

    /// This must be `first` again: status, body and, replayed, what is kept of
    /// the headers.
    #[track_caller]
    pub(super) fn must_replay(&self, first: &Answer) {
        assert!(self.is_replay(), "no replay: {self}\nfirst: {first}");
        assert_eq!(self.status, first.status, "{self}\nfirst: {first}");
        assert!(
            self.body == first.body,
            "other bytes: {self}\nfirst: {first}"
        );
        for name in ["content-type", "location", "etag", "link"] {
            assert_eq!(self.all(name), first.all(name), "{name} of {self}");
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        let body: String = body.chars().take(500).collect();
        write!(f, "{} {:?} {body}", self.status, self.headers)
    }
}

/// The data of a chunked body, to its last chunk.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let line = find(rest, b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        let chunk = line + 2;
        if size == 0 {
            return Some(data);
        }
        data.extend(rest.get(chunk..chunk + size)?);
        rest = rest.get(chunk + size + 2..)?;
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
