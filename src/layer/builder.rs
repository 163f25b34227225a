//! The layer: a store, an archive and a policy, put in front of a service.

use std::{
    error::Error,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::body::Body;
use http::Response;
use tower_layer::Layer;

use super::{problem::Problems, service::IdempotencyService};
use crate::{
    archive::Archive,
    archivist::Archivist,
    claim::ArchiveLookup,
    flights::WaiterCaps,
    flow::Setup,
    handle::StoreHandle,
    policy::{ConfigError, Policy},
    record::{Completion, ResourceId},
    rejection::Rejection,
    scope::{ScopeSecret, ScopedKey},
    store::{Keeps, Store, StoreError},
    sweep::Sweeper,
};

/// Makes the requests of a router safe to repeat.
///
/// Cheap to clone. One layer per store; routes that want other rules take
/// [`IdempotencyLayer::with_policy`]. Layers over one store share what is in
/// flight in this process.
///
/// Place it inside the layer that authenticates, so that a repeat is
/// authorised again, and inside compression and CORS, which belong to each
/// client. See the [crate documentation](crate).
#[derive(Clone, Debug)]
pub struct IdempotencyLayer {
    setup: Arc<Setup>,
    problems: Arc<Problems>,
}

impl IdempotencyLayer {
    /// Starts a layer over a store.
    pub fn builder(store: impl Store) -> IdempotencyLayerBuilder {
        Self::builder_dyn(Arc::new(store))
    }

    /// Starts a layer over a store that is chosen at run time.
    pub fn builder_dyn(store: Arc<dyn Store>) -> IdempotencyLayerBuilder {
        IdempotencyLayerBuilder {
            store,
            archive: None,
            policy: None,
            secret: None,
            waiter_caps: WaiterCaps {
                per_key: DEFAULT_WAITERS_PER_KEY,
                total: DEFAULT_WAITERS,
            },
            problem_type_base: None,
            documentation: None,
            render: None,
        }
    }

    /// The same layer with other rules, for the routes that want them.
    ///
    /// # Errors
    ///
    /// [`ConfigError::ArchiveMissing`] when the policy needs an archive and
    /// this layer has none; [`ConfigError::StoreEvicts`] when the store needs
    /// one that is asked for all keys.
    pub fn with_policy(&self, policy: Policy) -> Result<Self, ConfigError> {
        Self::assemble(
            Setup {
                policy,
                handle: Arc::clone(&self.setup.handle),
                archive: self.setup.archive.clone(),
                archivist: self.setup.archivist.clone(),
                secret: self.setup.secret.clone(),
                waiter_caps: self.setup.waiter_caps,
            },
            Arc::clone(&self.problems),
        )
    }

    pub(crate) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// The answer that stands for a rejection.
    pub(crate) fn render(&self, rejection: &Rejection) -> Response<Body> {
        self.problems.render(rejection)
    }

    /// The rules of this layer.
    pub fn policy(&self) -> &Policy {
        &self.setup.policy
    }

    /// Records an outcome that was learned later, for an attempt that left
    /// none: on the live record whose lease has lapsed, else on the archived
    /// one of status 0. A retry then gets `idempotency_response_not_kept` (or
    /// `idempotency_key_expired`) with this status and resource id.
    ///
    /// False when there is no record without an outcome.
    ///
    /// # Errors
    ///
    /// That of the store or the archive.
    pub async fn settle(
        &self,
        key: ScopedKey,
        status: http::StatusCode,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError> {
        let status = status.as_u16();
        let completion = Completion {
            status,
            resource_id: resource_id.clone(),
            response: None,
        };
        self.setup.archive_lapsed(key, &completion).await?;
        if self.setup.handle.store.amend(key, completion).await? {
            return Ok(true);
        }
        match &self.setup.archive {
            Some(archive) => archive.amend(key, status, resource_id).await,
            None => Ok(false),
        }
    }

    /// How many requests this process has run without protection, under
    /// [`StoreDown::Open`](crate::StoreDown::Open), over this layer's store.
    pub fn unprotected_runs(&self) -> u64 {
        self.setup.handle.unprotected.load(Ordering::Relaxed)
    }

    /// A sweeper over this layer's store, into its archive. It prepares the
    /// archive for the longest TTL of all policies that share the store by now.
    pub fn sweeper(&self) -> Sweeper {
        let handle = &self.setup.handle;
        let sweeper = Sweeper::new_dyn(Arc::clone(&handle.store));
        let sweeper = match handle.ttls.largest() {
            Some(ttl) => sweeper.longest_ttl(ttl),
            None => sweeper,
        };
        match &self.setup.archive {
            Some(archive) => sweeper.archive_dyn(Arc::clone(archive)),
            None => sweeper,
        }
    }

    /// Ends the layer's work after the server has stopped accepting: waits for
    /// handlers, then for what the store still has to hear, then closes the
    /// store. Ends for all layers over the store.
    ///
    /// ```no_run
    /// # async fn serve(
    /// #     listener: tokio::net::TcpListener,
    /// #     app: axum::Router,
    /// #     stop: impl Future<Output = ()> + Send + 'static,
    /// #     idempotency: axum_idempotency::IdempotencyLayer,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let sweeper = idempotency.sweeper().start();
    /// axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    /// sweeper.stop().await;
    /// idempotency.shutdown(std::time::Duration::from_secs(30)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShutdownTimedOut`] when something was still running at the deadline.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), ShutdownTimedOut> {
        if self.setup.handle.shut_down(deadline).await {
            Ok(())
        } else {
            Err(ShutdownTimedOut)
        }
    }

    fn assemble(setup: Setup, problems: Arc<Problems>) -> Result<Self, ConfigError> {
        let lookup = setup.policy.archive_lookup;
        if setup.archive.is_none() && lookup == ArchiveLookup::AllKeys {
            return Err(ConfigError::ArchiveMissing);
        }
        // Of a store that evicts, every key has to be asked for.
        let asks_for_all = setup.archive.is_some() && lookup != ArchiveLookup::TimestampedKeys;
        if setup.handle.store.keeps() == Keeps::UntilEvicted && !asks_for_all {
            return Err(ConfigError::StoreEvicts);
        }
        setup.handle.ttls.add(setup.policy.ttl);
        Ok(Self {
            setup: Arc::new(setup),
            problems,
        })
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.setup), Arc::clone(&self.problems))
    }
}

