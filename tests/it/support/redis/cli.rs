//! The client that comes with a server.

use std::{ffi::OsStr, path::Path, process::Stdio};

use tokio::process::Command;

/// What it prints, without the end of the last line. Otherwise the result is
/// what it complains about, an error of the server's among it.
pub(super) async fn run<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, String> {
    let run = Command::new(program)
        .args(arguments)
        .env_remove("REDISCLI_AUTH")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = run.await.expect("the client of a server runs");
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(said.strip_suffix('\n').unwrap_or(&said).to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{said}{complaint}"))
}
