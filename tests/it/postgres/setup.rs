//! What cannot be opened says how to make it so, and never tells a password.

use std::error::Error;

use axum_idempotency::store::{
    Store as _, StoreError, StoreErrorKind,
    postgres::{PostgresStore, PostgresStoreBuilder},
};

use super::{Raw, in_time, key, request};
use crate::support::postgres::{Cluster, Database, Schema, server_url};

const PASSWORD: &str = "opensesame";

fn url(url: impl Into<String>) -> PostgresStoreBuilder {
    PostgresStore::builder().url(url)
}

/// Everything that an error tells.
fn told(error: &StoreError) -> String {
    let mut all = vec![format!("{error} {error:?}")];
    let mut source = error.source();
    while let Some(error) = source {
        all.push(format!("{error} {error:?}"));
        source = error.source();
    }
    all.join(" ")
}

async fn refusal(builder: PostgresStoreBuilder) -> StoreError {
    let shown = format!("{builder:?}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    let error = builder.open().await.expect_err("it cannot be used");
    let told = told(&error);
    assert!(!told.contains(PASSWORD), "{told}");
    error
}

async fn assert_remedy(builder: PostgresStoreBuilder, remedy: &str) {
    let error = refusal(builder).await;
    assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(remedy),
        "{remedy:?} is not in {text:?}: {error:?}"
    );
}

