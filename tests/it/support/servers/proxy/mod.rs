//! What may happen between a client and its server.

mod progress;
mod switches;

use std::{
    io,
    net::{Shutdown, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};

use self::switches::Rest;
use super::port;

pub(crate) use self::{
    progress::{Answer, Progress},
    switches::Switches,
};

/// A server that a proxy stands before, and how its connections are passed on.
pub(crate) trait Upstream: Send + Sync + 'static {
    fn parse(url: &str) -> Self;

    /// Host and port.
    fn place(&self) -> String;

    /// Its URL by way of a port of this machine.
    fn url_by_way_of(&self, port: u16) -> String;

    /// Passes messages on until an answer is withheld, which is all that is not
    /// an error here. Both sides are closed afterwards.
    fn pass(
        client: TcpStream,
        server: TcpStream,
        switches: &Switches,
    ) -> impl Future<Output = io::Result<()>> + Send;
}

/// Passes on what a client and a server say to each other, until told
/// otherwise. It runs on the runtime of its test, and ends with all its
/// connections when it is dropped.
pub(crate) struct Proxy<U: Upstream> {
    server: U,
    /// Host and port of the server that new connections go to.
    place: Arc<Mutex<String>>,
    port: u16,
    /// Bound to the port and never listening, so that nobody else takes it while
    /// connections are refused.
    _reserved: TcpSocket,
    switches: Arc<Switches>,
    listening: Option<Listening>,
}

impl<U: Upstream> Proxy<U> {
    /// In front of a server, on a port of its own.
    pub(crate) fn before(server_url: &str) -> Self {
        let server = U::parse(server_url);
        let switches = Arc::new(Switches::default());
        let (port, reserved, listener) = loop {
            let port = port::free();
            if let Ok((reserved, listener)) = reserve(port) {
                break (port, reserved, listener);
            }
        };
        let place = Arc::new(Mutex::new(server.place()));
        let listening = Listening::start::<U>(listener, &place, &switches);
        Self {
            listening: Some(listening),
            server,
            place,
            port,
            _reserved: reserved,
            switches,
        }
    }

    /// The server's URL by way of the proxy, without encryption, for the proxy
    /// reads what passes.
    pub(crate) fn url(&self) -> String {
        self.server.url_by_way_of(self.port)
    }

    /// Ends every connection. Nothing is passed on after this.
    pub(crate) fn cut(&self) {
        self.switches.cut();
    }

    /// From here on nothing is passed on, in neither direction, and nothing is
    /// closed: a server that has stopped answering. New connections are taken
    /// and not served.
    pub(crate) fn stall(&self) {
        self.switches.stall(true);
    }

    /// After a stall, everything that was held back arrives.
    pub(crate) fn resume(&self) {
        self.switches.stall(false);
    }

    /// From here on nobody listens on the port. Open connections stay.
    pub(crate) async fn refuse(&mut self) {
        if let Some(mut listening) = self.listening.take() {
            listening.end();
            let _aborted = (&mut listening.task).await;
        }
    }

    /// After a refusal, takes connections again.
    pub(crate) fn accept(&mut self) {
        if self.listening.is_none() {
            let listener = listen(self.port).expect("the port is reserved");
            let listening = Listening::start::<U>(listener, &self.place, &self.switches);
            self.listening = Some(listening);
        }
    }

    /// From here on new connections go to another server. Open ones stay.
    pub(crate) fn lead_to(&self, server_url: &str) {
        let place = U::parse(server_url).place();
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    /// The next request that contains these bytes, in its text or in a
    /// parameter, is passed on, and once the server has answered, the
    /// connection is cut instead of passing the answer on: the server has done
    /// it, and the client cannot know.
    ///
    /// Only execution counts: preparing an SQL statement that contains the bytes
    /// passes. It happens once; a later call replaces one that is waiting.
    pub(crate) fn cut_answer_to(&self, needle: impl Into<Vec<u8>>) {
        self.switches.arm(needle.into(), Rest::Cut);
    }

    /// The same, but the connection stays open: requests are still passed on,
    /// and neither this answer nor a later one arrives.
    pub(crate) fn swallow_answers_from(&self, needle: impl Into<Vec<u8>>) {
        self.switches.arm(needle.into(), Rest::Swallow);
    }

    /// How many requests were passed on that a client waits for the answer to,
    /// on all connections together.
    pub(crate) fn round_trips(&self) -> usize {
        self.switches.round_trips()
    }

    /// How often the server did something whose answer was withheld.
    pub(crate) fn fired(&self) -> usize {
        self.switches.fired()
    }

    /// Waits until that was so often.
    pub(crate) async fn has_fired(&self, times: usize) {
        self.switches.has_fired(times).await;
    }
}

impl<U: Upstream> Drop for Proxy<U> {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Somebody who listens, and ends with the value.
struct Listening {
    listener: Arc<TcpListener>,
    task: JoinHandle<()>,
}

impl Listening {
    fn start<U: Upstream>(
        listener: TcpListener,
        place: &Arc<Mutex<String>>,
        switches: &Arc<Switches>,
    ) -> Self {
        let listener = Arc::new(listener);
        let (place, switches) = (Arc::clone(place), Arc::clone(switches));
        let accepting = accept::<U>(Arc::clone(&listener), place, switches);
        Self {
            task: tokio::spawn(accepting),
            listener,
        }
    }

    /// To close it would not do: a process that is just being started has it
    /// too, until it runs its own program.
    fn end(&mut self) {
        let listener = SockRef::from(&*self.listener);
        listener.shutdown(Shutdown::Both).expect("it listens");
        self.task.abort();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !self.task.is_finished() {
            self.end();
        }
    }
}

/// The port, and who listens on it first.
fn reserve(port: u16) -> io::Result<(TcpSocket, TcpListener)> {
    let reserved = TcpSocket::new_v4()?;
    reserved.set_reuseport(true)?;
    reserved.bind(on_loopback(port))?;
    Ok((reserved, listen(port)?))
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(on_loopback(port))?;
    socket.listen(1_024)
}

fn on_loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn accept<U: Upstream>(
    listener: Arc<TcpListener>,
    place: Arc<Mutex<String>>,
    switches: Arc<Switches>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let server = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let switches = Arc::clone(&switches);
        let cut = switches.next_cut();
        tokio::spawn(async move {
            let passed = async {
                let server = TcpStream::connect(server).await?;
                U::pass(client, server, &switches).await
            };
            let ended = tokio::select! {
                biased;
                () = cut => return,
                ended = passed => ended,
            };
            // By now both sides are closed.
            if ended.is_ok() {
                switches.fire();
            }
        });
    }
}
