//! Request bodies over the limit.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{PATIENCE, Site, http::Answer, ulid};

on_every_store!(
    an_endless_chunked_body_is_refused_and_not_held,
    a_body_that_is_declared_too_long_is_refused_unread,
    a_body_may_be_as_long_as_the_limit,
);

async fn an_endless_chunked_body_is_refused_and_not_held(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let begun = service.post("/echo").key(&key);
    let begun = begun.begin_with("Transfer-Encoding: chunked").await;
    let (mut reader, mut writer) = begun.0.into_split();
    let sending = tokio::spawn(async move {
        let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; 0x10000], b"\r\n"].concat();
        for _ in 0..GIBIBYTE / 0x10000 {
            writer.write_all(&chunk).await?;
        }
        writer.write_all(b"0\r\n\r\n").await
    });
    let mut bytes = Vec::new();
    let answer = timeout(PATIENCE, async {
        loop {
            let read = reader.read_buf(&mut bytes).await;
            if let Some(answer) = Answer::parse(&bytes) {
                return answer;
            }
            assert!(
                read.is_ok_and(|read| read > 0),
                "the connection ended without an answer"
            );
        }
    });
    let answer = answer.await.expect("an answer");
    sending.abort();
    let problem = answer.problem(413, "idempotency_body_too_large");
    assert_eq!(problem["limit_bytes"], LIMIT);
    assert_eq!(problem["retry"], "fix");
    assert_eq!(service.executions(&key).await, 0);
    let peak = service.peak_memory_kib();
    assert!(peak < 100 * 1024, "the process held {peak} KiB");
}

async fn a_body_that_is_declared_too_long_is_refused_unread(site: Site) {
    let service = site.testbed().await;
    for more in ["", "\r\nExpect: 100-continue"] {
        let request = service.post("/echo").key(&ulid());
        let declared = format!("Content-Length: {GIBIBYTE}{more}");
        let refused = request.begin_with(&declared).await.answer().await;
        let refused = refused.expect("an answer to the head alone");
        refused.problem(413, "idempotency_body_too_large");
    }
    assert_eq!(service.total().await, 0);
}

async fn a_body_may_be_as_long_as_the_limit(site: Site) {
    let service = site.testbed().await;
    let request = |length| service.post("/echo").key("k").body(vec![b'x'; length]);
    let longer = request(LIMIT + 1).send().await;
    longer.problem(413, "idempotency_body_too_large");
    let first = request(LIMIT).send().await;
    assert_eq!(first.json()["execution"], 1, "{first}");
    request(LIMIT).send().await.must_replay(&first);
}

const LIMIT: usize = 1024 * 1024;
const GIBIBYTE: usize = 1024 * 1024 * 1024;
