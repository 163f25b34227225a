//! Group commit: what shares a statement, and what does not share its fate.

use axum_idempotency::ScopedKey;
use futures_util::future::join_all;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{
    Fixture, Raw, claim, completion, fingerprint, in_time, key, leased, promptly, request, response,
};

mod faults;
mod order;
mod sharing;

/// Keeps all who write waiting, so that what is asked meanwhile is asked
/// together.
async fn lock_the_table(fixture: &Fixture) -> Raw {
    let mut raw = fixture.raw().await;
    raw.run("BEGIN").await;
    raw.run("LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE")
        .await;
    raw
}

/// How many statements wrote the rows that are there: those of one statement
/// share the id of its transaction.
async fn statements(raw: &mut Raw) -> i64 {
    raw.get("SELECT count(DISTINCT xmin::text) FROM idempotency_keys")
        .await
}

/// Makes the database refuse `when` something is done to the row of a key.
async fn refuse(raw: &mut Raw, when: &str, key: ScopedKey, how: &str) {
    raw.script(&format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF coalesce(NEW.scoped_key, OLD.scoped_key) = '{key}' THEN {how}; END IF; \
         RETURN coalesce(NEW, OLD); END $$; \
         CREATE TRIGGER refuse BEFORE {when} ON idempotency_keys \
         FOR EACH ROW EXECUTE FUNCTION refuse()"
    ))
    .await;
}

/// Starts calls in this order.
async fn start<T, F>(calls: impl IntoIterator<Item = F>) -> Vec<JoinHandle<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut started = Vec::new();
    for call in calls {
        let (tell, polled) = oneshot::channel();
        started.push(tokio::spawn(async move {
            let mut call = Box::pin(call);
            let first = futures_util::poll!(&mut call);
            let _the_test_is_over = tell.send(());
            match first {
                std::task::Poll::Ready(answer) => answer,
                std::task::Poll::Pending => call.await,
            }
        }));
        polled.await.expect("it is started");
    }
    started
}

async fn all<T>(started: Vec<JoinHandle<T>>) -> Vec<T> {
    let ended = join_all(started).await;
    ended
        .into_iter()
        .map(|one| one.expect("no panic"))
        .collect()
}