type RenderHook = dyn Fn(&Rejection) -> Option<Response<Body>> + Send + Sync;

/// Collects what an [`IdempotencyLayer`] works with.
#[must_use]
pub struct IdempotencyLayerBuilder {
    store: Arc<dyn Store>,
    archive: Option<Arc<dyn Archive>>,
    policy: Option<Policy>,
    secret: Option<ScopeSecret>,
    waiter_caps: WaiterCaps,
    problem_type_base: Option<String>,
    documentation: Option<String>,
    render: Option<Arc<RenderHook>>,
}

impl IdempotencyLayerBuilder {
    /// Where expired records go. Without one, an expired key is unknown and
    /// runs again.
    pub fn archive(self, archive: impl Archive) -> Self {
        self.archive_dyn(Arc::new(archive))
    }

    /// The same for an archive that is chosen at run time.
    pub fn archive_dyn(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archive = Some(archive);
        self
    }

    /// The rules. Required.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Makes scoped keys an HMAC under this secret, so that nobody who reads
    /// the table can check a guess. All processes over one store need the same
    /// one; with another, all keys are unknown. Default: none.
    pub fn scope_secret(mut self, secret: ScopeSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// How many duplicates may wait for one key, and in all, under
    /// [`InFlight::Wait`](crate::InFlight::Wait); past it they get the 409.
    /// Default: 64 and 1,024.
    pub fn waiter_caps(mut self, per_key: usize, total: usize) -> Self {
        self.waiter_caps = WaiterCaps { per_key, total };
        self
    }

    /// What precedes the slug in a problem's `type`, such as
    /// `https://api.example.com/problems/`. Default:
    /// `urn:axum-idempotency:problem:`.
    pub fn problem_type_base(mut self, base: impl Into<String>) -> Self {
        self.problem_type_base = Some(base.into());
        self
    }

    /// Where the API documents its keys: sent with every problem as
    /// `Link: <…>; rel="describedby"`. Default: none.
    pub fn documentation(mut self, url: impl Into<String>) -> Self {
        self.documentation = Some(url.into());
        self
    }

    /// Renders rejections in another form; `None` keeps the problem document.
    pub fn render(
        mut self,
        render: impl Fn(&Rejection) -> Option<Response<Body>> + Send + Sync + 'static,
    ) -> Self {
        self.render = Some(Arc::new(render));
        self
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// The first thing that is missing or cannot work; see [`ConfigError`].
    pub fn build(self) -> Result<IdempotencyLayer, ConfigError> {
        let policy = self.policy.ok_or(ConfigError::PolicyMissing)?;
        if self.secret.as_ref().is_some_and(ScopeSecret::is_empty) {
            return Err(ConfigError::EmptySecret);
        }
        let problems = Problems::new(
            self.problem_type_base,
            self.documentation.as_deref(),
            self.render,
        )?;
        if self.archive.is_none() {
            tracing::warn!("no archive: a retry after its key has expired runs again");
        }
        let archives_first = self.store.keeps() != Keeps::UntilSwept;
        let archive = self.archive.as_ref().filter(|_| archives_first);
        let archivist = archive.map(|archive| Arc::new(Archivist::new(Arc::clone(archive))));
        IdempotencyLayer::assemble(
            Setup {
                policy,
                handle: StoreHandle::of(self.store),
                archive: self.archive,
                archivist,
                secret: self.secret,
                waiter_caps: self.waiter_caps,
            },
            Arc::new(problems),
        )
    }
}

impl fmt::Debug for IdempotencyLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayerBuilder")
            .field("store", &self.store)
            .field("archive", &self.archive)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Something was still running when the deadline of
/// [`IdempotencyLayer::shutdown`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownTimedOut;

impl fmt::Display for ShutdownTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "requests were still running, or their outcome was not recorded, at the deadline",
        )
    }
}

impl Error for ShutdownTimedOut {}

const DEFAULT_WAITERS_PER_KEY: usize = 64;
const DEFAULT_WAITERS: usize = 1_024;
