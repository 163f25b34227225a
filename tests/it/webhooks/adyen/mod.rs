//! Adyen's batches: each item once, whatever becomes of those beside it.

mod batches;
mod faults;
mod refusals;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use axum_idempotency::{
    IdempotencyKey, Retry,
    webhook::{Adyen, AdyenItem},
    worker::{Delivery, Job, Worker},
};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::{DAY, LEASE};
use crate::support::{Answer, Backend, FaultyArchive, FaultyStore, Gate};

/// A service that receives Adyen's webhooks.
#[derive(Clone)]
struct Desk {
    adyen: Adyen,
    worker: Worker,
    store: FaultyStore,
    archive: FaultyArchive,
    work: Arc<Mutex<Handled>>,
}

/// What the handler of a service has seen, and what it is to do.
#[derive(Default)]
struct Handled {
    /// The attempts at each item, in order.
    attempts: BTreeMap<String, Vec<u32>>,
    derived: Vec<IdempotencyKey>,
    failing: HashMap<String, Failure>,
    held: HashMap<String, Gate>,
}

#[derive(Clone, Copy)]
enum Failure {
    Error,
    Panic,
}

impl Desk {
    fn open(backend: &Backend) -> Self {
        Self::over(backend.process(), backend.archive())
    }

    fn over(store: FaultyStore, archive: FaultyArchive) -> Self {
        let worker = Adyen::worker(store.clone()).archive(archive.clone());
        let worker = worker.build().expect("settings that work");
        Self {
            adyen: Adyen::new(worker.clone()),
            worker,
            store,
            archive,
            work: Arc::default(),
        }
    }

    async fn deliver(&self, body: impl AsRef<[u8]>) -> Answer {
        let work = Arc::clone(&self.work);
        let handler = move |item: AdyenItem| handle(Arc::clone(&work), item);
        let response = self.adyen.deliver(body.as_ref(), handler).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body without faults");
        Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
            ..Answer::default()
        }
    }

    /// Delivers it in the background.
    fn delivering(&self, body: Value) -> tokio::task::JoinHandle<Answer> {
        let desk = self.clone();
        tokio::spawn(async move { desk.deliver(body.to_string()).await })
    }

    fn fails_at(&self, psp: &str, failure: Failure) {
        self.handled(|work| work.failing.insert(psp.to_owned(), failure));
    }

    fn is_mended(&self) {
        self.handled(|work| work.failing.clear());
    }

    /// The handler stands at the gate when it comes to this item.
    fn hold(&self, psp: &str) -> Gate {
        let gate = Gate::closed();
        self.handled(|work| work.held.insert(psp.to_owned(), gate.clone()));
        gate
    }

    #[track_caller]
    fn expect_attempts(&self, expected: &[(&str, &[u32])]) {
        let attempts = self.handled(|work| work.attempts.clone());
        let expected = expected
            .iter()
            .map(|(psp, attempts)| ((*psp).to_owned(), attempts.to_vec()));
        assert_eq!(attempts, expected.collect(), "the attempts at each item");
    }

    fn handled<T>(&self, look: impl FnOnce(&mut Handled) -> T) -> T {
        look(&mut self.work.lock().expect("no panic in here"))
    }

    /// The item as a delivery to this service claims it.
    async fn claimed(&self, psp: &str) -> Job {
        let id = id_of("AUTHORISATION", psp, "true");
        match self.worker.claim(&id).await.expect("the store answers") {
            Delivery::Claimed(job) => job,
            other => panic!("{psp} is to be done, and is {other:?}"),
        }
    }
}

async fn handle(work: Arc<Mutex<Handled>>, item: AdyenItem) -> Result<(), &'static str> {
    let json: Value = serde_json::from_str(item.json()).expect("an item is JSON");
    let psp = json["pspReference"].as_str().expect("it has an id");
    let (failure, gate) = {
        let mut work = work.lock().expect("no panic in here");
        let attempts = work.attempts.entry(psp.to_owned()).or_default();
        attempts.push(item.idempotency().attempt());
        let derived = item.idempotency().derive("ledger");
        work.derived.push(derived);
        (work.failing.get(psp).copied(), work.held.remove(psp))
    };
    if let Some(gate) = gate {
        gate.pass().await;
    }
    match failure {
        None => Ok(()),
        Some(Failure::Error) => Err("as the test asked"),
        Some(Failure::Panic) => panic!("as the test asked"),
    }
}

fn item(psp: &str) -> Value {
    json!({"NotificationRequestItem": {
        "additionalData": {"hmacSignature": "first"},
        "amount": {"currency": "EUR", "value": 1000},
        "eventCode": "AUTHORISATION",
        "eventDate": "2026-12-01T00:00:00+01:00",
        "merchantAccountCode": "Acme",
        "pspReference": psp,
        "success": "true",
    }})
}

fn batch(items: impl IntoIterator<Item = Value>) -> Value {
    let items: Vec<_> = items.into_iter().collect();
    json!({"live": "false", "notificationItems": items})
}

fn batch_of<const N: usize>(items: [&str; N]) -> Value {
    batch(items.map(item))
}

/// The same items as another delivery of them looks.
fn again(mut batch: Value) -> Value {
    for item in batch["notificationItems"].as_array_mut().expect("a list") {
        let item = &mut item["NotificationRequestItem"];
        item["eventDate"] = json!("2026-12-01T00:10:00+01:00");
        item["additionalData"]["hmacSignature"] = json!("second");
        item["reason"] = json!("a field more");
    }
    batch
}

/// As a worker over the same queue names an item.
fn id_of(code: &str, psp: &str, success: &str) -> String {
    let parts = [code, psp, success].map(|part| format!("{}:{part}", part.len()));
    parts.join(",")
}

impl Answer {
    /// What Adyen waits for.
    #[track_caller]
    fn expect_accepted(&self) {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, 200, "the batch is not accepted: {text}");
        assert_eq!(text, "[accepted]");
    }

    /// 409, with a time to come back at.
    #[track_caller]
    fn expect_come_back(&self) {
        self.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
            .with_retry_after_up_to(LEASE.as_secs());
    }

    #[track_caller]
    fn expect_store_down(&self) {
        self.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
            .with_retry_after_up_to(1);
    }
}
