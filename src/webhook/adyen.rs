//! Adyen's batches: one request, several events, each with an id of its own.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http::{HeaderMap, StatusCode};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::providers::{all_of, pointer};
use crate::{
    handler::Idempotency,
    key::{IdempotencyKey, KeyError, KeySyntax},
    policy::KeySource,
    rejection::Rejection,
    store::Store,
    ttl::Ttl,
    worker::{Delivery, Job, Worker, WorkerBuilder, WorkerError},
};

/// [Adyen's](https://docs.adyen.com/development-resources/webhooks/) standard
/// webhooks. One request brings a batch of items, so that no layer around the
/// route can tell its id: each item is claimed by itself.
///
/// - An item's id is `eventCode`, `pspReference` and `success` together, so that a
///   corrected outcome is another event. `eventDate` and other fields differ between
///   deliveries of one event and are not compared. Where several merchant
///   accounts deliver to one service, give each a worker of its own.
/// - **Delivered again** three times within a minute, then for up to 30 days.
///   Remembered for 35 days.
/// - **Answer within** 10 s.
///
/// ```
/// use std::convert::Infallible;
/// use axum::{Router, body::Bytes, routing::post};
/// use axum_idempotency::{
///     archive::MemoryArchive, store::MemoryStore, webhook::{Adyen, AdyenItem},
/// };
///
/// # fn app() -> Result<Router, axum_idempotency::ConfigError> {
/// let worker = Adyen::worker(MemoryStore::new()).archive(MemoryArchive::new());
/// let adyen = Adyen::new(worker.build()?);
/// let receive = move |body: Bytes| async move {
///     adyen.deliver(&body, |item: AdyenItem| async move {
///         let _payment = item.json(); // verify its hmacSignature, then record it
///         Ok::<_, Infallible>(())
///     }).await
/// };
/// let app = Router::new().route("/hooks/adyen", post(receive));
/// # Ok(app)
/// # }
/// # app().expect("a valid configuration");
/// ```
#[derive(Clone, Debug)]
pub struct Adyen {
    worker: Worker,
    id: KeySource,
}

impl Adyen {
    /// A worker that remembers items for as long as Adyen delivers them. Give it an
    /// archive, so that a later one is known too.
    pub fn worker(store: impl Store) -> WorkerBuilder {
        Self::worker_dyn(Arc::new(store))
    }

    /// The same over a store that is chosen at run time.
    pub fn worker_dyn(store: Arc<dyn Store>) -> WorkerBuilder {
        Worker::builder_dyn("webhook:adyen", store).ttl(Ttl::days(35))
    }

    /// Deliveries whose items this worker claims.
    pub fn new(worker: Worker) -> Self {
        let part = |name| pointer(&format!("/{name}"));
        Self {
            worker,
            id: all_of(["eventCode", "pspReference", "success"].map(part)),
        }
    }

    /// Hands every item that has not been done to `handler`, one after the other,
    /// and gives what Adyen is to be answered:
    ///
    /// | items | answer |
    /// | --- | --- |
    /// | all are done, now or before | 200 `[accepted]` |
    /// | one failed: its handler said so, or panicked | 500; it runs again |
    /// | one is under way in another delivery | 409 with `Retry-After` |
    /// | one has an attempt without an outcome, under [`Abandoned::Refuse`](crate::Abandoned::Refuse) | 409 without `Retry-After` |
    /// | one has no usable id, or the body is no batch | 400; nothing runs |
    /// | the store or the archive cannot say | 503; those that could be claimed ran |
    ///
    /// Adyen delivers a batch again whole; items that are done do not run again.
    /// A delivery goes on when Adyen hangs up.
    pub async fn deliver<F, R, E>(&self, body: &[u8], handler: F) -> Response
    where
        F: Fn(AdyenItem) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Send + 'static,
    {
        let items = match self.items(body) {
            Ok(items) => items,
            Err(reason) => return self.refuse(&Rejection::key(reason, self.id.in_words())),
        };
        let worker = self.worker.clone();
        let ended = self.worker.spawn(async move {
            let mut ended = Vec::with_capacity(items.len());
            for (id, json) in items {
                ended.push(run(&worker, &id, json, &handler).await);
            }
            ended.into_iter().max().unwrap_or(End::Done)
        });
        match ended.await.unwrap_or(End::Failed) {
            End::Done => ACCEPTED.into_response(),
            End::Failed => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            End::InFlight { retry_after } => self.refuse(&Rejection::InProgress {
                retry_after: retry_after.as_secs(),
            }),
            End::Unknown => self.refuse(&Rejection::OutcomeUnknown { created_at: None }),
            End::Full => self.refuse(&Rejection::StoreFull { retry_after: 1 }),
            End::Unavailable => self.refuse(&Rejection::StoreUnavailable { retry_after: 1 }),
        }
    }

