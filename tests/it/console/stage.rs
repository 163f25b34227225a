//! A store with keys in every state, under a clock that stands still.

use std::time::Duration;

use axum_idempotency::{
    Clock as _, Completion, IdempotencyKey, KeptResponse, Principal, ResourceId, Scope, ScopedKey,
    archive::Archive as _,
    claim::{ClaimRequest, Lease},
    console::Console,
    inspect::Inspector,
    store::{Fenced, Renewal, Renewed, Store as _, TtlNotice},
};
use http::{HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use uuid::Uuid;

use crate::support::{
    Backend, FaultyArchive, FaultyStore,
    attempt::{LEASE, TTL, key, leased, request},
};

/// What must never be on a page.
pub(super) const BODY: &str = "the-body-of-a-response";
pub(super) const HEADER: &str = "the-header-of-a-response";

/// What a client may have put into a resource id.
pub(super) const SCRIPT: &str = "<script>alert(1)</script>";
pub(super) const FORMULA: &str = "=SUM(A1)";

/// The moment at which everything stands: 02:14 of a night.
pub(super) fn night() -> Timestamp {
    "2026-12-01T02:14:00Z".parse().expect("a time")
}

pub(super) struct Stage {
    pub backend: Backend,
    pub store: FaultyStore,
    pub archive: FaultyArchive,
}

impl Stage {
    /// Nothing has happened yet.
    pub(super) fn empty(backend: Backend) -> Self {
        backend.clock.set(night());
        Self {
            store: backend.process(),
            archive: backend.archive(),
            backend,
        }
    }

    /// A key in each state, named after it.
    pub(super) async fn set(backend: Backend) -> Self {
        let stage = Self::empty(backend);
        let begin = night() - Duration::from_hours(24 * 40);
        let prepared = stage.archive.prepare(begin, night() + 60 * TTL).await;
        prepared.expect("there is room");
        stage.publishes_its_ttls().await;

        stage.at_before(Duration::from_hours(47));
        stage.completes("archived", 201, "ch_archived").await;
        if !stage.backend.archives_first() {
            // Beside Redis this is for the layer, and Redis itself.
            stage
                .completes("used in two windows", 201, "ch_first")
                .await;
        }
        stage.claims("archived without outcome").await;
        stage.at_before(Duration::from_hours(22));
        stage.backend.sweep().await;

        stage.at_before(TTL + Duration::from_mins(5));
        stage.completes("expired", 201, "ch_expired").await;
        stage.claims("expired without outcome").await;

        stage.at_before(Duration::from_mins(12));
        stage.claims("lapsed").await;
        stage.claims("taken over").await;
        stage.completes("completed", 201, "ch_completed").await;
        stage.completes("made by a script", 201, SCRIPT).await;
        stage.completes("made by a formula", 201, FORMULA).await;
        if !stage.backend.archives_first() {
            stage
                .completes("used in two windows", 409, "ch_second")
                .await;
        }
        stage.forgets_the_response("not kept").await;

        stage.at_before(Duration::from_secs(5));
        let second = stage.claims("taken over").await;
        assert_eq!(second.attempt, 2, "the second attempt takes over");
        stage.claims("running").await;
        stage.asks_the_archive("speculative").await;
        stage.at_before(Duration::ZERO);
        stage
    }

    /// What the pages ask.
    pub(super) fn inspector(&self) -> Inspector {
        Inspector::new(self.store.clone()).archive(self.archive.clone())
    }

    pub(super) fn console(&self) -> Console {
        Console::new(self.inspector()).title("Charges")
    }

    pub(super) fn at_before(&self, age: Duration) {
        self.backend.clock.set(night() - age);
    }

    pub(super) async fn claims(&self, name: &str) -> Lease {
        let request = request(key(name));
        let lease = self.claimed(request.clone()).await;
        // The archive has been asked, so that the handler runs.
        let renewal = Renewal {
            key: request.key,
            token: request.token,
            lease: LEASE,
            confirmed: true,
        };
        let renewed = self.store.renew(&[renewal]).await.expect("it answers");
        assert!(matches!(renewed[..], [Renewed::Until(_)]), "{renewed:?}");
        lease
    }

    pub(super) async fn completes(&self, name: &str, status: u16, resource: &str) {
        let response = KeptResponse {
            headers: vec![(
                HeaderName::from_static("x-account"),
                HeaderValue::from_static(HEADER),
            )],
            body: BODY.into(),
        };
        self.ends(name, status, resource, Some(response)).await;
    }

    async fn forgets_the_response(&self, name: &str) {
        self.ends(name, 200, "ch_large", None).await;
    }

    async fn ends(&self, name: &str, status: u16, resource: &str, kept: Option<KeptResponse>) {
        let request = request(key(name));
        self.claimed(request.clone()).await;
        self.backend.clock.advance(Duration::from_millis(1_250));
        let completion = Completion {
            status,
            resource_id: Some(ResourceId::new(resource).expect("an id")),
            response: kept,
        };
        let done = self.store.complete(request.key, request.token, completion);
        assert_eq!(done.await.expect("it answers"), Fenced::Owner);
        self.backend
            .clock
            .set(self.backend_now() - Duration::from_millis(1_250));
    }

    /// The claim of a key that says it is old.
    async fn asks_the_archive(&self, name: &str) {
        let mut request = request(key(name));
        request.age.timestamp = Some(night() - 3 * TTL);
        let lease = self.claimed(request).await;
        assert!(lease.is_speculative(), "the archive is to be asked");
    }

    async fn claimed(&self, request: ClaimRequest) -> Lease {
        leased(self.store.claim(request).await.expect("it answers"))
    }

    async fn publishes_its_ttls(&self) {
        let notice = TtlNotice {
            process: Uuid::new_v4(),
            smallest: TTL,
            largest: 7 * TTL,
        };
        let published = self.store.publish_ttl(notice).await;
        published.expect("it answers");
    }

    fn backend_now(&self) -> Timestamp {
        self.backend.clock.now()
    }
}

/// The page of a key.
pub(super) fn page_of(name: &str) -> String {
    format!("/keys/{}", key(name))
}

/// A key that belongs to somebody who is told by his account, in words of a form.
pub(super) fn derive_form(account: &str, client_key: &str) -> String {
    format!("kind=account&caller={account}&key={client_key}")
}

/// The scoped key that [`derive_form`] asks for.
pub(super) fn derived(account: &str, client_key: &str) -> ScopedKey {
    ScopedKey::derive(
        None,
        Scope::Principal,
        &Principal::new(account),
        (&Method::POST, ""),
        &IdempotencyKey::new(client_key).expect("a key"),
    )
}
