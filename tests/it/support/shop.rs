//! One process of a service: a layer over a store, in front of [`Work`].

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, body::Body};
use axum_idempotency::{
    IdempotencyLayer, IdempotencyLayerBuilder, Policy, PolicyBuilder, PrincipalSource,
};
use http::{Method, Request};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{Ask, Backend, Fault, FaultyArchive, FaultyStore, Verb, Work};

/// How requests reach the service.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    /// Through a socket, as a client's do.
    Tcp(SocketAddr),
    /// Straight into the router, for tests with a paused clock, which a socket
    /// would let run.
    Memory(Router),
}

/// A running service.
#[derive(Debug)]
pub(crate) struct Shop {
    pub work: Work,
    pub store: FaultyStore,
    pub archive: FaultyArchive,
    pub layer: IdempotencyLayer,
    line: Line,
    server: Option<JoinHandle<()>>,
}

impl Shop {
    /// A request from alice.
    pub(crate) fn post(&self, path: &str) -> Ask {
        self.request(Method::POST, path)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> Ask {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).expect("a test's path is one");
        Ask::new(self.line.clone(), request)
    }

    /// As if its process had stopped: no lease of it is renewed any more.
    pub(crate) fn loses_its_leases(&self) {
        self.store.always(Verb::Renew, Fault::Hangs);
    }

    /// How requests reach the service.
    #[cfg(feature = "client")]
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Where the service listens.
    pub(crate) fn address(&self) -> SocketAddr {
        match self.line {
            Line::Tcp(address) => address,
            Line::Memory(_) => panic!("a service in memory has no address"),
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

type Around = Box<dyn FnOnce(Router) -> Router>;
type Routes = Box<dyn FnOnce(&Work, &IdempotencyLayer) -> Router>;

/// What a [`Shop`] is made of, before it opens.
#[must_use]
pub(crate) struct Opening {
    store: FaultyStore,
    archive: Option<FaultyArchive>,
    work: Work,
    policy: PolicyBuilder,
    layer: Box<dyn FnOnce(IdempotencyLayerBuilder) -> IdempotencyLayerBuilder>,
    routes: Routes,
    outside: Around,
}

impl Backend {
    /// Another process over this store and archive: bearer tokens, charges,
    /// and the defaults of the policy.
    pub(crate) fn shop(&self) -> Opening {
        Opening {
            store: self.process(),
            archive: Some(self.archive()),
            work: Work::charging(),
            policy: Policy::builder(PrincipalSource::bearer()),
            layer: Box::new(|layer| layer),
            routes: Box::new(|work, layer| work.router().layer(layer.clone())),
            outside: Box::new(|router| router),
        }
    }
}

impl Opening {
    pub(crate) fn policy(mut self, change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Self {
        self.policy = change(self.policy);
        self
    }

    /// A policy that begins with another principal.
    pub(crate) fn principal(mut self, source: PrincipalSource) -> Self {
        self.policy = Policy::builder(source);
        self
    }

    pub(crate) fn layer(
        mut self,
        change: impl FnOnce(IdempotencyLayerBuilder) -> IdempotencyLayerBuilder + 'static,
    ) -> Self {
        self.layer = Box::new(change);
        self
    }

    pub(crate) fn work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    pub(crate) fn over(mut self, store: FaultyStore) -> Self {
        self.store = store;
        self
    }

    pub(crate) fn archive(mut self, archive: FaultyArchive) -> Self {
        self.archive = Some(archive);
        self
    }

    pub(crate) fn without_archive(mut self) -> Self {
        self.archive = None;
        self
    }

    /// Other routes than "everything, behind the layer".
    pub(crate) fn routes(
        mut self,
        routes: impl FnOnce(&Work, &IdempotencyLayer) -> Router + 'static,
    ) -> Self {
        self.routes = Box::new(routes);
        self
    }

    /// What stands between the client and the layer.
    pub(crate) fn outside(mut self, outside: impl FnOnce(Router) -> Router + 'static) -> Self {
        self.outside = Box::new(outside);
        self
    }

    /// Serves on a port of its own.
    pub(crate) async fn open(self) -> Shop {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let (mut shop, router) = self.assemble();
        shop.line = Line::Tcp(address);
        shop.server = Some(tokio::spawn(async move {
            let served = axum::serve(listener, router).await;
            served.expect("the server runs until the test ends");
        }));
        shop
    }

    /// Serves without a socket.
    pub(crate) fn in_memory(self) -> Shop {
        let (mut shop, router) = self.assemble();
        shop.line = Line::Memory(router);
        shop
    }

    fn assemble(self) -> (Shop, Router) {
        let policy = self.policy.build().expect("the test's policy can work");
        let store = Arc::new(self.store.clone());
        let mut layer = IdempotencyLayer::builder_dyn(store).policy(policy);
        let archive = self.archive.clone();
        if let Some(archive) = self.archive {
            layer = layer.archive(archive);
        }
        let layer = (self.layer)(layer).build();
        let layer = layer.expect("the test's layer can work");
        let router = (self.outside)((self.routes)(&self.work, &layer));
        let shop = Shop {
            work: self.work,
            store: self.store,
            archive: archive.unwrap_or_else(|| Backend::memory().archive()),
            layer,
            line: Line::Memory(Router::new()),
            server: None,
        };
        (shop, router)
    }
}