    /// The items of a batch, each with its id.
    fn items(&self, body: &[u8]) -> Result<Vec<(IdempotencyKey, Box<RawValue>)>, KeyError> {
        let items = read::<Members>(body)?.one("notificationItems")?;
        let items: Vec<Members> = read(items.get().as_bytes())?;
        let item = |item: Members| {
            let json = item.one("NotificationRequestItem")?;
            let (syntax, headers) = (KeySyntax::default(), HeaderMap::new());
            let id = self.id.find(syntax, &headers, json.get().as_bytes())?;
            Ok((id, json))
        };
        items.into_iter().map(item).collect()
    }

    fn refuse(&self, rejection: &Rejection) -> Response<Body> {
        self.worker.layer().render(rejection)
    }
}

/// One event of a batch.
#[derive(Clone, Debug)]
pub struct AdyenItem {
    json: Arc<RawValue>,
    idempotency: Idempotency,
}

impl AdyenItem {
    /// The `NotificationRequestItem` as it came, in JSON.
    pub fn json(&self) -> &str {
        self.json.get()
    }

    /// The attempt that it is handled under, as a handler behind the layer
    /// extracts it.
    pub fn idempotency(&self) -> &Idempotency {
        &self.idempotency
    }
}

/// What became of an item; of several, the last in this order is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Done,
    Unknown,
    InFlight { retry_after: Duration },
    Failed,
    Full,
    Unavailable,
}

async fn run<F, R, E>(worker: &Worker, id: &IdempotencyKey, json: Box<RawValue>, handler: &F) -> End
where
    F: Fn(AdyenItem) -> R,
    R: Future<Output = Result<(), E>>,
{
    match worker.claim(id.as_str()).await {
        Ok(Delivery::Claimed(job)) => handle(job, json, handler).await,
        Ok(Delivery::Done(_)) => End::Done,
        Ok(Delivery::InFlight { retry_after }) => End::InFlight { retry_after },
        Ok(Delivery::Unknown { .. }) => End::Unknown,
        Err(WorkerError::Full) => End::Full,
        Err(_) => End::Unavailable,
    }
}

async fn handle<F, R, E>(job: Job, json: Box<RawValue>, handler: &F) -> End
where
    F: Fn(AdyenItem) -> R,
    R: Future<Output = Result<(), E>>,
{
    let item = AdyenItem {
        json: Arc::from(json),
        idempotency: job.idempotency().clone(),
    };
    let ran = AssertUnwindSafe(async { handler(item).await }).catch_unwind();
    let outcome = tokio::select! {
        outcome = ran => outcome,
        // Another delivery runs it, or will.
        () = job.idempotency().lease_lost() => return End::Failed,
    };
    if let Ok(Ok(())) = outcome {
        let recorded = job.complete(None).await;
        return recorded.map_or(End::Failed, |()| End::Done);
    }
    tracing::error!(scoped_key = %job.idempotency().scoped_key(), "an item's handler failed: it runs again");
    job.release().await;
    End::Failed
}

/// The members of an object, in order.
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// The member of this name. Of two, one would be passed over, and what is in
    /// it acknowledged all the same.
    fn one(self, name: &str) -> Result<Box<RawValue>, KeyError> {
        let mut named = self.0.into_iter().filter(|(other, _)| other == name);
        let (_, value) = named.next().ok_or(KeyError::Missing)?;
        match named.next() {
            None => Ok(value),
            Some(_) => Err(KeyError::MultipleValues),
        }
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(AnyObject)
    }
}

struct AnyObject;

impl<'de> Visitor<'de> for AnyObject {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = object.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, KeyError> {
    serde_json::from_slice(json).map_err(|_| KeyError::BadSyntax)
}

/// What Adyen waits for.
const ACCEPTED: &str = "[accepted]";
