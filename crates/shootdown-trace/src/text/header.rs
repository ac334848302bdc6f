//! Lines that are not events but describe the recording: headers, losses.

use super::line::Parts;
use crate::Metadata;

/// Processes a line that is not an event; returns whether it was recognised.
pub(super) fn read(text: &str, metadata: &mut Metadata) -> bool {
    if let Some(header) = text.strip_prefix('#') {
        comment(header, metadata);
        return true;
    }
    if let Some(cpus) = text.strip_prefix("cpus=") {
        // First line of `trace-cmd report`.
        metadata.cpus = cpus.parse().ok();
        return true;
    }
    if let Some((cpu, lost)) = lost_events(text) {
        metadata.lose(cpu, lost);
        return true;
    }
    is_stack(text) || (text.starts_with("CPU ") && text.ends_with(" is empty")) || text.starts_with("version = ")
}

/// Lines of a stack below an event: `=> function` and `<stack trace>` of the kernel, `ffffffff8139bb71 function` of
/// perf.
fn is_stack(text: &str) -> bool {
    let line = text.trim_start();
    if line.len() == text.len() {
        return false;
    }
    let first = line.split(' ').next().unwrap_or("");
    first == "=>"
        || line.starts_with("<stack trace>")
        || line.starts_with("<user stack trace>")
        || (first.len() >= 6 && first.bytes().all(|byte| byte.is_ascii_hexdigit()) && !line.contains("]: "))
}

/// Perf's report of its own losses: `PERF_RECORD_LOST lost 123`.
pub(super) fn perf_loss(parts: &Parts<'_>, metadata: &mut Metadata) -> bool {
    if !parts.event.starts_with("PERF_RECORD_LOST") {
        return false;
    }
    let number = parts.event.split_ascii_whitespace().find_map(|word| word.parse().ok());
    metadata.lose(Some(parts.cpu), number);
    true
}

/// `CPU:1 [LOST 123 EVENTS]` and `CPU:1 [LOST EVENTS]` as tracefs prints them, `CPU:1 [123 EVENTS DROPPED]` as
/// trace-cmd does: the CPU, and the number if given.
fn lost_events(text: &str) -> Option<(Option<u32>, Option<u64>)> {
    let (before, inside) = text.split_once('[')?;
    let cpu = before.rsplit_once("CPU:")?.1;
    let inside = inside.split(']').next()?.trim();
    if !inside.contains("EVENTS") {
        return None;
    }
    let number = inside.split_ascii_whitespace().find_map(|word| word.parse().ok());
    Some((cpu.trim().parse().ok(), number))
}

/// Comment lines: those at the start of this program's recordings, those of the kernel's own header, those of `perf
/// script --header`.
fn comment(header: &str, metadata: &mut Metadata) {
    let header = header.trim();
    if let Some(command) = header
        .strip_prefix("cmd: ")
        .or_else(|| header.strip_prefix("cmdline : "))
    {
        metadata.command = Some(command.to_owned());
    } else if let Some(rest) = header.strip_prefix("kernel: ") {
        kernel(rest, metadata);
    } else if let Some(release) = header.strip_prefix("os release : ") {
        metadata.kernel = Some(release.to_owned());
    } else if let Some(cpus) = header.strip_prefix("nrcpus avail : ") {
        metadata.cpus = cpus.parse().ok();
    } else if let Some(events) = header.strip_prefix("events: ") {
        metadata.events = events.split_ascii_whitespace().map(str::to_owned).collect();
    } else if header.starts_with("cpu")
        && let Some((_, rest)) = header.split_once("overrun: ")
    {
        // `# cpu0 entries: 4313 overrun: 0 commit overrun: 0 dropped events: 0`
        let numbers = rest
            .split_ascii_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        let cpu = header["cpu".len()..].split(' ').next().and_then(|cpu| cpu.parse().ok());
        metadata.lose(cpu, Some(numbers.fold(0, u64::saturating_add)));
    } else if let Some((_, cpus)) = header.split_once("#P:") {
        let cpus = cpus.trim().trim_end_matches(')');
        metadata.cpus = metadata.cpus.or_else(|| cpus.parse().ok());
    }
    if let Some((_, rest)) = header.split_once("entries-in-buffer/entries-written: ") {
        overwritten(rest, metadata);
    }
}

/// `6.18.44 cpus: 2 clock: mono window_s: 2.0`
fn kernel(rest: &str, metadata: &mut Metadata) {
    let mut words = rest.split_ascii_whitespace();
    metadata.kernel = words.next().map(str::to_owned);
    while let Some(word) = words.next() {
        match word {
            "cpus:" => metadata.cpus = words.next().and_then(|number| number.parse().ok()),
            "clock:" => metadata.clock = words.next().map(str::to_owned),
            _ => {}
        }
    }
}

/// `288/150280   #P:2`: events that the buffer holds, and those that were written to it. Losses by CPU, where a header
/// has them, are the same events.
fn overwritten(rest: &str, metadata: &mut Metadata) {
    let numbers = rest.split_ascii_whitespace().next().unwrap_or("");
    let Some((held, written)) = numbers.split_once('/') else {
        return;
    };
    if let (Ok(held), Ok(written)) = (held.parse::<u64>(), written.parse::<u64>()) {
        metadata.lost_at_least(written.saturating_sub(held));
    }
}
