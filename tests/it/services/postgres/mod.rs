//! What can happen between the services and a PostgreSQL server: it crashes, it
//! falls silent, connections break in the worst moment; and the services
//! themselves die.

mod archives;
mod broken_connections;
mod crashes;
mod load;
mod locks;
mod lost_answers;
mod runbook;
mod settings;
mod silence;
mod watched;
mod worker;

use super::{Service, Site};

/// Two processes of one site.
async fn two(site: &Site) -> (Service, Service) {
    tokio::join!(site.testbed(), site.testbed())
}
