//! The scripts, one for each call: what one does, no other client sees half done.

use redis::Script;

/// A script of this folder, behind what all share.
macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("lua/record.lua"),
            include_str!(concat!("lua/", $name, ".lua")),
        ))
    };
}

/// The same for a script that only changes what is there: also a server without
/// room has to take it, or what ran could not be recorded.
macro_rules! script_without_room {
    ($name:literal) => {
        Script::new(concat!(
            "#!lua flags=allow-oom\n",
            include_str!("lua/record.lua"),
            include_str!(concat!("lua/", $name, ".lua")),
        ))
    };
}

#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) complete: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) get: Script,
    pub(super) amend: Script,
    pub(super) expired: Script,
    pub(super) remove: Script,
    pub(super) publish_ttl: Script,
    pub(super) now: Script,
    pub(super) probe: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: script!("claim"),
            complete: script_without_room!("complete"),
            release: script_without_room!("release"),
            renew: script_without_room!("renew"),
            get: script_without_room!("get"),
            amend: script_without_room!("amend"),
            expired: script_without_room!("expired"),
            remove: script_without_room!("remove"),
            publish_ttl: script_without_room!("publish_ttl"),
            now: script_without_room!("now"),
            probe: script_without_room!("probe"),
        }
    }
}
