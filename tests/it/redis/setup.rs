//! What keeps a store from being opened, and what the error says to do.

use axum_idempotency::{
    ArchiveLookup, ConfigError, IdempotencyLayer, Policy, PrincipalSource,
    archive::MemoryArchive,
    store::{
        Keeps, Store as _, StoreError, StoreErrorKind,
        redis::{Eviction, RedisStore},
    },
};

use super::open;
use crate::support::{
    Logs, in_time,
    redis::{Cluster, Server, server_url, shared_cluster_url},
};

async fn refused(url: &str) -> StoreError {
    let opened = RedisStore::open(url).await;
    opened.err().unwrap_or_else(|| panic!("it opened"))
}

async fn expect_setup(url: &str, remedy: &str) {
    let error = refused(url).await;
    assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
    assert!(error.to_string().contains(remedy), "{error}");
    assert!(
        !format!("{error:?} {error}").contains("s3cret"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_url_that_is_none_is_refused() {
    in_time(async {
        for url in [
            "",
            "localhost:6379",
            "http://:s3cret@localhost",
            "redis://",
            "redis://:s3cret@localhost:port",
            "redis+cluster://:s3cret@a:1,b:port",
            "redis+cluster://a:1,b:2/3",
        ] {
            expect_setup(url, "the URL has to be redis://").await;
        }
        let none = RedisStore::builder().open().await;
        assert_eq!(none.unwrap_err().kind(), StoreErrorKind::Setup);
    })
    .await;
}

#[tokio::test]
async fn tls_without_its_feature_names_the_feature() {
    in_time(expect_setup(
        "rediss://:s3cret@localhost",
        "a feature of the crate redis",
    ))
    .await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_a_wrong_url() {
    in_time(async {
        let server = Server::start().await;
        let url = format!("{}/99", server.url().trim_end_matches('/'));
        expect_setup(&url, "the URL has to be redis://").await;
    })
    .await;
}

#[tokio::test]
async fn a_server_and_a_cluster_are_told_apart() {
    in_time(async {
        let no_cluster = server_url().replacen("redis://", "redis+cluster://", 1);
        expect_setup(&no_cluster, "begins with redis://").await;
        let cluster = shared_cluster_url().await;
        let nodes: Vec<_> = cluster
            .trim_start_matches("redis+cluster://")
            .split(',')
            .collect();
        for node in nodes {
            expect_setup(&format!("redis://{node}"), "begins with redis+cluster://").await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    in_time(async {
        let mut server = Server::start().await;
        let url = server.url();
        server.kill().await;
        let error = refused(&url).await;
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
        assert!(error.to_string().contains("does it run"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_refused_password_is_named_and_not_shown() {
    in_time(async {
        let server = Server::with(&["--requirepass", "right"]).await;
        let place = format!("127.0.0.1:{}", server.port());
        for credentials in ["", ":s3cret@", "nobody:s3cret@"] {
            expect_setup(&format!("redis://{credentials}{place}"), "password").await;
        }
        let node = Server::with(&["--cluster-enabled", "yes", "--requirepass", "right"]).await;
        for credentials in ["", ":s3cret@"] {
            let place = format!("{credentials}127.0.0.1:{}", node.port());
            expect_setup(&format!("redis+cluster://{place}"), "password").await;
        }
        let store = open(&format!("redis://:right@{place}")).await;
        assert!(!format!("{store:?}").contains("right"), "{store:?}");
        let builder = RedisStore::builder().url(format!("redis://:right@{place}"));
        assert!(!format!("{builder:?}").contains("right"), "{builder:?}");
    })
    .await;
}

#[tokio::test]
async fn a_permission_that_is_missing_is_found_out_at_the_start() {
    in_time(async {
        let server = Server::start().await;
        let url = format!("redis://few:s3cret@127.0.0.1:{}", server.port());
        let allow = async |rules: &[&str]| {
            let user = ["ACL", "SETUSER", "few", "reset", "on", ">s3cret", "~*"];
            server.cli(&[&user, rules].concat()).await;
        };
        // No scripts at all; scripts, but not what they do.
        allow(&["+info", "+time"]).await;
        expect_setup(&url, "may not run the scripts").await;
        allow(&["+info", "+@scripting", "+time", "+hset", "+type"]).await;
        expect_setup(&url, "may not run the scripts").await;
        allow(&[
            "+info",
            "+@scripting",
            "+time",
            "+@hash",
            "+@string",
            "+@keyspace",
        ])
        .await;
        let store = open(&url).await;
        assert_eq!(store.keeps(), Keeps::UntilExpired);
    })
    .await;
}

#[tokio::test]
async fn a_replica_is_no_server_for_a_store() {
    in_time(async {
        let master = Server::start().await;
        let replica = Server::replica_of(&master).await;
        let error = refused(&replica.url()).await;
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    })
    .await;
}

fn layer(store: &RedisStore, lookup: ArchiveLookup) -> Result<IdempotencyLayer, ConfigError> {
    let policy = Policy::builder(PrincipalSource::bearer()).archive_lookup(lookup);
    IdempotencyLayer::builder(store.clone())
        .archive(MemoryArchive::new())
        .policy(policy.build().expect("a policy"))
        .build()
}

#[tokio::test]
async fn a_server_that_may_evict_is_warned_of_and_wants_every_key_looked_up() {
    in_time(async {
        for policy in ["allkeys-lru", "volatile-ttl"] {
            let server = Server::with(&["--maxmemory-policy", policy]).await;
            let logs = Logs::capture();
            let store = open(&server.url()).await;
            assert!(logs.text().contains("may evict records"), "{}", logs.text());
            assert!(logs.text().contains(policy), "{}", logs.text());
            assert_eq!(store.keeps(), Keeps::UntilEvicted);
            let refused = layer(&store, ArchiveLookup::TimestampedKeys).unwrap_err();
            assert!(matches!(refused, ConfigError::StoreEvicts), "{refused}");
            let every = layer(&store, ArchiveLookup::AllKeys).expect("every key is looked up");
            layer(&store, ArchiveLookup::RequireTimestamped).expect("every key is looked up");
            let hourly = Policy::builder(PrincipalSource::bearer()).build();
            let refused = every.with_policy(hourly.expect("a policy")).unwrap_err();
            assert!(matches!(refused, ConfigError::StoreEvicts), "{refused}");
            let policy = Policy::builder(PrincipalSource::bearer())
                .archive_lookup(ArchiveLookup::RequireTimestamped);
            let without_archive = IdempotencyLayer::builder(store.clone())
                .policy(policy.build().expect("a policy"))
                .build();
            assert!(matches!(without_archive, Err(ConfigError::StoreEvicts)));
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_may_evict_is_refused_where_the_builder_says_so() {
    in_time(async {
        let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]).await;
        let strict = || {
            let builder = RedisStore::builder().url(server.url());
            builder.eviction(Eviction::Refuse).open()
        };
        let error = strict().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
        assert!(error.to_string().contains("noeviction"), "{error}");
        server
            .cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])
            .await;
        let store = strict().await.expect("it evicts nothing now");
        assert_eq!(store.keeps(), Keeps::UntilExpired);
        layer(&store, ArchiveLookup::TimestampedKeys).expect("no key has to be looked up");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_tell_may_evict() {
    in_time(async {
        let server = Server::start().await;
        let all_but_info = ["ACL", "SETUSER", "shy", "on", ">pw", "~*", "+@all", "-info"];
        server.cli(&all_but_info).await;
        let url = format!("redis://shy:pw@127.0.0.1:{}", server.port());
        assert_eq!(open(&url).await.keeps(), Keeps::UntilEvicted);
        let strict = RedisStore::builder().url(url).eviction(Eviction::Refuse);
        let error = strict.open().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn every_master_of_a_cluster_is_asked_about_eviction() {
    in_time(async {
        let cluster = Cluster::start().await;
        assert_eq!(open(&cluster.url()).await.keeps(), Keeps::UntilExpired);
        let last = *cluster.masters().await.last().expect("a master");
        cluster
            .node(last)
            .cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"])
            .await;
        assert_eq!(open(&cluster.url()).await.keeps(), Keeps::UntilEvicted);
    })
    .await;
}
