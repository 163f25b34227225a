//! A place of a test's own in the server that is there for all tests.

use uuid::Uuid;

use super::{address::Address, admin, server_url};

/// An empty schema, dropped with all that is in it when the value is dropped;
/// connections that were made with its URL are ended then.
///
/// The URL names the schema as the only one on the search path, so that a test
/// need not know of it. That is a startup option, which a connection pooler
/// does not pass on: behind one, use a [`Database`].
#[derive(Debug)]
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    pub(crate) fn new() -> Self {
        let name = unique_name();
        let made = admin::run(format!("CREATE SCHEMA {name}"));
        made.expect("whom DATABASE_URL names may create schemas");
        Self { name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        let address = Address::parse(&server_url())
            .with_parameter("application_name", &self.name)
            .with_parameter("options", &format!("-csearch_path%3D{}", self.name));
        address.to_string()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // A transaction that a test left open would hold its locks: so those
        // connections end first, as with DROP DATABASE ... WITH (FORCE).
        let name = &self.name;
        complain(admin::run(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = '{name}'; DROP SCHEMA {name} CASCADE"
        )));
    }
}

/// An empty database, dropped when the value is dropped, whoever is connected.
#[derive(Debug)]
pub(crate) struct Database {
    name: String,
}

impl Database {
    pub(crate) fn new() -> Self {
        let name = unique_name();
        // Unlike template1, template0 has nobody connected to it.
        let made = admin::run(format!("CREATE DATABASE {name} TEMPLATE template0"));
        made.expect("whom DATABASE_URL names may create databases");
        Self { name }
    }

    /// Sets a parameter for all connections made from here on.
    pub(crate) fn with(self, parameter: &str, value: &str) -> Self {
        let name = &self.name;
        let set = admin::run(format!("ALTER DATABASE {name} SET {parameter} = '{value}'"));
        set.expect("a parameter of PostgreSQL");
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        let address = Address {
            database: self.name.clone(),
            ..Address::parse(&server_url())
        };
        address.to_string()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = &self.name;
        complain(admin::run(format!("DROP DATABASE {name} WITH (FORCE)")));
    }
}

/// Begins alike everywhere, so that what a killed test left in a server that
/// lives on can be found.
fn unique_name() -> String {
    format!("axum_idempotency_test_{}", Uuid::new_v4().simple())
}

/// Fails the test, unless it is failing already.
fn complain(dropped: sqlx::Result<()>) {
    match dropped {
        Err(error) if std::thread::panicking() => eprintln!("left behind: {error}"),
        dropped => dropped.expect("what the test made can be dropped"),
    }
}
