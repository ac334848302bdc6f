//! One line of trace text: task, CPU, time, and the event's name.
//!
//! * tracefs: `task-123 ( 99) [001] d..2. 5.000001: event: fields`
//! * `trace-cmd report`: `task-123 [001] 5.000001: event: fields`; of a buffer instance, with `instance:` before it
//! * `perf script`: `task 99/123 [001] 5.000001: group:event: fields`; name and numbers may be left out
//! * latency format: `task-123 1d..2. 18235us : event: fields`; `trace-cmd report -l` with the time as above
//!
//! The task's name may contain spaces, dashes and brackets, so the CPU in brackets with a time after it is searched
//! first.

use super::fault::{Fault, Lack};
use super::fields;
use crate::Event;

/// The task of a line. A field that is `None` is not in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task<'t> {
    pub(super) name: &'t str,
    pub(super) task: Option<u32>,
    pub(super) process: Option<u32>,
}

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts<'t> {
    pub(super) task: Task<'t>,
    pub(super) cpu: u32,
    time_ns: u64,
    /// Name of the event.
    pub(super) event: &'t str,
    fields: &'t str,
}

const NO_EVENT: Fault = Fault::Damaged("not an event: no CPU in brackets with a time after it");

impl<'t> Parts<'t> {
    pub(super) fn of(line: &'t str) -> Result<Self, Fault> {
        let (before, cpu, rest) = match bracketed(line) {
            Some(found) => found,
            None => latency(line).ok_or_else(|| lacks(line).map_or(NO_EVENT, Fault::Lacks))?,
        };
        let (time_ns, rest) = time(rest).ok_or(NO_EVENT)?;
        let time_ns = time_ns.ok_or(Fault::Lacks(Lack::Unit))?;
        let task = task(without_instance(before)).ok_or(Fault::Damaged("no task before the CPU"))?;
        let (event, fields) = event(rest);
        Ok(Parts {
            task,
            cpu,
            time_ns,
            event,
            fields,
        })
    }

    /// The event, of the line's task or else of `running`, the task that its CPU is known to run.
    pub(super) fn event(&self, running: Option<u32>) -> Result<Event<'t>, Fault> {
        Ok(Event {
            time_ns: self.time_ns,
            cpu: self.cpu,
            task: self.task.task.or(running).unwrap_or(Event::UNKNOWN_TASK),
            process: self.task.process,
            name: self.task.name,
            what: fields::what(self.event, self.fields)?,
        })
    }
}

/// `before [001] rest`, where `rest` begins with a time.
fn bracketed(line: &str) -> Option<(&str, u32, &str)> {
    let mut from = 0;
    while let Some(open) = line[from..].find('[').map(|at| from + at) {
        from = open + 1;
        if !line[..open].is_empty() && !line[..open].ends_with(' ') {
            continue;
        }
        let (cpu, rest) = line[from..].split_once(']')?;
        let Ok(cpu) = cpu.parse() else { continue };
        if time(rest).is_some() {
            return Some((&line[..open], cpu, rest));
        }
    }
    None
}

/// `before 1d..2. rest`, where `rest` begins with a time: the CPU stands before the flags.
fn latency(line: &str) -> Option<(&str, u32, &str)> {
    let mut from = 0;
    while let Some(start) = line[from..].find(|c: char| c != ' ').map(|at| from + at) {
        let end = line[start..].find(' ').map_or(line.len(), |at| start + at);
        from = end;
        let word = &line[start..end];
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let (cpu, flags) = word.split_at(digits);
        let is_flag = |c: char| c.is_ascii_hexdigit() || ".DXNnpPLlhHsSzZ*#".contains(c);
        if !(3..=7).contains(&flags.len()) || !flags.chars().all(is_flag) {
            continue;
        }
        let Ok(cpu) = cpu.parse() else { continue };
        if time(&line[end..]).is_some() {
            return Some((&line[..start], cpu, &line[end..]));
        }
    }
    None
}

