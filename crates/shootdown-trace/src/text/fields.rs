//! The fields of each event that is used, in the forms in which kernels, libtraceevent's plugins (`trace-cmd report`),
//! `trace-cmd report -R` and `perf script` print them.
//!
//! The forms come from the print formats in the kernel's `include/trace/events`, and from libtraceevent's
//! `plugin_tlb.c` and `plugin_sched_switch.c`.

use super::fault::Fault;
use crate::{Call, Function, Reason, What};

const BROKEN: Fault = Fault::Damaged("a field is missing or is no number");

/// The event of that name with those fields.
pub(super) fn what<'t>(event: &str, fields: &'t str) -> Result<What<'t>, Fault> {
    match event {
        "sched_switch" => switch(fields).ok_or(BROKEN),
        "tlb_flush" => flush(fields).ok_or(BROKEN),
        "csd_queue_cpu" => Ok(What::Queued {
            target: number(fields, "cpu").ok_or(BROKEN)?,
            function: function(value(fields, "func")),
        }),
        "ipi_send_cpu" => Ok(What::Interrupt {
            target: number(fields, "cpu").ok_or(BROKEN)?,
            call: is_call(fields),
        }),
        "ipi_send_cpumask" => Ok(What::Interrupts {
            targets: value(fields, "cpumask").ok_or(BROKEN)?,
            call: is_call(fields),
        }),
        "call_function_entry" | "call_function_single_entry" => Ok(What::HandlerEntry),
        "sched_process_fork" => Ok(What::Fork {
            child: number(fields, "child_pid")
                .or_else(|| pretty_child(fields))
                .ok_or(BROKEN)?,
        }),
        "task_newtask" => Ok(What::NewTask {
            child: number(fields, "pid").ok_or(BROKEN)?,
            flags: value(fields, "clone_flags").and_then(hexadecimal).ok_or(BROKEN)?,
        }),
        "sched_process_exec" => Ok(What::Exec),
        "sched_process_exit" => Ok(What::Exit),
        "page_fault_user" => Ok(What::Fault {
            address: hexadecimal(value(fields, "address").ok_or(BROKEN)?).ok_or(BROKEN)?,
        }),
        _ => call(event, fields),
    }
}

/// Whether an event of that name is used.
pub(super) fn is_used(event: &str) -> bool {
    !matches!(what(event, ""), Err(Fault::Unknown))
}

/// `prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120`; with `-R` the same
/// without the arrow and with a number for the state; or `a:1 [120] S ==> b:2 [120]` as plugins print it. Names may
/// contain any character, so numbers are parsed from the right.
fn switch(fields: &str) -> Option<What<'_>> {
    if let Some((before, after)) = fields.rsplit_once(" prev_state=") {
        let from = decimal(before.rsplit_once(" prev_pid=")?.1)?;
        let state = after.split_ascii_whitespace().next()?;
        let to = decimal(after.rsplit_once(" next_pid=")?.1)?;
        return Some(What::Switch {
            from,
            state: state_of(state),
            to,
        });
    }
    let (from, to) = fields.split_once(" ==> ")?;
    let (before, state) = from.rsplit_once("] ")?;
    let from = decimal(before.rsplit_once(" [")?.0.rsplit_once(':')?.1)?;
    let to = decimal(to.rsplit_once(" [")?.0.rsplit_once(':')?.1)?;
    let state = state.trim().trim_matches(['(', ')']);
    Some(What::Switch {
        from,
        // The plugin prints W for the bit that the kernel prints as I.
        state: if state == "W" { "I" } else { state },
        to,
    })
}

/// The letter of a state that is printed as a number: bits of the kernel's `TASK_REPORT` (`include/linux/sched.h`);
/// otherwise the letter itself.
fn state_of(state: &str) -> &str {
    const LETTERS: [&str; 8] = ["S", "D", "T", "t", "X", "Z", "P", "I"];
    let number = match state.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => state.parse().ok(),
    };
    match number {
        None => state,
        Some(0) => "R",
        Some(bits) => LETTERS.get(bits.trailing_zeros() as usize).copied().unwrap_or("R+"),
    }
}

