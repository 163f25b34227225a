//! What is special about the services on Redis: its server crashes, forgets,
//! may evict, is a cluster; and where the services' own tables are.

mod archives;
mod charges;
mod cluster;
mod crashes;
mod failover;
mod load;
mod losses;
mod seen;
mod server;
mod settings;
mod write_through;

pub(super) use self::server::{has_dropped_one, holds};

use super::Site;
use crate::support::redis::Server;

/// Over a server of the test's own, with an archive in SQLite.
fn over(server: &Server) -> Site {
    Site::over(server.url()).set("ARCHIVE_URL", "sqlite:archive.db")
}
