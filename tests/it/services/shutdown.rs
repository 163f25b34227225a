//! SIGTERM: what runs is finished, then the process exits.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

use super::{
    PATIENCE, Service, Site, eventually,
    http::{Request, Waiting},
    ulid, until,
};

on_every_store!(
    every_request_that_runs_gets_its_answer_before_the_exit,
    a_handler_that_never_ends_makes_the_exit_unclean,
    a_handler_whose_client_has_gone_is_finished_before_the_exit,
    those_who_wait_get_their_answer_before_the_exit,
    an_answer_that_is_read_slowly_is_sent_whole_before_the_exit,
    connections_on_which_nothing_runs_do_not_hold_up_the_exit,
);

fn slow(service: &Service, key: &str) -> Request {
    let target = format!("/echo?delay_ms={}", HANDLER.as_millis());
    service.post(&target).key(key).body("charge")
}

async fn every_request_that_runs_gets_its_answer_before_the_exit(site: Site) {
    let service = site.testbed().await;
    let keys: Vec<_> = (0..20).map(|_| ulid()).collect();
    let mut running = Vec::new();
    for key in &keys {
        running.push(slow(&service, key).begin().await);
    }
    eventually("all requests run", async || service.total().await == 20).await;
    let address = service.address;
    service.signal("TERM").await;
    service.has_logged("stopping").await;
    until("new connections are refused", async || {
        TcpStream::connect(address).await.err()
    })
    .await;

    let answers = join_all(running.into_iter().map(Waiting::answer)).await;
    let answers: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.expect("its answer"))
        .collect();
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer}");
    }
    assert_eq!(service.exit_code().await, Some(0));
    if site.is_durable() {
        let service = site.testbed().await;
        for (key, first) in keys.iter().zip(&answers) {
            slow(&service, key).send().await.must_replay(first);
        }
        assert_eq!(service.total().await, 20);
    }
}

async fn a_handler_that_never_ends_makes_the_exit_unclean(site: Site) {
    let service = site.set("DRAIN", "1s").testbed().await;
    let key = ulid();
    let hanging = service.post("/echo?hang=1").key(&key).begin().await;
    service.has_executed(&key, 1).await;
    service.signal("TERM").await;
    assert_eq!(service.exit_code().await, Some(1));
    hanging.answer().await.expect_err("nothing to answer");
}

async fn a_handler_whose_client_has_gone_is_finished_before_the_exit(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let begun = Instant::now();
    let gone = slow(&service, &key).begin().await;
    service.has_executed(&key, 1).await;
    drop(gone);
    service.has_noticed_a_hang_up().await;
    service.signal("TERM").await;
    assert_eq!(service.exit_code().await, Some(0));
    let ran = begun.elapsed();
    assert!(
        ran >= HANDLER,
        "the exit came after {ran:?}, before the handler's end"
    );
    if site.is_durable() {
        let service = site.testbed().await;
        let retry = slow(&service, &key).send().await;
        assert!(retry.is_replay(), "its outcome was recorded: {retry}");
        assert_eq!(service.executions(&key).await, 1);
    }
}

async fn those_who_wait_get_their_answer_before_the_exit(site: Site) {
    let service = site.set("IN_FLIGHT", "wait:10s").testbed().await;
    let key = ulid();
    let first = slow(&service, &key).begin().await;
    service.has_executed(&key, 1).await;
    let waiting = slow(&service, &key).begin().await;
    // Connections are taken in order: this one comes after it.
    service.executions(&key).await;
    service.signal("TERM").await;
    let first = first.answer().await.expect("its answer");
    waiting
        .answer()
        .await
        .expect("its answer")
        .must_replay(&first);
    assert_eq!(service.exit_code().await, Some(0));
}

async fn an_answer_that_is_read_slowly_is_sent_whole_before_the_exit(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let length = 16 * 1024 * 1024;
    let target = format!("/echo?size={length}&stream=1");
    let large = service.post(&target).key(&key);
    let unread = large.begin().await;
    service.has_executed(&key, 1).await;
    service.signal("TERM").await;
    service.has_logged("stopping").await;
    let answer = unread.answer().await.expect("its answer");
    assert_eq!(answer.body.len(), length);
    assert_eq!(service.exit_code().await, Some(0));
}

async fn connections_on_which_nothing_runs_do_not_hold_up_the_exit(site: Site) {
    let service = site.testbed().await;
    let address = service.address;
    let silent = TcpStream::connect(address).await.expect("a connection");
    let mut kept_alive = TcpStream::connect(address).await.expect("a connection");
    let get = b"GET /executions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\n\r\n";
    kept_alive.write_all(get).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let read = kept_alive.read_buf(&mut answer).await;
        assert!(read.expect("an answer") > 0, "the connection stays open");
    }
    let asked = Instant::now();
    service.stop().await;
    assert!(
        asked.elapsed() < PATIENCE / 3,
        "held up for {:?}",
        asked.elapsed()
    );
    drop((silent, kept_alive));
}

const HANDLER: Duration = Duration::from_millis(700);
