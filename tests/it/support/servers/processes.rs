//! The processes of a server, looked up and signalled by their ids.

use std::{
    fs,
    process::{Command, Stdio},
};

/// Sends a signal, such as `KILL`, to processes, of which some may be gone.
pub(crate) fn signal(name: &str, processes: &[u32]) {
    let kill = format!("kill -{name} \"$@\"");
    let sent = Command::new("sh")
        .args(["-c", &kill, "kill"])
        .args(processes.iter().map(u32::to_string))
        .stderr(Stdio::null())
        .status();
    sent.expect("a shell");
}

pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("the processes of a Linux system");
    let ids = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| Stat::of(*id).is_some_and(|stat| stat.parent == parent))
        .collect()
}

/// Whether it has ended. Its parent may not have asked how.
pub(crate) fn is_gone(process: u32) -> bool {
    Stat::of(process).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'))
}

/// Whether SIGSTOP has reached it, or it has ended.
pub(crate) fn is_stopped(process: u32) -> bool {
    is_gone(process) || Stat::of(process).is_some_and(|stat| stat.state == 'T')
}

/// What the kernel says about a process.
struct Stat {
    state: char,
    parent: u32,
}

impl Stat {
    fn of(process: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // `1 (name) S 0 ...`, where the name may contain anything.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }
}
