//! Runs a program until it ends or its time is up.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Runs `command` with this process's output.
///
/// # Errors
/// When it cannot be started, fails, or still runs at `end` (it is then killed).
pub fn run(command: &mut Command, end: Instant) -> Result<(), String> {
    let mut child = start(command)?;
    success(wait(&mut child, end)?)
}

/// Runs `command`, with all its output in `log`.
///
/// # Errors
/// As [`run`]; also when `log` cannot be shared with it.
pub fn logged(command: &mut Command, log: &File, end: Instant) -> Result<(), String> {
    let copy = || {
        log.try_clone()
            .map_err(|error| format!("its output cannot be kept: {error}"))
    };
    run(command.stdout(copy()?).stderr(copy()?), end)
}

/// For commands that need the network: three attempts, ten seconds apart, until `end`.
///
/// # Errors
/// That of the last attempt.
pub fn patiently<T>(end: Instant, mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    for _ in 0..2 {
        let outcome = attempt();
        if outcome.is_ok() || Instant::now() + PAUSE >= end {
            return outcome;
        }
        std::thread::sleep(PAUSE);
    }
    attempt()
}

const PAUSE: Duration = Duration::from_secs(10);

/// Runs `command` and gives back its standard output.
///
/// # Errors
/// As [`run`]; also when the output is not UTF-8.
pub fn output(command: &mut Command, end: Instant) -> Result<String, String> {
    let (status, text) = outcome(command, end)?;
    success(status)?;
    Ok(text)
}

/// Runs `command` and gives back how it ended and its standard output.
///
/// # Errors
/// When it cannot be started or still runs at `end`: the error then has the last lines that it printed. When the output
/// is not UTF-8.
pub fn outcome(command: &mut Command, end: Instant) -> Result<(ExitStatus, String), String> {
    let mut child = start(command.stdout(Stdio::piped()))?;
    let mut pipe = child.stdout.take().ok_or("no pipe to the program's output")?;
    let (sender, receiver) = mpsc::channel();
    // Read on another thread, so that a program that fills the pipe and this process do not wait for each other.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = sender.send(pipe.read_to_end(&mut bytes).map(|_| bytes));
    });
    let status = wait(&mut child, end).map_err(|why| {
        // Not for long: a child of the program may still have the pipe open.
        let printed = receiver.recv_timeout(Duration::from_secs(1));
        let printed = printed.ok().and_then(Result::ok).unwrap_or_default();
        match last_lines(&String::from_utf8_lossy(&printed), SHOWN).as_str() {
            "" => why + "; it had printed nothing",
            last => format!("{why}; its last lines:\n{last}"),
        }
    })?;
    let bytes = receiver
        .recv()
        .map_err(|_| "the reading thread panicked")?
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "its output is not UTF-8")?;
    Ok((status, text))
}

/// The last lines of a text, at most this many.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// How many lines of a program that did not end its error shows.
const SHOWN: usize = 20;

/// Runs `command` and passes each line of its standard output on as it arrives; returns how it ended.
///
/// # Errors
/// When it cannot be started, still runs at `end`, or `take` refuses a line: then it is killed.
pub fn lines(
    command: &mut Command,
    end: Instant,
    mut take: impl FnMut(&str) -> Result<(), String>,
) -> Result<ExitStatus, String> {
    let mut child = start(command.stdout(Stdio::piped()))?;
    let pipe = child.stdout.take().ok_or("no pipe to the program's output")?;
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // Emulated serial ports may output any bytes; output that is not text is no reason to stop.
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_string());
            line.clear();
        }
    });
    let outcome = loop {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Err(why) = take(&line) {
                    stop(&mut child);
                    break Err(why);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break wait(&mut child, end),
            Err(RecvTimeoutError::Timeout) => {
                stop(&mut child);
                break Err("it did not end within its time and was stopped".into());
            }
        }
    };
    reader.join().map_err(|_| "the reading thread panicked")?;
    outcome
}

fn success(status: ExitStatus) -> Result<(), String> {
    if status.success() {
        Ok(())
    } else {
        Err(status.to_string())
    }
}

