//! What an attempt may ask while its handler runs.

use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use http::Response;

use super::Setup;
use crate::{
    handler::Host,
    identity::StoreIdentity,
    record::{Completion, OwnerToken},
};

#[async_trait]
impl Host for Setup {
    fn store(&self) -> StoreIdentity {
        self.handle.store.identity()
    }

    fn lease(&self) -> Duration {
        self.policy.lease
    }

    fn lease_left(&self, token: OwnerToken) -> Duration {
        self.handle.leases.left(token)
    }

    fn ending(&self, token: OwnerToken, is_ending: bool) {
        self.handle.leases.ending(token, is_ending);
    }

    fn forgets(&self, response: &Response<Body>) -> bool {
        Self::forgets(self, response)
    }

    async fn completion(&self, response: Response<Body>) -> (Completion, Response<Body>) {
        Self::completion(self, response).await
    }
}
