//! The fields of each event that is used.

use super::line::Fault;
use crate::{Call, Reason, What};

const BROKEN: Fault = Fault::Damaged("a field is missing or is no number");

/// What an event of that name with those fields says.
pub(super) fn what<'t>(event: &str, fields: &'t str) -> Result<What<'t>, Fault> {
    match event {
        "sched_switch" => switch(fields).ok_or(BROKEN),
        "tlb_flush" => flush(fields).ok_or(BROKEN),
        "csd_queue_cpu" => Ok(What::Queued {
            target: number(fields, "cpu").ok_or(BROKEN)?,
            // Both the remote flush and its forms under other names begin so: flush_tlb_func, flush_tlb_func_remote.
            shootdown: value(fields, "func").is_some_and(|function| function.starts_with("flush_tlb_")),
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
        "sched_process_exec" => Ok(What::Exec),
        "sched_process_exit" => Ok(What::Exit),
        "page_fault_user" => Ok(What::Fault {
            address: hexadecimal(value(fields, "address").ok_or(BROKEN)?).ok_or(BROKEN)?,
        }),
        _ => call(event, fields),
    }
}

/// `prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120`, or
/// `a:1 [120] S ==> b:2 [120]` as perf and trace-cmd print it. Names may hold anything, so numbers are taken from the
/// right.
fn switch(fields: &str) -> Option<What<'_>> {
    let (from, to) = fields.split_once(" ==> ")?;
    if let Some((before, state)) = from.rsplit_once(" prev_state=") {
        let from = before.rsplit_once(" prev_pid=")?.1.split(' ').next()?.parse().ok()?;
        let to = to.rsplit_once(" next_pid=")?.1.split(' ').next()?.parse().ok()?;
        return Some(What::Switch {
            from,
            state: state.trim(),
            to,
        });
    }
    let (before, state) = from.rsplit_once("] ")?;
    let from = before.rsplit_once(" [")?.0.rsplit_once(':')?.1.parse().ok()?;
    let to = to.rsplit_once(" [")?.0.rsplit_once(':')?.1.parse().ok()?;
    Some(What::Switch {
        from,
        state: state.trim(),
        to,
    })
}

/// `pages:-1 reason:remote IPI send (4)`; the number counts, the words differ between kernels.
fn flush(fields: &str) -> Option<What<'_>> {
    let pages = fields
        .split_once("pages:")?
        .1
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()?;
    let number = fields.rsplit_once('(')?.1.split_once(')')?.0.parse().ok()?;
    Some(What::Flush {
        pages,
        reason: Reason::numbered(number)?,
    })
}

/// The child of `comm=make pid=1 child_comm=make child_pid=2` in its pretty form, `make:1 -> make:2`.
fn pretty_child(fields: &str) -> Option<u32> {
    fields.rsplit_once(':')?.1.trim().parse().ok()
}

/// `sys_madvise(start: 0x1000, len_in: 0x8000, behavior: 4)` or `sys_enter_madvise: start: 0x..., len_in: ...`.
fn call(event: &str, fields: &str) -> Result<What<'static>, Fault> {
    let name = event.strip_prefix("sys_enter_").or_else(|| event.strip_prefix("sys_"));
    let Some(&(_, call)) = name.and_then(|name| Call::ALL.iter().find(|(known, _)| *known == name)) else {
        return Err(Fault::Unknown);
    };
    let mut arguments = fields
        .trim_start_matches('(')
        .trim_end_matches(')')
        .split(", ")
        .map(|argument| hexadecimal(argument.rsplit_once(':').map_or(argument, |(_, value)| value).trim()));
    let mut next = || arguments.next().flatten();
    let (address, length) = (next().ok_or(BROKEN)?, next().ok_or(BROKEN)?);
    Ok(What::Call {
        call,
        address,
        length,
        argument: next().unwrap_or(0),
    })
}

/// Whether an interrupt carries function calls: reschedule interrupts have no callback.
fn is_call(fields: &str) -> bool {
    value(fields, "callback").is_some_and(|callback| callback.starts_with("generic_smp_call_function"))
}

/// The value of `key=value` among words.
fn value<'t>(fields: &'t str, key: &str) -> Option<&'t str> {
    fields
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn number(fields: &str, key: &str) -> Option<u32> {
    value(fields, key)?.parse().ok()
}

/// Hexadecimal with or without `0x`: kernels print both for arguments, and never decimal except below ten.
fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}