/// `pages:-1 reason:remote IPI send (4)`, `pages=-1 reason= (4)` as the plugin prints it, `reason=4 pages=-1` with
/// `-R`. Only the number is used; the words differ between kernels, and the plugin lacks some of them.
fn flush(fields: &str) -> Option<What<'_>> {
    let after = |key: &str| {
        let after = fields.split_once(key)?.1;
        after.strip_prefix([':', '='])
    };
    let (pages, reason) = (after("pages")?, after("reason")?);
    let number = match in_brackets(reason) {
        Some(number) => number,
        None => u64::from(decimal(reason)?),
    };
    let pages = pages.split_ascii_whitespace().next()?;
    let pages = match pages.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()? as i64,
        None => pages.parse().ok()?,
    };
    Some(What::Flush {
        pages,
        reason: Reason::numbered(number)?,
    })
}

/// The first number in brackets.
fn in_brackets(text: &str) -> Option<u64> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('(') {
        if let Some(number) = after.split_once(')').and_then(|(inside, _)| inside.parse().ok()) {
            return Some(number);
        }
        rest = after;
    }
    None
}

/// The child of `comm=make pid=1 child_comm=make child_pid=2` in its pretty form, `make:1 -> make:2`.
fn pretty_child(fields: &str) -> Option<u32> {
    fields.rsplit_once(':')?.1.trim().parse().ok()
}

/// `sys_madvise(start: 0x1000, len_in: 0x8000, behavior: 4)`, `sys_enter_madvise: start: 0x..., len_in: ...`, or
/// `__syscall_nr=28 start=0x1000 len_in=...` with `-R`.
fn call(event: &str, fields: &str) -> Result<What<'static>, Fault> {
    let name = event.strip_prefix("sys_enter_").or_else(|| event.strip_prefix("sys_"));
    let Some(&(_, call)) = name.and_then(|name| Call::ALL.iter().find(|(known, _)| *known == name)) else {
        return Err(Fault::Unknown);
    };
    let mut values = [None; 3];
    if fields.starts_with("__syscall_nr=") || fields.starts_with("nr=") {
        let raw = fields.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        for (place, (_, value)) in values.iter_mut().zip(raw.skip(1)) {
            *place = hexadecimal(value);
        }
    } else {
        let arguments = fields.trim_start_matches('(').split(", ");
        for (place, argument) in values.iter_mut().zip(arguments) {
            let value = argument.rsplit_once(": ").map_or(argument, |(_, value)| value);
            let value = value.split_ascii_whitespace().next().unwrap_or("");
            *place = hexadecimal(value.trim_end_matches(')'));
        }
    }
    let [Some(address), Some(length), argument] = values else {
        return Err(BROKEN);
    };
    Ok(What::Call {
        call,
        address,
        length,
        argument: argument.unwrap_or(0),
    })
}

/// The function of a call to another CPU, by its name.
fn function(name: Option<&str>) -> Function {
    match name {
        // The remote flush has names with this prefix: flush_tlb_func, flush_tlb_func_remote.
        Some(name) if name.starts_with("flush_tlb_") => Function::Shootdown,
        Some(name) => unresolved(name).map_or(Function::Other, Function::Unnamed),
        None => Function::Unnamed(0),
    }
}

/// The address that stands in place of a name where the reader could not resolve it.
fn unresolved(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("0x").unwrap_or(name);
    let long = digits.len() >= 8 || name.starts_with("0x");
    long.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Whether an interrupt carries function calls: reschedule interrupts have no callback.
fn is_call(fields: &str) -> bool {
    value(fields, "callback").is_some_and(|callback| {
        callback.starts_with("generic_smp_call_function") || unresolved(callback).is_some_and(|address| address != 0)
    })
}

/// The value of `key=value` among words.
fn value<'t>(fields: &'t str, key: &str) -> Option<&'t str> {
    fields
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn number(fields: &str, key: &str) -> Option<u32> {
    decimal(value(fields, key)?)
}

/// The number that a text begins with, decimal unless it says `0x`.
fn decimal(text: &str) -> Option<u32> {
    let word = text.split_ascii_whitespace().next()?;
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Hexadecimal with or without `0x`: kernels print both for arguments, and never decimal except below ten.
fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}
