//! A client: one request on a connection of its own.

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::join;
use http::{
    HeaderName, HeaderValue, Request, Response, Uri, Version,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, task::JoinHandle};
use tower::ServiceExt as _;

use super::{Answer, Line};

/// A request before it is sent. By default it comes from alice and charges
/// 45.00.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ask {
    line: Line,
    request: Request<Body>,
    speaks_http2: bool,
}

impl Ask {
    pub(crate) fn new(line: Line, request: Request<Body>) -> Self {
        let ask = Self {
            line,
            request,
            speaks_http2: false,
        };
        ask.body(r#"{"amount":4500}"#)
            .set(CONTENT_TYPE, "application/json")
            .from("alice")
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// With a line for the key that need not be text.
    pub(crate) fn key_bytes(mut self, key: &[u8]) -> Self {
        let key = HeaderValue::from_bytes(key).expect("a test's header value is one");
        self.request.headers_mut().append("idempotency-key", key);
        self
    }

    /// With the token of somebody else.
    pub(crate) fn from(self, bearer: &str) -> Self {
        self.set(AUTHORIZATION, &format!("Bearer {bearer}"))
    }

    /// Without a token.
    pub(crate) fn anonymous(mut self) -> Self {
        self.request.headers_mut().remove(AUTHORIZATION);
        self
    }

    /// With one line more of this header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("a test's header name is one");
        let value = HeaderValue::from_str(value).expect("a test's header value is one");
        self.request.headers_mut().append(name, value);
        self
    }

    pub(crate) fn without(mut self, name: HeaderName) -> Self {
        self.request.headers_mut().remove(name);
        self
    }

    fn set(mut self, name: HeaderName, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("a test's header value is one");
        self.request.headers_mut().insert(name, value);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        *self.request.body_mut() = Body::from(body.into());
        self
    }

    /// With a body that comes bit by bit.
    pub(crate) fn stream<B>(mut self, body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        *self.request.body_mut() = Body::new(body);
        self
    }

    pub(crate) fn extension<T: Clone + Send + Sync + 'static>(mut self, extension: T) -> Self {
        self.request.extensions_mut().insert(extension);
        self
    }

    /// Over HTTP/2 with prior knowledge.
    pub(crate) fn http2(mut self) -> Self {
        self.speaks_http2 = true;
        self
    }

    /// Sends it and reads the answer to its end.
    pub(crate) async fn send(self) -> Answer {
        match self.line {
            Line::Memory(router) => {
                let answered = router.oneshot(self.request).await;
                Answer::read(answered.expect("a router does not fail")).await
            }
            Line::Tcp(address) => {
                let stream = TcpStream::connect(address).await;
                let stream = stream.expect("the service listens");
                let request = to_authority(self.request, &address.to_string());
                let answered = if self.speaks_http2 {
                    over_http2(stream, request).await
                } else {
                    over_http1(stream, request).await
                };
                answered.expect("the service answers on an open connection")
            }
        }
    }

    /// Sends it and comes back for the answer later. Dropped before, the
    /// client hangs up.
    pub(crate) fn start(self) -> Started {
        Started(tokio::spawn(self.send()))
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Started(JoinHandle<Answer>);

impl Started {
    pub(crate) async fn answer(mut self) -> Answer {
        let answer = (&mut self.0).await;
        answer.expect("the client was not disturbed")
    }

    /// Closes the connection, and comes back when it is closed.
    pub(crate) async fn hang_up(mut self) {
        self.0.abort();
        let stopped = (&mut self.0).await;
        assert!(
            stopped.is_err(),
            "the answer came before the client hung up"
        );
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn to_authority(mut request: Request<Body>, authority: &str) -> Request<Body> {
    let host = HeaderValue::from_str(authority).expect("an address is a header value");
    request.headers_mut().insert(HOST, host);
    request
}

async fn over_http1(stream: TcpStream, request: Request<Body>) -> hyper::Result<Answer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async move {
        let response: Response<_> = sender.send_request(request).await?;
        Ok(Answer::read(response).await)
    };
    let (_, answer) = join(connection, exchange).await;
    answer
}

async fn over_http2(stream: TcpStream, mut request: Request<Body>) -> hyper::Result<Answer> {
    let io = TokioIo::new(stream);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
    let host = request.headers_mut().remove(HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok());
    let path = request.uri().path_and_query().cloned();
    let uri = Uri::builder()
        .scheme("http")
        .authority(host.expect("a test's host is text"))
        .path_and_query(path.expect("a test's request has a path"));
    *request.uri_mut() = uri.build().expect("a test's path is one");
    *request.version_mut() = Version::HTTP_2;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        Ok(Answer::read(response).await)
    };
    let (_, answer) = join(connection, exchange).await;
    answer
}

impl Answer {
    /// Reads a response to its end, or to where its body fails.
    async fn read<B>(response: Response<B>) -> Self
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let (parts, mut body) = response.into_parts();
        let mut answer = Self {
            version: parts.version,
            status: parts.status,
            headers: parts.headers,
            ..Self::default()
        };
        let mut data = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                answer.is_cut_short = true;
                break;
            };
            match frame.into_data() {
                Ok(bytes) => data.extend_from_slice(&bytes),
                Err(frame) => answer.trailers = frame.into_trailers().ok(),
            }
        }
        answer.body = data.into();
        answer
    }
}
