//! Which answer belongs to which request of a connection.

use std::{
    cmp::Ordering,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
};

use super::{
    Switches,
    switches::{Armed, Rest},
};

/// What a server says, message by message.
pub(crate) trait Answer: Sized + Send {
    /// The next message. Between two messages the end of the stream is an error
    /// as well.
    fn read(from: &mut BufReader<OwnedReadHalf>) -> impl Future<Output = io::Result<Self>> + Send;

    fn bytes(&self) -> &[u8];

    /// Whether with this the answer to one request is complete.
    fn is_complete(&self) -> bool;

    /// Whether the server says that it did nothing and is to be asked anew, here
    /// or elsewhere. Of the requests that were waited for, this is none.
    fn is_sent_back(&self) -> bool {
        false
    }
}

/// A client's requests are numbered, and a server answers them in order.
pub(crate) struct Progress<'a> {
    counts: Mutex<Counts>,
    switches: &'a Switches,
}

#[derive(Default)]
struct Counts {
    asked: usize,
    answered: usize,
    /// The request from which on no answer is passed on, and why.
    withheld: Option<(usize, Armed)>,
}

impl<'a> Progress<'a> {
    /// When so many requests, about the connection itself, were passed on.
    pub(crate) fn after(asked: usize, switches: &'a Switches) -> Self {
        let counts = Counts {
            asked,
            ..Counts::default()
        };
        Self {
            counts: Mutex::new(counts),
            switches,
        }
    }

    /// A request is complete.
    pub(crate) fn ask(&self) {
        self.counts().asked += 1;
        self.switches.count_round_trip();
    }

    /// Of the request that is not complete yet, these are texts.
    pub(crate) fn withhold_if_armed_for(&self, texts: &[&[u8]]) {
        let mut counts = self.counts();
        if counts.withheld.is_none() {
            let this = counts.asked + 1;
            let armed = self.switches.take_if_in(texts);
            counts.withheld = armed.map(|armed| (this, armed));
        }
    }

    /// Passes answers on until one is withheld and the connection is to be cut.
    pub(crate) async fn pass_answers<A: Answer>(
        &self,
        from_server: OwnedReadHalf,
        mut to_client: OwnedWriteHalf,
    ) -> io::Result<()> {
        let mut from_server = BufReader::new(from_server);
        loop {
            let message = A::read(&mut from_server).await?;
            match self.withheld(&message) {
                None => {
                    self.switches.go_ahead().await;
                    to_client.write_all(message.bytes()).await?;
                }
                Some(Withheld::All(Rest::Cut)) => return Ok(()),
                Some(Withheld::All(Rest::Swallow)) => self.switches.fire(),
                Some(Withheld::Part) => {}
            }
        }
    }

    fn withheld(&self, message: &impl Answer) -> Option<Withheld> {
        let mut counts = self.counts();
        let answering = counts.answered + 1;
        let is_complete = message.is_complete();
        counts.answered += usize::from(is_complete);
        let sent_back = counts
            .withheld
            .take_if(|(from, _)| *from == answering && message.is_sent_back());
        if let Some((_, armed)) = sent_back {
            self.switches.arm_again(armed);
            return None;
        }
        let (from, armed) = counts.withheld.as_ref()?;
        match answering.cmp(from) {
            Ordering::Less => None,
            Ordering::Equal if is_complete => Some(Withheld::All(armed.rest)),
            _ => Some(Withheld::Part),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept from a client.
enum Withheld {
    /// With this the server's answer is complete.
    All(Rest),
    Part,
}