/// The missing field of a line that is otherwise an event: `task 123 5.000001: tlb:tlb_flush: ...`, `task 123 [001]
/// tlb:tlb_flush:`.
fn lacks(line: &str) -> Option<Lack> {
    let is_event = |word: &str| word.strip_suffix(':').is_some_and(|name| fields::is_used(last(name)));
    let words = || line.split_ascii_whitespace();
    let at = words().position(is_event)?;
    let is_time = |word: &str| word.strip_suffix(':').is_some_and(|time| seconds(time).is_some());
    if words().take(at).any(is_time) {
        return Some(Lack::Cpu);
    }
    Some(Lack::Time)
}

/// The time after the CPU, past the flags if there are any, and what follows its colon. The time is `None` when it has
/// no unit: a counter's value.
fn time(rest: &str) -> Option<(Option<u64>, &str)> {
    let rest = rest.trim_start();
    time_first(rest).or_else(|| time_first(rest.split_once(' ')?.1.trim_start()))
}

fn time_first(rest: &str) -> Option<(Option<u64>, &str)> {
    let (time, rest) = rest.split_once(':')?;
    let rest = rest.strip_prefix(' ')?.trim_start();
    if let Some(ns) = seconds(time) {
        return Some((Some(ns), rest));
    }
    // `18235us `, with a mark in place of the space if the next event is much later.
    if let Some((microseconds, mark)) = time.split_once("us")
        && mark.len() == 1
    {
        return Some((Some(microseconds.parse::<u64>().ok()?.checked_mul(1000)?), rest));
    }
    let counter = !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit());
    (counter && rest.contains(':')).then_some((None, rest))
}

/// Seconds with a fraction of up to nine digits, in ns.
fn seconds(time: &str) -> Option<u64> {
    let (seconds, fraction) = time.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - fraction.len() as u32);
    let seconds = seconds.parse::<u64>().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// The name of the event and its fields, from what follows the time.
fn event(rest: &str) -> (&str, &str) {
    let mut rest = rest;
    // `(+2)` of `trace-cmd report --ts-diff`, a sample's period of `perf script`.
    if let Some((first, after)) = rest.split_once(' ')
        && first.bytes().all(|b| b.is_ascii_digit() || b"(+)".contains(&b))
    {
        rest = after.trim_start();
    }
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
    (last(event).trim(), fields.trim_start())
}

/// `tlb_flush` of `tlb:tlb_flush`.
fn last(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

/// Skips the name of the buffer instance, or of the file, that `trace-cmd report` puts before a line. It begins at the
/// line's first column, and the task's name, which is padded to 16 columns and has at most 15, after a blank.
fn without_instance(before: &str) -> &str {
    match before.split_once(": ") {
        Some((instance, rest))
            if rest.starts_with(' ') && !instance.is_empty() && !instance.contains(char::is_whitespace) =>
        {
            rest
        }
        _ => before,
    }
}

/// Name and numbers from the text before the CPU: `name-123`, `name-123 ( 99)`; of perf `name 123`, `name 99/123`, or
/// numbers alone; `:-1 -1` is a task that perf does not know.
fn task(text: &str) -> Option<Task<'_>> {
    let mut text = text.trim();
    let (mut process, number) = (None, |text: &str| text.parse::<u32>().ok());
    if text.is_empty() {
        return Some(Task {
            name: "",
            task: None,
            process,
        });
    }
    if let Some(inside) = text.strip_suffix(')') {
        let (before, of) = inside.rsplit_once('(')?;
        process = number(of.trim()); // `-------` when the kernel did not know it
        text = before.trim_end();
    }
    let (name, numbers) = text.rsplit_once(' ').unwrap_or(("", text));
    let name = name.trim_end();
    if let Some((of, task)) = numbers.split_once('/') {
        if task == "-1" {
            return Some(Task {
                name: "",
                task: None,
                process: None,
            });
        }
        if let (Some(of), Some(task)) = (number(of), number(task)) {
            return Some(Task {
                name,
                task: Some(task),
                process: Some(of),
            });
        }
    }
    if numbers == "-1" && (name.is_empty() || name == ":-1") {
        return Some(Task {
            name: "",
            task: None,
            process: None,
        });
    }
    if let Some(task) = number(numbers) {
        return Some(Task {
            name,
            task: Some(task),
            process,
        });
    }
    let (name, task) = text.rsplit_once('-')?;
    Some(Task {
        name,
        task: Some(number(task)?),
        process,
    })
}
