//! Where the programs of the servers are.

use std::{
    cmp::Reverse,
    env, fs,
    path::{Path, PathBuf},
};

/// One that has to be there.
pub(crate) fn find(name: &str) -> PathBuf {
    look_for(name)
        .unwrap_or_else(|| panic!("{name} is missing: tests/run.sh installs it or says what to"))
}

/// The first of this name on the path and where Debian keeps servers.
pub(crate) fn look_for(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path).collect();
    folders.extend(postgresql_folders());
    folders.push("/usr/sbin".into());
    let mut programs = folders.iter().map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}

/// Debian's, the newest version first.
fn postgresql_folders() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<_> = versions.flatten().map(|version| version.path()).collect();
    versions.sort_by_key(|version| Reverse(number(version)));
    versions.iter().map(|version| version.join("bin")).collect()
}

fn number(version: &Path) -> Option<u32> {
    version.file_name()?.to_str()?.parse().ok()
}
