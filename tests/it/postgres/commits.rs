//! Behind a proxy, and on a pool of the user's, every statement is in a
//! transaction: the server commits it, and the answer never arrives.

use axum_idempotency::store::{Fenced, Renewal, Renewed, Store as _, postgres::PostgresStore};
use sqlx::PgPool;

use super::{completion, in_time, key, leased, request};
use crate::support::{
    attempt::LEASE,
    postgres::{Proxy, Schema},
};

/// A store whose statements are in transactions.
struct Line {
    store: PostgresStore,
    proxy: Proxy,
    _schema: Schema,
}

impl Line {
    /// On the store's own connections, and on a pool of the user's.
    async fn both() -> [Self; 2] {
        let (schema, proxy) = place();
        let store = PostgresStore::builder().url(proxy.url());
        let unnamed = Self {
            store: store.named_statements(false).open().await.expect("a store"),
            proxy,
            _schema: schema,
        };
        let (schema, proxy) = place();
        let pool = PgPool::connect(&proxy.url()).await.expect("a pool");
        let pooled = Self {
            store: PostgresStore::builder()
                .pool(pool)
                .open()
                .await
                .expect("a store"),
            proxy,
            _schema: schema,
        };
        [unnamed, pooled]
    }

    async fn loses_the_answer_to<T>(&self, call: impl Future<Output = T>) -> T {
        let before = self.proxy.fired();
        self.proxy.cut_answer_to("COMMIT");
        let answer = call.await;
        self.proxy.has_fired(before + 1).await;
        answer
    }
}

fn place() -> (Schema, Proxy) {
    let schema = Schema::new();
    let proxy = Proxy::before(&schema.url());
    (schema, proxy)
}

#[tokio::test]
async fn whatever_was_committed_unheard_is_answered_as_if_it_had_been_heard() {
    in_time(async {
        for line in Line::both().await {
            let (store, key) = (&line.store, key("cut"));
            let claim = request(key);
            let token = claim.token;
            let claimed = line.loses_the_answer_to(store.claim(claim)).await;
            assert_eq!(leased(claimed.expect("an answer")).attempt, 1);

            let renewal = [Renewal {
                key,
                token,
                lease: LEASE,
                confirmed: true,
            }];
            let renewed = line.loses_the_answer_to(store.renew(&renewal)).await;
            let renewed = renewed.expect("an answer");
            assert!(matches!(renewed[..], [Renewed::Until(_)]), "{renewed:?}");

            let completed = store.complete(key, token, completion(201));
            let completed = line.loses_the_answer_to(completed).await;
            assert_eq!(completed.expect("an answer"), Fenced::Owner);
        }
    })
    .await;
}
