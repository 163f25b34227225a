//! The scripts, one for each call: what one does, no other client sees half done.

use redis::Script;

/// A script, and what is to know about it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) script: Script,
    /// What it does, for an error's text.
    pub(super) what: &'static str,
    /// Whether it may be run again when it is unknown whether it was run: a
    /// repetition changes nothing and is answered the same.
    pub(super) is_repeatable: bool,
}

impl Call {
    fn new(what: &'static str, code: &str) -> Self {
        Self {
            script: Script::new(code),
            what,
            is_repeatable: true,
        }
    }

    fn once(self) -> Self {
        Self {
            is_repeatable: false,
            ..self
        }
    }
}

/// A script of this folder, behind what all share.
macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("lua/record.lua"),
            include_str!(concat!("lua/", $name, ".lua")),
        )
    };
}

/// The same for one that adds no record: also a server without room has to take
/// it, or what ran could not be recorded.
macro_rules! script_without_room {
    ($name:literal) => {
        concat!("#!lua flags=allow-oom\n", script!($name))
    };
}

#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Call,
    pub(super) complete: Call,
    pub(super) release: Call,
    pub(super) renew: Call,
    pub(super) get: Call,
    pub(super) amend: Call,
    pub(super) expired: Call,
    pub(super) inspect: Call,
    pub(super) erase: Call,
    pub(super) ttls: Call,
    pub(super) remove: Call,
    pub(super) publish_ttl: Call,
    pub(super) now: Call,
    pub(super) probe: Call,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Call::new("claiming a key", script!("claim")),
            complete: Call::new("completing a record", script_without_room!("complete")),
            release: Call::new("releasing a record", script_without_room!("release")).once(),
            renew: Call::new("renewing a lease", script_without_room!("renew")),
            get: Call::new("reading a record", script_without_room!("get")),
            amend: Call::new("amending a record", script_without_room!("amend")).once(),
            expired: Call::new(
                "looking for expired records",
                script_without_room!("expired"),
            ),
            inspect: Call::new(
                "reading a record for an operator",
                script_without_room!("inspect"),
            ),
            erase: Call::new("erasing an answer", script_without_room!("erase")).once(),
            ttls: Call::new("reading the TTLs in force", script_without_room!("ttls")),
            remove: Call::new("removing a record", script_without_room!("remove")),
            publish_ttl: Call::new(
                "publishing the TTLs in force",
                script_without_room!("publish_ttl"),
            ),
            now: Call::new("reading the clock", script_without_room!("now")),
            probe: Call::new("trying the scripts", script_without_room!("probe")),
        }
    }
}
