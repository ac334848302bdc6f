//! One line of trace text: who, where, when, and which event.
//!
//! `task-123 ( 99) [001] d..2. 5.000001: event: fields` in tracefs, `task-123 [001] 5.000001: event: fields` in
//! `trace-cmd report`, `task 99/123 [001] 5.000001: group:event: fields` in `perf script`. The task's name may hold
//! spaces, dashes and brackets; so the CPU in brackets with a time after it is looked for first.

use super::fields;
use crate::Event;

/// Why a line gives no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not an event, or cut off.
    Damaged(&'static str),
    /// An event that is not used.
    Unknown,
    /// Earlier than the one before.
    OutOfOrder,
}

/// A line, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts<'t> {
    name: &'t str,
    task: u32,
    process: Option<u32>,
    cpu: u32,
    time_ns: u64,
    event: &'t str,
    fields: &'t str,
}

impl<'t> Parts<'t> {
    pub(super) fn of(line: &'t str) -> Result<Self, Fault> {
        let mut from = 0;
        while let Some(open) = line[from..].find(" [").map(|at| from + at) {
            from = open + 2;
            let Some((cpu, rest)) = line[from..].split_once(']') else {
                break;
            };
            let Ok(cpu) = cpu.parse() else { continue };
            let Some((time_ns, rest)) = time(rest) else { continue };
            let (name, task, process) = who(&line[..open]).ok_or(Fault::Damaged("no task before the CPU"))?;
            let (event, fields) = match rest.split_once(": ") {
                Some((event, fields)) => (event, fields),
                None => match rest.find('(').filter(|_| rest.ends_with(')')) {
                    // Some kernels print system calls as `sys_madvise(start: 0x1000, ...)`, handled below.
                    Some(open) => (&rest[..open], &rest[open..]),
                    None => (rest.trim_end_matches(':'), ""),
                },
            };
            // `sys_madvise(start: 0x1000` was cut at its first colon.
            let (event, fields) = match event.find('(') {
                Some(open) => (&rest[..open], &rest[open..]),
                None => (event, fields),
            };
            let event = event.rsplit(':').next().unwrap_or(event).trim();
            return Ok(Parts {
                name,
                task,
                process,
                cpu,
                time_ns,
                event,
                fields: fields.trim_start(),
            });
        }
        Err(Fault::Damaged("not an event: no CPU in brackets with a time after it"))
    }

    pub(super) fn event(&self) -> Result<Event<'t>, Fault> {
        Ok(Event {
            time_ns: self.time_ns,
            cpu: self.cpu,
            task: self.task,
            process: self.process,
            name: self.name,
            what: fields::what(self.event, self.fields)?,
        })
    }
}

/// The time after the CPU, past the flags if there are any, and what follows its colon.
fn time(rest: &str) -> Option<(u64, &str)> {
    let mut rest = rest.trim_start();
    if !rest.starts_with(|c: char| c.is_ascii_digit()) || rest.split(' ').next().is_some_and(|w| !w.ends_with(':')) {
        rest = rest.split_once(' ')?.1.trim_start();
    }
    let (time, rest) = rest.split_once(": ")?;
    let (seconds, fraction) = time.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - fraction.len() as u32);
    let time_ns = seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(nanoseconds)?;
    Some((time_ns, rest.trim_start()))
}

/// Name, task and process from what stands before the CPU.
fn who(text: &str) -> Option<(&str, u32, Option<u32>)> {
    let mut text = text.trim();
    let mut process = None;
    if let Some(inside) = text.strip_suffix(')') {
        let (before, number) = inside.rsplit_once('(')?;
        process = number.trim().parse().ok(); // `-------` when the kernel did not know it
        text = before.trim_end();
    }
    // `name 99/123` or `name 123` of perf, `name-123` of the others.
    if let Some((name, numbers)) = text.rsplit_once(' ') {
        if let Some((of, task)) = numbers.split_once('/')
            && let (Ok(of), Ok(task)) = (of.parse(), task.parse())
        {
            return Some((name.trim_end(), task, Some(of)));
        }
        if let Ok(task) = numbers.parse() {
            return Some((name.trim_end(), task, process));
        }
    }
    let (name, task) = text.rsplit_once('-')?;
    Some((name, task.parse().ok()?, process))
}
