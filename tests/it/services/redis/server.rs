//! What the tests of services want of a Redis server beyond the ordinary.

use crate::{services::until, support::redis::Server};

/// What it has acknowledged survives a crash.
pub(super) async fn durable() -> Server {
    Server::with(&["--appendonly", "yes", "--appendfsync", "always"]).await
}

/// Lets pass the minute for which Redis keeps a completed record after it has
/// expired, and waits until at least one was dropped.
pub(in crate::services) async fn has_dropped_one(server: &Server) {
    until("a completed record has expired", async || {
        let dropped = server.cli(&["EVAL", DROP_EXPIRED, "0"]).await;
        (dropped != "0").then_some(())
    })
    .await;
}

/// Loses all, as a server without persistence does when it is restarted.
pub(super) async fn lose_everything(server: &Server) {
    server.cli(&["FLUSHALL"]).await;
}

/// Whether a completed record holds the text.
pub(in crate::services) async fn holds(server: &Server, text: &str) -> bool {
    !record_of(server, text).await.is_empty()
}

/// The name of the completed record that holds the text; empty where none does.
pub(super) async fn record_of(server: &Server, text: &str) -> String {
    server.cli(&["EVAL", RECORD_OF, "0", text]).await
}

/// In progress a record is a hash, completed a string.
const DROP_EXPIRED: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local dropped = 0
for _, key in ipairs(redis.call('KEYS', 'idem:v1:*')) do
  local is_completed = redis.call('TYPE', key).ok == 'string'
  if is_completed and redis.call('PEXPIRETIME', key) - 60000 < now then
    dropped = dropped + redis.call('DEL', key)
  end
end
return dropped
";

const RECORD_OF: &str = r"
for _, key in ipairs(redis.call('KEYS', 'idem:v1:*')) do
  local is_completed = redis.call('TYPE', key).ok == 'string'
  if is_completed and redis.call('GET', key):find(ARGV[1], 1, true) then
    return key
  end
end
return ''
";
