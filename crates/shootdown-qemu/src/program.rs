//! Runs another program until it ends, or until the user stops it: then it is killed with all its children.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Why a program gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDone {
    /// The user stopped it.
    Stopped,
    /// The error and the remedy.
    Failed(String),
}

impl From<String> for NotDone {
    fn from(why: String) -> NotDone {
        NotDone::Failed(why)
    }
}

impl From<NotDone> for String {
    fn from(what: NotDone) -> String {
        match what {
            NotDone::Stopped => "stopped".into(),
            NotDone::Failed(why) => why,
        }
    }
}

/// How often `stop` is read.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs `command` to its end and returns its status and standard error. Discards its standard output.
///
/// The program gets a process group of its own. When `stop` is set, the whole group is killed.
///
/// # Errors
/// When it cannot be started, and [`NotDone::Stopped`].
pub fn run(command: &mut Command, stop: &AtomicBool) -> Result<(ExitStatus, String), NotDone> {
    let name = command.get_program().to_string_lossy().into_owned();
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let cannot = |error: std::io::Error| NotDone::Failed(format!("{name} cannot be run ({error})"));
    let mut child = command.spawn().map_err(cannot)?;
    let mut pipe = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let status = loop {
        // Relaxed: the flag carries no other data.
        if stop.load(Ordering::Relaxed) {
            kill(&mut child);
            return Err(NotDone::Stopped);
        }
        match child.try_wait().map_err(cannot)? {
            Some(status) => break status,
            None => std::thread::sleep(PAUSE),
        }
    };
    Ok((status, reader.join().unwrap_or_default()))
}

/// Kills the program and its children.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Instant;

    #[test]
    fn stop_kills_the_program_and_its_children() {
        let folder = std::env::temp_dir().join(format!("shootdown-qemu-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (stop, pid) = (AtomicBool::new(false), folder.join("pid"));
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 600 & echo $! > pid.tmp; mv pid.tmp pid; wait"])
            .current_dir(&folder);
        let begun = Instant::now();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !pid.exists() && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(PAUSE);
                }
                stop.store(true, Ordering::Relaxed);
            });
            run(&mut command, &stop)
        });
        assert_eq!(outcome, Err(NotDone::Stopped));
        assert!(begun.elapsed() < Duration::from_secs(60));
        let child = std::fs::read_to_string(&pid).unwrap();
        let ended = || match std::fs::read_to_string(Path::new("/proc").join(child.trim()).join("stat")) {
            // Its status may not have been collected yet.
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        while !ended() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(PAUSE);
        }
        assert!(ended(), "the child {} goes on", child.trim());
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn run_returns_status_and_stderr() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo complaint >&2; exit 3"]);
        let (status, stderr) = run(&mut command, &AtomicBool::new(false)).unwrap();
        assert_eq!((status.code(), stderr.as_str()), (Some(3), "complaint\n"));
        let missing = run(&mut Command::new("no-such-program"), &AtomicBool::new(false));
        assert!(matches!(missing, Err(NotDone::Failed(why)) if why.starts_with("no-such-program cannot be run")));
    }
}
