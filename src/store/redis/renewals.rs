//! Renewals: each a script of its own, wherever its key lives.

use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::timeout;

use super::{Shared, micros};
use crate::{
    clock::from_micros,
    store::{Renewal, Renewed, StoreError, renewed_each},
};

/// Renews all that can be. A node that does not answer, or is too slow, must not
/// cost the others what they got: the leases there run as before.
pub(super) async fn renew(
    shared: &Shared,
    renewals: &[Renewal],
) -> Result<Vec<Renewed>, StoreError> {
    let patience = patience(renewals);
    let answers = renewals
        .iter()
        .map(|renewal| renew_in(patience, shared, renewal));
    let answers = join_all(answers).await;
    renewed_each(answers)
}

/// Shorter than a renewer's own, which is a third of a lease: past that the
/// answers of all are lost. A lease that is alone costs nobody anything.
fn patience(renewals: &[Renewal]) -> Duration {
    let shortest = renewals.iter().map(|renewal| renewal.lease).min();
    match renewals {
        [] | [_] => Duration::MAX,
        _ => shortest.unwrap_or_default() / 4,
    }
}

async fn renew_in(
    patience: Duration,
    shared: &Shared,
    renewal: &Renewal,
) -> Result<Renewed, StoreError> {
    let renewed = timeout(patience, renew_one(shared, renewal)).await;
    let too_slow = |elapsed| Err(StoreError::unavailable(shared.scripts.renew.what, elapsed));
    renewed.unwrap_or_else(too_slow)
}

async fn renew_one(shared: &Shared, renewal: &Renewal) -> Result<Renewed, StoreError> {
    let renewed = shared
        .call(&shared.scripts.renew, renewal.key, |call| {
            call.arg(renewal.token.as_bytes())
                .arg(micros(renewal.lease))
                .arg(u8::from(renewal.confirmed))
        })
        .await?;
    match renewed {
        Value::Int(until) => Ok(Renewed::Until(from_micros(until))),
        _ => Ok(Renewed::Lost),
    }
}
