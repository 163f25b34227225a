//! The server does what it is asked, and its answer never arrives.

use crate::{
    services::{Service, Site, http::Request, settled, ulid, until},
    support::{
        postgres::{Proxy, Schema},
        scoped,
    },
};

/// Two processes over one database, of which one asks by way of the proxy.
struct Line {
    proxy: Proxy,
    service: Service,
    other: Service,
    key: String,
    _schema: Schema,
}

impl Line {
    async fn new() -> Self {
        let schema = Schema::new();
        let proxy = Proxy::before(&schema.url());
        let service = Site::over(proxy.url()).testbed().await;
        Self {
            proxy,
            service,
            other: Site::over(schema.url()).testbed().await,
            key: ulid(),
            _schema: schema,
        }
    }

    fn request(&self, to: &Service) -> Request {
        let request = to.post("/echo?delay_ms=300&size=600");
        request.key(&self.key).body("charge")
    }

    /// How the store names the key: in every statement about it.
    fn scoped(&self) -> String {
        scoped("acct_1", &self.key).to_string()
    }

    /// One effect, and one answer everywhere.
    async fn ran_once(&self, status: u16) {
        let first = self.request(&self.other).send().await;
        assert!(first.is_replay(), "{first}");
        assert_eq!(first.status, status, "{first}");
        self.request(&self.service).send().await.must_replay(&first);
        assert_eq!(self.other.executions(&self.key).await, 1);
    }
}

#[tokio::test]
async fn of_a_claim_the_request_runs_once() {
    let line = Line::new().await;
    line.proxy.cut_answer_to(line.scoped());
    let answer = line.request(&line.service).send().await;
    line.proxy.has_fired(1).await;
    assert_eq!(answer.json()["attempt"], 1, "{answer}");
    line.ran_once(200).await;
}

#[tokio::test]
async fn of_a_completion_the_answer_is_the_clients_and_everybodys() {
    let line = Line::new().await;
    let running = line.request(&line.service).begin().await;
    line.other.has_executed(&line.key, 1).await;
    line.proxy.cut_answer_to(line.scoped());
    let answer = running.answer().await.expect("an answer");
    line.proxy.has_fired(1).await;
    let replay = line.request(&line.other).send().await;
    replay.must_replay(&answer);
    line.ran_once(200).await;
}

/// The handler cannot know whether its effect happened, and nobody else can:
/// the failure it answers is what a retry gets.
#[tokio::test]
async fn of_the_effect_itself_the_handlers_failure_is_the_answer() {
    let line = Line::new().await;
    line.proxy.cut_answer_to(&*line.key);
    let answer = line.request(&line.service).send().await;
    line.proxy.has_fired(1).await;
    let replay = line.request(&line.other).send().await;
    replay.must_replay(&answer);
    line.ran_once(500).await;
}

/// The connection stays open, so that nothing tells that no answer will come.
#[tokio::test]
async fn of_a_claim_in_silence_the_key_is_soon_free_again() {
    let line = Line::new().await;
    line.proxy.swallow_answers_from(line.scoped());
    let refused = line.request(&line.service).send().await;
    refused.problem(503, "idempotency_store_unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"), "{refused}");
    let answer = settled(&line.request(&line.other)).await;
    assert_eq!(answer.json()["attempt"], 1, "nothing had run: {answer}");
    line.ran_once(200).await;
}

/// Neither the claim nor its release is ever confirmed at first.
#[tokio::test]
async fn of_a_claim_and_then_of_its_release_the_key_is_soon_free_again() {
    let line = Line::new().await;
    line.proxy.swallow_answers_from(line.scoped());
    let running = line.request(&line.service).begin().await;
    line.proxy.has_fired(1).await;
    line.proxy.cut_answer_to(line.scoped());
    let refused = running.answer().await.expect("an answer");
    refused.problem(503, "idempotency_store_unavailable");
    line.proxy.has_fired(2).await;
    let answer = settled(&line.request(&line.service)).await;
    assert_eq!(answer.json()["attempt"], 1, "nothing had run: {answer}");
    line.ran_once(200).await;
}

#[tokio::test]
async fn of_a_completion_in_silence_the_answer_is_the_clients_and_everybodys() {
    let line = Line::new().await;
    let running = line.request(&line.service).begin().await;
    line.other.has_executed(&line.key, 1).await;
    line.proxy.swallow_answers_from(line.scoped());
    let answer = running.answer().await.expect("an answer");
    line.proxy.has_fired(1).await;
    assert_eq!(answer.status, 200, "the handler had run: {answer}");
    let replay = line.request(&line.other).send().await;
    replay.must_replay(&answer);
    // This process still asks whether it was recorded.
    let confirmed = async || {
        let retry = line.request(&line.service).send().await;
        retry.is_replay().then_some(retry)
    };
    let retry = until("the completion is confirmed", confirmed).await;
    retry.must_replay(&answer);
    line.ran_once(200).await;
}
