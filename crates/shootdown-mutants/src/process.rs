//! Runs a program until it ends or its time is up, with its output.

use crate::tool::Program;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Status(i32),
    /// By a signal.
    Signal(i32),
    /// Not in time.
    Late,
}

/// Runs a program in its folder; what it prints goes through the file `scratch`.
///
/// # Errors
/// When it cannot be started or waited for.
pub fn run(
    program: &Program,
    arguments: &[String],
    env: &[(&str, String)],
    scratch: &Path,
    most: Duration,
) -> Result<(Ended, String), String> {
    let shown = program.path.display();
    let cannot = |error: std::io::Error| format!("cannot run {shown}: {error}");
    let out = std::fs::File::create(scratch).map_err(|error| format!("cannot write {}: {error}", scratch.display()))?;
    let mut command = Command::new(&program.path);
    command
        .args(arguments)
        .current_dir(&program.folder)
        .stdin(Stdio::null());
    command.stderr(out.try_clone().map_err(cannot)?).stdout(out);
    // Variables that cargo sets, and that a test may read.
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    let mut child = command.spawn().map_err(cannot)?;
    let end = Instant::now() + most;
    let mut pause = Duration::from_micros(500);
    let ended = loop {
        match child.try_wait().map_err(cannot)? {
            Some(status) => break of(status),
            None if Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                break Ended::Late;
            }
            None => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    let text = std::fs::read(scratch).map_err(|error| format!("cannot read {}: {error}", scratch.display()))?;
    Ok((ended, String::from_utf8_lossy(&text).into_owned()))
}

fn of(status: std::process::ExitStatus) -> Ended {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Ended::Signal(signal);
    }
    Ended::Status(status.code().unwrap_or(-1))
}
