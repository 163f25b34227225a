//! Asks the console over a socket.

use std::net::SocketAddr;

use axum::Router;
use axum_idempotency::console::Console;
use http::{HeaderMap, StatusCode};
use reqwest::{Client, Method, redirect::Policy};
use tokio::{net::TcpListener, task::JoinHandle};

/// Where the console is mounted.
pub(super) const MOUNT: &str = "/ops/idempotency";

/// A service with a console.
pub(super) struct Site {
    address: SocketAddr,
    mount: &'static str,
    client: Client,
    server: JoinHandle<()>,
}

/// What came back.
pub(super) struct Seen {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Site {
    pub(super) async fn open(console: Console) -> Self {
        Self::serve(Router::new().nest(MOUNT, console.router()), MOUNT).await
    }

    /// A console anywhere in a router.
    pub(super) async fn serve(router: Router, mount: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let client = Client::builder().redirect(Policy::none());
        Self {
            address: listener.local_addr().expect("a bound port"),
            mount,
            client: client.build().expect("a client"),
            server: tokio::spawn(async move {
                let served = axum::serve(listener, router).await;
                served.expect("the server runs until the test ends");
            }),
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{}{path}", self.address, self.mount)
    }

    pub(super) async fn get(&self, path: &str) -> Seen {
        self.ask(Method::GET, path, "").await
    }

    pub(super) async fn post(&self, path: &str, form: &str) -> Seen {
        self.ask(Method::POST, path, form).await
    }

    pub(super) async fn ask(&self, method: Method, path: &str, form: &str) -> Seen {
        let request = self.client.request(method, self.url(path));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let response = request.body(form.to_owned()).send().await;
        let response = response.expect("the console answers");
        Seen {
            status: response.status(),
            headers: response.headers().clone(),
            text: response.text().await.expect("text"),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str());
        value.map_or("", |value| value.expect("visible"))
    }

    /// The text without tags, with one space between words.
    pub(super) fn words(&self) -> String {
        let mut words = String::new();
        let mut is_tag = false;
        for letter in self.text.chars() {
            match letter {
                '<' => is_tag = true,
                '>' => {
                    is_tag = false;
                    words.push(' ');
                }
                letter if !is_tag => words.push(letter),
                _ => {}
            }
        }
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        // A tag ends before the comma.
        words
            .replace(" .", ".")
            .replace(" ,", ",")
            .replace(" :", ":")
    }

    #[track_caller]
    pub(super) fn says(&self, words: &str) -> &Self {
        let all = self.words();
        assert!(all.contains(words), "expected {words:?} in:\n{all}");
        self
    }

    #[track_caller]
    pub(super) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{}", self.words());
        self
    }

    /// Where its links lead, as they stand there.
    pub(super) fn links(&self) -> Vec<String> {
        let parts = self.text.split("href=\"").skip(1);
        let links = parts.filter_map(|part| part.split('"').next());
        links.map(|link| link.replace("&amp;", "&")).collect()
    }
}
