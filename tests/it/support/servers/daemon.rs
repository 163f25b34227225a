//! A process that does not outlive the test binary.

use std::{
    ffi::OsStr,
    fs::File,
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
};

use super::{home::Home, processes::signal};

pub(crate) struct Daemon {
    process: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts a program in a home; what it says goes into a log there.
    pub(crate) fn start<A: AsRef<OsStr>>(
        home: &Home,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let log = home.path().join("server.log");
        let output = File::create(&log).expect("a log");
        let process = home
            .command("/bin/sh")
            .args(["-c", LEASHED])
            .args([home.path(), program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone().expect("a log"))
            .stderr(output)
            // Ctrl-C is for the tests; the server goes when they have gone.
            .process_group(0)
            .spawn()
            .expect("the server starts");
        Self { process, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// How it has ended, if it has.
    pub(crate) fn exit(&mut self) -> Option<ExitStatus> {
        let exit = self.process.try_wait().expect("a child");
        if exit.is_some() {
            self.gone();
        }
        exit
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it by a signal.
    pub(crate) fn end(mut self, name: &str) {
        signal(name, &[self.id()]);
        self.gone();
    }

    /// Waits for its end.
    pub(crate) fn gone(&mut self) {
        // To wait for a child closes its standard input, which must not look
        // like the end of the tests: the id is not this server's for long.
        let leash = self.process.stdin.take();
        self.process.wait().expect("a child");
        if let Some(mut leash) = leash {
            let _cut_already = leash.write_all(b"gone\n");
        }
    }
}

/// Runs the program, and beside it, as nobody's child, who waits for the end of
/// the standard input. Then the tests have ended without ending the server, so
/// it is ended, also while it is paused, and its files go. A line instead tells
/// that the server has ended.
const LEASHED: &str = r#"
children() {
    grep -ls "^PPid:.$$\$" /proc/[0-9]*/status | cut -d/ -f3
}
leash() {
    read -r _ <&3 && exit
    kill -CONT $$ $(children)
    kill -QUIT $$
    for _ in 1 2 3 4 5; do
        sleep 1
        kill -0 $$ || break
    done
    kill -KILL $$ $(children)
    rm -rf "$0"
}
( leash & ) 3<&0
exec "$@" </dev/null
"#;
