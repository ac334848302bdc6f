//! How long a recording lasts, and the counter that is shown meanwhile.

use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process};

use super::stream::Live;
use crate::print::number;

/// Interval between two checks; the end of a command is noticed at once.
const LOOK: Duration = Duration::from_millis(200);

/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// The recorded processes.
pub(super) enum Target {
    /// A command that we started.
    Command {
        process: u32,
        /// Its status, once it has ended, and how long it took.
        ended: Receiver<(io::Result<ExitStatus>, Duration)>,
    },
    /// A process that already existed.
    Process(u32),
    /// All processes.
    System,
}

impl Target {
    /// A command: a thread waits for it.
    pub(super) fn command(mut child: Child) -> Target {
        let (send, ended) = channel();
        let (process, begun) = (child.id(), Instant::now());
        thread::spawn(move || {
            let status = child.wait();
            send.send((status, begun.elapsed()))
        });
        Target::Command { process, ended }
    }
}

/// How a recording ended.
#[derive(Debug)]
pub(super) enum End {
    /// The command ended, this long after it began.
    Command(io::Result<ExitStatus>, Duration),
    /// The process is gone.
    Gone,
    /// The time is up.
    Time,
    /// Ctrl-C, if that is the normal end.
    Stopped,
    /// Ctrl-C, before the command or the time had ended.
    Interrupted,
    /// The reader ended: no disk space, or an error.
    Reader,
}

impl End {
    /// Whether it ended prematurely.
    pub(super) fn early(&self) -> bool {
        matches!(self, End::Interrupted | End::Reader)
    }

    /// How long the command took, if it ended.
    pub(super) fn command_seconds(&self) -> Option<f64> {
        match self {
            End::Command(_, took) => Some(took.as_secs_f64()),
            _ => None,
        }
    }

    /// Notes for the user.
    pub(super) fn line(&self) -> Option<String> {
        match self {
            End::Command(Ok(status), _) if status.success() => None,
            End::Command(Ok(status), _) => Some(format!("the command ended with {status}; its recording is whole")),
            End::Command(Err(error), _) => Some(format!("the command could not be waited for: {error}")),
            End::Interrupted => Some("interrupted: the recording up to here is kept, marked incomplete".into()),
            End::Gone | End::Time | End::Stopped | End::Reader => None,
        }
    }
}

/// Waits for the end. A command that is still running then continues if the time was up or the disk is full, and is
/// terminated after Ctrl-C.
pub(super) fn until_end(
    target: Target,
    seconds: Option<f64>,
    stop: &AtomicBool,
    live: &Live,
    reader_ended: impl Fn() -> bool,
) -> End {
    let counter = counter();
    let begun = Instant::now();
    let limit = seconds.map(Duration::from_secs_f64);
    let end = loop {
        let elapsed = begun.elapsed();
        if stop.load(Ordering::Relaxed) {
            break match target {
                Target::Command { .. } => End::Interrupted,
                _ if limit.is_some() => End::Interrupted,
                _ => End::Stopped,
            };
        }
        if live.full.load(Ordering::Relaxed) || reader_ended() {
            break End::Reader;
        }
        if limit.is_some_and(|limit| elapsed >= limit) {
            break End::Time;
        }
        let look = limit.map_or(LOOK, |limit| LOOK.min(limit - elapsed));
        match &target {
            Target::Command { ended, .. } => match ended.recv_timeout(look) {
                Ok((status, took)) => break End::Command(status, took),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break End::Gone,
            },
            Target::Process(process) if !Path::new(&format!("/proc/{process}")).exists() => break End::Gone,
            _ => thread::sleep(look),
        }
        show(&counter, live, elapsed);
    };
    counter.finish_and_clear();
    if let (End::Interrupted, Target::Command { process, ended }) = (&end, &target) {
        // At a terminal Ctrl-C went to the command as well; otherwise it is signalled here.
        if let Some(process) = Pid::from_raw(*process as i32) {
            let _ = kill_process(process, Signal::TERM);
        }
        let _ = ended.recv_timeout(GRACE);
    }
    end
}

fn counter() -> ProgressBar {
    let counter = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} recording: {msg}") {
        counter.set_style(style);
    }
    counter
}

fn show(counter: &ProgressBar, live: &Live, elapsed: Duration) {
    counter.set_message(format!(
        "{:.0} s, {} events, {} shootdown requests",
        elapsed.as_secs_f64(),
        number::short_count(live.events.load(Ordering::Relaxed) as f64),
        number::short_count(live.shootdowns.load(Ordering::Relaxed) as f64)
    ));
    counter.tick();
}
