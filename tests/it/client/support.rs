//! A client that is watched, and the ways between it and a service.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum::{Router, body::Body as ServedBody, response::Response as Served};
use axum_idempotency::client::{IdempotencyMiddleware, IdempotencyMiddlewareBuilder};
use http::{Extensions, HeaderMap, Method, header::AUTHORIZATION};
use http_body_util::BodyExt as _;
use reqwest::{Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{
    ClientBuilder, ClientWithMiddleware, Middleware, Next, RequestBuilder, Result,
};
use tokio::{
    io::{AsyncReadExt as _, copy, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tower::ServiceExt as _;

use crate::support::{Backend, Line, Shop, Work};

/// A client of a service, and the attempts that came out of it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: ClientWithMiddleware,
    base: String,
    attempts: Attempts,
}

impl Client {
    /// A client that waits only where a server asks for it.
    pub(crate) fn of(shop: &Shop, backend: &Backend) -> Self {
        Self::with(shop, patient(backend))
    }

    pub(crate) fn with(shop: &Shop, settings: IdempotencyMiddlewareBuilder) -> Self {
        Self::over(shop.line(), settings)
    }

    pub(crate) fn over(line: &Line, settings: IdempotencyMiddlewareBuilder) -> Self {
        let middleware: IdempotencyMiddleware = settings.build().expect("settings that can work");
        let attempts = Attempts::default();
        let http = ClientBuilder::new(reqwest::Client::new())
            .with(middleware)
            .with(attempts.clone());
        let (http, base) = match line {
            Line::Tcp(address) => (http, format!("http://{address}")),
            Line::Memory(router) => (
                http.with(InMemory(router.clone())),
                "http://shop.test".to_owned(),
            ),
        };
        Self {
            http: http.build(),
            base,
            attempts,
        }
    }

    /// A charge of alice's.
    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, self.url(path));
        let request = request.header(AUTHORIZATION, "Bearer alice");
        request.body(r#"{"amount":4500}"#)
    }

    pub(crate) async fn execute(&self, request: Request) -> Result<Response> {
        self.http.execute(request).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// How many attempts were sent so far.
    pub(crate) fn attempts(&self) -> usize {
        self.attempts.0.lock().expect("nothing panics here").len()
    }

    /// The key lines of each attempt so far.
    pub(crate) fn keys(&self) -> Vec<Vec<String>> {
        self.each(|attempt| lines(&attempt.headers, "idempotency-key"))
    }

    /// The one key of the only attempt, or that of all of them.
    pub(crate) fn only_key(&self) -> String {
        let mut keys = self.keys().concat();
        assert_eq!(keys.len(), self.attempts(), "one key line an attempt");
        keys.dedup();
        assert_eq!(keys.len(), 1, "the attempts differ in their key");
        keys.remove(0)
    }

    /// The lines of this header in each attempt so far.
    pub(crate) fn lines_of(&self, name: &str) -> Vec<Vec<String>> {
        self.each(|attempt| lines(&attempt.headers, name))
    }

    /// How long it was from each attempt to the next.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        let begun = self.each(|attempt| attempt.begun);
        begun.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// How each attempt's request prints itself.
    pub(crate) fn printed(&self) -> Vec<String> {
        self.each(|attempt| attempt.printed.clone())
    }

    fn each<T>(&self, of: impl Fn(&Attempt) -> T) -> Vec<T> {
        let attempts = self.attempts.0.lock().expect("nothing panics here");
        attempts.iter().map(of).collect()
    }
}

/// Settings whose clock is the backend's, and no backoff.
pub(crate) fn patient(backend: &Backend) -> IdempotencyMiddlewareBuilder {
    IdempotencyMiddleware::builder()
        .clock(backend.clock.clone())
        .backoff(Duration::ZERO, Duration::ZERO)
}

/// A service without the layer that gives these answers, in this order, and the
/// last of them for ever.
pub(crate) fn answering<const N: usize>(answers: [fn() -> Served; N]) -> Work {
    Work::answering(move |seen| {
        let answer = answers[(seen.run - 1).min(N - 1)]();
        async { answer }
    })
}

/// Puts a work on a line without the layer.
pub(crate) fn bare(work: &Work) -> Line {
    Line::Memory(work.router())
}

fn lines(headers: &HeaderMap, name: &str) -> Vec<String> {
    let lines = headers.get_all(name).iter();
    lines
        .map(|line| line.to_str().expect("a test's header is text").to_owned())
        .collect()
}

#[derive(Debug)]
struct Attempt {
    headers: HeaderMap,
    begun: Instant,
    printed: String,
}

/// Stands inside the middleware under test and notes what comes out of it.
#[derive(Clone, Debug, Default)]
struct Attempts(Arc<Mutex<Vec<Attempt>>>);

#[async_trait]
impl Middleware for Attempts {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let attempt = Attempt {
            headers: request.headers().clone(),
            begun: Instant::now(),
            printed: format!("{request:?}"),
        };
        self.0.lock().expect("nothing panics here").push(attempt);
        next.run(request, extensions).await
    }
}

/// Leads to a service without a socket, for tests with a paused clock.
#[derive(Debug)]
struct InMemory(Router);

#[async_trait]
impl Middleware for InMemory {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let url = request.url().clone();
        let request = http::Request::<reqwest::Body>::try_from(request)?;
        let answered = self.0.clone().oneshot(request.map(ServedBody::new)).await;
        let (parts, body) = answered.expect("a router does not fail").into_parts();
        let body = body.collect().await.expect("a test's body is whole");
        let mut response = http::Response::builder()
            .url(url)
            .status(parts.status)
            .body(reqwest::Body::from(body.to_bytes()))
            .expect("a response of a response's parts");
        *response.headers_mut() = parts.headers;
        Ok(response.into())
    }
}

/// Cuts its first connections once the service has begun to answer, so that the
/// client does not learn the answer, and passes on all others.
#[derive(Debug)]
pub(crate) struct CutLine {
    address: SocketAddr,
    /// Ends the listener, and with it the connections.
    _listening: JoinSet<()>,
}

impl CutLine {
    pub(crate) async fn before(shop: &Shop, cuts: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let service = shop.address();
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            let mut cuts = cuts;
            while let Ok((client, _)) = listener.accept().await {
                let is_cut = cuts > 0;
                cuts = cuts.saturating_sub(1);
                connections.spawn(pass(client, service, is_cut));
            }
        });
        Self {
            address,
            _listening: listening,
        }
    }

    pub(crate) fn line(&self) -> Line {
        Line::Tcp(self.address)
    }
}

async fn pass(mut client: TcpStream, service: SocketAddr, is_cut: bool) -> io::Result<()> {
    let mut service = TcpStream::connect(service).await?;
    if !is_cut {
        copy_bidirectional(&mut client, &mut service).await?;
        return Ok(());
    }
    let (mut from_client, _) = client.split();
    let (mut from_service, mut to_service) = service.split();
    tokio::select! {
        passed = copy(&mut from_client, &mut to_service) => passed.map(drop),
        answered = from_service.read_u8() => answered.map(drop),
    }
}
