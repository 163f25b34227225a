//! A directory for a server, and whom it runs as.

use std::{
    env, fs,
    os::unix::{
        fs::{MetadataExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A directory that ends with the value and belongs to whoever runs the
/// server: PostgreSQL and PgBouncer refuse to run as root, so as root they run
/// as an ordinary user of the system.
pub(crate) struct Home {
    dir: TempDir,
    account: Option<Account>,
}

impl Home {
    pub(crate) fn new() -> Self {
        let ours = temporary_in(&env::temp_dir());
        let is_root = fs::metadata(ours.path()).expect("a directory").uid() == 0;
        if !is_root {
            return Self {
                dir: ours,
                account: None,
            };
        }
        // What TMPDIR names for root, others may not reach.
        let dir = temporary_in(Path::new("/tmp"));
        let account = Account::of_a_server();
        account.take_over(dir.path());
        Self {
            dir,
            account: Some(account),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file that the server reads.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let file = self.path().join(name);
        fs::write(&file, content).expect("a file");
        if let Some(account) = self.account {
            account.take_over(&file);
        }
        file
    }

    /// A program that runs here, as whoever runs the server.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.path());
        if let Some(account) = self.account {
            command.uid(account.user).gid(account.group);
        }
        command
    }
}

#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// PostgreSQL's own, or the one that every system has.
    fn of_a_server() -> Self {
        let users = fs::read_to_string("/etc/passwd").expect("the users of the system");
        let of_name = |name| users.lines().find_map(|line| Self::of_line(line, name));
        let account = of_name("postgres").or_else(|| of_name("nobody"));
        account.expect("a user postgres or nobody")
    }

    /// A line is `name:password:user:group:...`.
    fn of_line(line: &str, name: &str) -> Option<Self> {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let mut numbers = fields.skip(1).map_while(|field| field.parse().ok());
        Some(Self {
            user: numbers.next()?,
            group: numbers.next()?,
        })
    }

    fn take_over(self, path: &Path) {
        chown(path, Some(self.user), Some(self.group)).expect("root may give files away");
    }
}

fn temporary_in(parent: &Path) -> TempDir {
    let named = tempfile::Builder::new()
        .prefix("axum-idempotency-")
        .tempdir_in(parent);
    named.expect("a directory for temporary files")
}
