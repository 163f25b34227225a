//! What tests share.

use super::Client;
use crate::support::{
    in_time,
    redis::{prefix, server_url, shared_cluster_url},
};

#[tokio::test]
async fn the_server_that_is_there_keeps_every_key_apart() {
    in_time(async {
        let (mine, yours) = (prefix(), prefix());
        let mut client = Client::connect(&server_url()).await.unwrap();
        let key = format!("{mine}k");
        assert_eq!(client.ask(&["SET", &key, "v"]).await.unwrap(), "+OK");
        let other = client.ask(&["GET", &format!("{yours}k")]).await.unwrap();
        assert_eq!(other, "$-1");
        assert_eq!(client.ask(&["DEL", &key]).await.unwrap(), ":1");
        let memory = client.ask(&["INFO", "memory"]).await.unwrap();
        assert!(memory.contains("maxmemory_policy:noeviction"), "{memory}");
    })
    .await;
}

#[tokio::test]
async fn the_cluster_that_is_shared_is_one() {
    in_time(async {
        let (one, other) = tokio::join!(shared_cluster_url(), shared_cluster_url());
        assert_eq!(one, other);
        let seeds = one.strip_prefix("redis+cluster://").expect("a cluster");
        assert_eq!(seeds.split(',').count(), 3);
        for seed in seeds.split(',') {
            let client = Client::connect(&format!("redis://{seed}")).await;
            let answer = client.unwrap().ask(&["CLUSTER", "INFO"]).await.unwrap();
            assert!(answer.contains("cluster_state:ok"), "{answer}");
        }
    })
    .await;
}
