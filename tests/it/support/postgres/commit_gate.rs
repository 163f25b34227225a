//! Where a test holds transactions at their commit.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, query_scalar, raw_sql};

use crate::support::servers::Patience;

/// Every transaction that writes to a table waits within its `COMMIT`, after all
/// that it wrote and before it has taken effect, until the gate is open.
///
/// One gate in a schema, whose URL both sides use.
pub(crate) struct CommitGate(PgConnection);

impl CommitGate {
    /// Closed, before a table that is there.
    pub(crate) async fn before(url: &str, table: &str) -> Self {
        let mut gate = Self(PgConnection::connect(url).await.expect("a connection"));
        gate.run(&format!(
            "CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN PERFORM pg_advisory_xact_lock_shared({LOCK}); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT OR UPDATE ON {table} \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit(); \
             SELECT pg_advisory_lock({LOCK})"
        ))
        .await;
        gate
    }

    /// Waits until a transaction stands before the gate.
    pub(crate) async fn reached(&mut self) -> Standing {
        let patience = Patience::for_it("a transaction is at its commit");
        loop {
            let found = query_scalar(
                "SELECT pid FROM pg_stat_activity \
                 WHERE application_name = current_setting('application_name') \
                   AND query = 'COMMIT' AND wait_event = 'advisory'",
            );
            let found = found.fetch_optional(&mut self.0).await;
            if let Some(pid) = found.expect("an answer") {
                return Standing(pid);
            }
            patience.a_moment().await;
        }
    }

    /// Ends its connection, so that it never takes effect.
    pub(crate) async fn turn_away(&mut self, Standing(pid): Standing) {
        self.run(&format!("SELECT pg_terminate_backend({pid}, 10000)"))
            .await;
    }

    /// Lets it through, and everybody after it, and comes back when it has ended,
    /// whether or not anybody is told.
    pub(crate) async fn let_through(&mut self, Standing(pid): Standing) {
        self.open().await;
        let patience = Patience::for_it("the transaction has ended");
        loop {
            let runs = query_scalar(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND query = 'COMMIT' \
                 AND state = 'active')",
            );
            let runs = runs.bind(pid).fetch_one(&mut self.0).await;
            let runs: bool = runs.expect("an answer");
            if !runs {
                return;
            }
            patience.a_moment().await;
        }
    }

    /// From now on nobody waits.
    pub(crate) async fn open(&mut self) {
        self.run("SELECT pg_advisory_unlock_all()").await;
    }

    async fn run(&mut self, sql: &str) {
        let done = raw_sql(AssertSqlSafe(sql)).execute(&mut self.0).await;
        done.expect(sql);
    }
}

/// A transaction before the gate, by its backend's process.
#[derive(Clone, Copy)]
pub(crate) struct Standing(i32);

/// The name of the advisory lock: that of the schema.
const LOCK: &str = "hashtextextended('gate of ' || current_schema(), 0)";