#[tokio::test]
async fn a_wrong_url() {
    in_time(async {
        for wrong in [
            "",
            "charges",
            "sqlite:charges.db",
            "mysql://shop:opensesame@127.0.0.1/shop",
            "postgres//shop:opensesame@127.0.0.1/shop",
            "postgres://shop:opensesame@127.0.0.1:port/shop",
            "postgres://shop:opensesame@127.0.0.1:99999/shop",
            "postgres://shop:opensesame@[::1/shop",
            "postgres://shop:opensesame@127.0.0.1/shop?sslmode=sometimes",
            "postgres://shop:open%zzsesame@127.0.0.1:x/opensesame",
        ] {
            assert_remedy(url(wrong), "write postgres://").await;
        }
        assert_remedy(PostgresStore::builder(), "write postgres://").await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    in_time(async {
        for nowhere in [
            "postgres://shop:opensesame@127.0.0.1:1/shop",
            "postgres://shop:opensesame@no-such-host.invalid/shop",
        ] {
            let error = refusal(url(nowhere)).await;
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
            assert!(error.to_string().contains("host and port"), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_database_that_is_not_there() {
    in_time(async {
        let database = Database::new();
        let elsewhere = format!("{}_or_not", database.url());
        assert_remedy(url(elsewhere), "there is no such database").await;
    })
    .await;
}

#[tokio::test]
async fn a_database_to_be_read_only() {
    in_time(async {
        let database = Database::new().with("default_transaction_read_only", "on");
        assert_remedy(url(database.url()), "read-only").await;
        let database = Database::new();
        let store = url(database.url()).open().await.expect("a store");
        let database = database.with("default_transaction_read_only", "on");
        assert_remedy(url(database.url()), "read-only").await;
        assert_remedy(url(database.url()).named_statements(false), "read-only").await;
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_missing_migration() {
    in_time(async {
        let schema = Schema::new();
        let missing = || url(schema.url()).migrate(false);
        assert_remedy(missing(), "a migration is missing").await;
        assert_remedy(missing().schema("nowhere"), "a migration is missing").await;
        url(schema.url()).open().await.expect("migrated");
        missing().open().await.expect("nothing is missing");
    })
    .await;
}

#[tokio::test]
async fn a_schema_that_cannot_have_that_name() {
    in_time(async {
        let long = "s".repeat(64);
        for name in ["", &*long, "a\0b"] {
            let named = url(server_url()).schema(name);
            assert_remedy(named, "1 to 63 bytes").await;
        }
    })
    .await;
}

/// A schema that another version has changed since.
async fn changed(by: &str) -> Schema {
    let schema = Schema::new();
    url(schema.url()).open().await.expect("a store");
    let mut raw = Raw::connect(&schema.url()).await;
    raw.script(by).await;
    schema
}

const LATER: &str = "INSERT INTO _axum_idempotency_migrations \
                     (version, description, success, checksum, execution_time) \
                     VALUES (99, 'idempotency of tomorrow', true, '\\x00', 0)";

#[tokio::test]
async fn a_schema_of_a_later_version() {
    in_time(async {
        let schema = changed(LATER).await;
        assert_remedy(url(schema.url()), "a later version").await;
        assert_remedy(url(schema.url()).migrate(false), "update this process").await;
    })
    .await;
}

#[tokio::test]
async fn a_later_version_that_only_adds_is_lived_with() {
    in_time(async {
        let later = LATER.replace("idempotency of tomorrow", "additive: a note");
        let schema = changed(&format!(
            "{later}; ALTER TABLE idempotency_keys ADD note text NOT NULL DEFAULT ''; \
             ALTER TABLE idempotency_key_archive ADD note text NOT NULL DEFAULT ''; \
             ALTER TABLE idempotency_ttls ADD note text NOT NULL DEFAULT ''"
        ))
        .await;
        for migrate in [true, false] {
            let store = url(schema.url()).migrate(migrate).open().await;
            let store = store.expect("a store");
            super::plans::all_operations(&store, u32::from(migrate)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_migration_that_is_not_the_same() {
    in_time(async {
        let schema = changed("UPDATE _axum_idempotency_migrations SET checksum = '\\x00'").await;
        assert_remedy(url(schema.url()), "another build").await;
    })
    .await;
}

#[tokio::test]
async fn tables_of_somebody_else() {
    in_time(async {
        for table in [
            "idempotency_keys",
            "idempotency_key_archive",
            "idempotency_ttls",
        ] {
            let schema = Schema::new();
            let mut raw = Raw::connect(&schema.url()).await;
            raw.script(&format!(
                "CREATE TABLE {table} (id bigint); INSERT INTO {table} VALUES (7)"
            ))
            .await;
            assert_remedy(url(schema.url()), "rename or remove").await;
            let theirs: i64 = raw.get(&format!("SELECT id FROM {table}")).await;
            assert_eq!(theirs, 7, "it is not ours to touch");
            let left: i64 = raw
                .get("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()")
                .await;
            assert_eq!(left, 1, "nothing of ours is left");
        }
    })
    .await;
}

#[tokio::test]
async fn a_record_of_migrations_of_somebody_else() {
    in_time(async {
        let schema = Schema::new();
        let mut raw = Raw::connect(&schema.url()).await;
        raw.run("CREATE TABLE _axum_idempotency_migrations (id bigint)")
            .await;
        let error = refusal(url(schema.url())).await;
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_table_that_is_gone_while_the_store_is_open() {
    in_time(async {
        let schema = Schema::new();
        let store = url(schema.url()).open().await.expect("a store");
        let mut raw = Raw::connect(&schema.url()).await;
        raw.run("DROP TABLE idempotency_keys").await;
        let error = store.claim(request(key("k"))).await.expect_err("no table");
        assert_eq!(error.kind(), StoreErrorKind::Setup);
        assert!(
            error.to_string().contains("PostgresStore::migrate"),
            "{error}"
        );
    })
    .await;
}

/// A server that asks some users for a password, and what it takes to read it.
struct Guarded {
    cluster: Cluster,
    _rules: tempfile::NamedTempFile,
}

impl Guarded {
    async fn start() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let rules = tempfile::NamedTempFile::new().expect("a file");
        let text = "host all secret 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        std::fs::write(rules.path(), text).expect("a file");
        // The server runs as another user.
        let readable = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(rules.path(), readable).expect("a file of ours");
        let path = rules.path().to_str().expect("UTF-8");
        Self {
            cluster: Cluster::with(&[("hba_file", path)]).await,
            _rules: rules,
        }
    }

    fn url_of(&self, login: &str) -> PostgresStoreBuilder {
        url(self
            .cluster
            .url()
            .replace("postgres@", &format!("{login}@")))
    }
}

#[tokio::test]
async fn a_user_who_is_refused() {
    in_time(async {
        let server = Guarded::start().await;
        let mut raw = Raw::connect(&server.cluster.url()).await;
        raw.script(
            "CREATE ROLE secret LOGIN PASSWORD 'opensesame'; \
             CREATE ROLE locked_out NOLOGIN; \
             GRANT CREATE ON SCHEMA public TO secret",
        )
        .await;
        for login in [
            "secret:wrong",
            "secret",
            "nobody:opensesame",
            "locked_out:opensesame",
            "secret:opensesame%20",
        ] {
            assert_remedy(server.url_of(login), "the server refuses this user").await;
        }
        let builder = server.url_of("secret:opensesame");
        let store = builder.open().await.expect("the right password");
        let shown = format!("{store:?}");
        assert!(!shown.contains(PASSWORD), "{shown}");

        // A password that is changed while the store runs.
        raw.run("ALTER ROLE secret PASSWORD 'another'").await;
        raw.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'secret'")
            .await;
        let error = store.now().await.expect_err("the password is another one");
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
        assert!(!told(&error).contains(PASSWORD), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_missing_permission() {
    in_time(async {
        let server = Cluster::start().await;
        let mut raw = Raw::connect(&server.url()).await;
        raw.script(
            "CREATE ROLE shop LOGIN; CREATE SCHEMA fresh; GRANT USAGE ON SCHEMA fresh TO shop; \
             CREATE SCHEMA closed",
        )
        .await;
        let shop = || url(server.url().replace("postgres@", "shop:opensesame@"));
        let permission = "a permission is missing";
        // Of creating: in the schema of the search path, in another, a schema.
        for builder in [
            shop(),
            shop().schema("fresh"),
            shop().schema("closed"),
            shop().schema("new"),
        ] {
            assert_remedy(builder, permission).await;
        }
        let owner = url(server.url()).schema("fresh").open().await;
        owner.expect("a store").close().await;
        assert_remedy(shop().schema("fresh"), permission).await;
        let tables =
            "fresh.idempotency_keys, fresh.idempotency_key_archive, fresh.idempotency_ttls";
        raw.script(&format!(
            "GRANT SELECT ON fresh._axum_idempotency_migrations TO shop; \
             GRANT SELECT, INSERT, DELETE ON {tables} TO shop"
        ))
        .await;
        let error = refusal(shop().schema("fresh")).await;
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
        let text = told(&error);
        assert!(text.contains("grant this role"), "{text}");
        assert!(text.contains("UPDATE on"), "{text}");

        // Nor does it need more than this.
        raw.run(&format!("GRANT UPDATE ON {tables} TO shop")).await;
        for migrate in [true, false] {
            let store = shop().schema("fresh").migrate(migrate).open().await;
            let store = store.expect("a role that may use, not create");
            super::plans::all_operations(&store, u32::from(migrate)).await;
        }
        raw.run("REVOKE UPDATE ON fresh.idempotency_keys FROM shop")
            .await;
        let store = shop().schema("fresh").open().await;
        store.expect_err("a permission that was taken away");
    })
    .await;
}