fn start(command: &mut Command) -> Result<Child, String> {
    #[cfg(unix)]
    if !std::io::stdin().is_terminal() {
        // A separate group, so that all its children can be stopped. Not at a terminal: ^C must still reach them.
        std::os::unix::process::CommandExt::process_group(command, 0);
    }
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))
}

fn wait(child: &mut Child, end: Instant) -> Result<ExitStatus, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                stop(child);
                return Err("it did not end within the time for all steps and was stopped".into());
            }
            Err(error) => return Err(format!("cannot wait for it: {error}")),
        }
    }
}

fn stop(child: &mut Child) {
    if cfg!(unix) && !std::io::stdin().is_terminal() {
        // The group that `start` made; its number is the child's.
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    #[test]
    fn program_past_its_deadline_is_stopped_and_fails() {
        let start = Instant::now();
        assert!(run(Command::new("sleep").arg("60"), soon()).is_err_and(|why| why.contains("did not end")));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn program_past_its_deadline_shows_what_it_printed() {
        let late = |script| {
            let end = Instant::now() + Duration::from_secs(2);
            outcome(Command::new("sh").args(["-c", script]), end).expect_err("it sleeps")
        };
        let why = late("echo one; echo two; exec sleep 60");
        assert!(why.contains("did not end") && why.ends_with(":\none\ntwo"), "{why}");
        assert!(late("exec sleep 60").ends_with("it had printed nothing"));
    }

    #[test]
    fn last_lines_are_those_at_the_end() {
        assert_eq!(last_lines("1\n2\n3\n", 2), "2\n3");
        assert_eq!(last_lines("1\n", 2), "1");
        assert_eq!(last_lines("", 2), "");
    }

    #[test]
    fn failing_and_missing_programs_are_errors() {
        assert!(run(&mut Command::new("false"), Instant::now() + BUDGET).is_err());
        assert!(output(&mut Command::new("false"), Instant::now() + BUDGET).is_err());
        assert!(run(&mut Command::new("no-such-program"), soon()).is_err_and(|why| why.contains("cannot start")));
    }

    #[test]
    fn output_of_a_failed_program_is_kept() {
        let path = std::env::temp_dir().join(format!("shootdown-xtask-{}.log", std::process::id()));
        let log = File::create(&path).expect("a file can be written");
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let outcome = logged(&mut command, &log, Instant::now() + BUDGET);
        let kept = std::fs::read_to_string(&path);
        let _ = std::fs::remove_file(&path);
        assert!(outcome.is_err_and(|why| why.contains('3')));
        assert_eq!(kept.expect("it was written"), "one\ntwo\n");
    }

    #[test]
    fn output_larger_than_a_pipe_is_complete() {
        let mut command = Command::new("head");
        let text = output(command.args(["-c", "300000", "/dev/zero"]), Instant::now() + BUDGET).expect("it ends");
        assert_eq!(text.len(), 300_000);
    }

    #[test]
    fn lines_arrive_while_the_program_runs_and_may_end_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; sleep 60"]);
        let mut seen = Vec::new();
        let start = Instant::now();
        let outcome = lines(&mut command, start + BUDGET, |line| {
            seen.push(line.to_string());
            if line == "two" { Err("enough".into()) } else { Ok(()) }
        });
        assert_eq!(
            (seen, outcome),
            (vec!["one".into(), "two".into()], Err("enough".into()))
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn silent_program_past_its_deadline_is_stopped() {
        let start = Instant::now();
        assert!(
            lines(Command::new("sleep").arg("60"), soon(), |_| Ok(())).is_err_and(|why| why.contains("did not end"))
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn retry_stops_at_success_and_at_the_deadline() {
        let mut attempts = 0;
        let fails = || -> Result<(), String> {
            attempts += 1;
            Err("no network".into())
        };
        assert_eq!(patiently(soon(), fails), Err("no network".into()));
        assert_eq!(attempts, 1);
        assert_eq!(patiently(Instant::now() + BUDGET, || Ok(7)), Ok(7));
    }

    const BUDGET: Duration = Duration::from_secs(60);
}
