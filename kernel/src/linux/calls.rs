//! The Linux system calls of this kernel.

use super::errno::{EINVAL, ENOENT, ENOMEM, ENOSYS, ENOTTY, Errno};
use super::files::File;
use super::process::{self, Process};
use super::task::{self, Task};
use super::{futex, inside, memory, pinning, user};
use crate::arch::interrupts;
use crate::arch::traps::Frame;
use crate::backing::Memory;
use crate::serial;
use crate::time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most bytes of one write, and most pieces.
const MOST_BYTES: u64 = 1 << 16;
const MOST_PIECES: u64 = 64;

const ARCH_SET_FS: u64 = 0x1002;

/// The required flags of `clone`: another thread of the process.
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAKE_BITSET: u64 = 10;
/// Private, or by the real-time clock: both are ignored.
const FUTEX_FLAGS: u64 = 128 | 256;

/// Entry of every system call, interrupts off; they are off when it returns.
pub extern "C" fn call(frame: &mut Frame) {
    inside::begin();
    interrupts::enable();
    let result = {
        let task = task::current();
        dispatch(&task, frame)
    };
    let value = match result {
        Ok(value) => value,
        Err(Errno(number)) => -i64::from(number) as u64,
    };
    frame.set_result(value);
    interrupts::disable();
    task::before_user();
}

fn dispatch(task: &Arc<Task>, frame: &mut Frame) -> Result<u64, Errno> {
    let process = &*task.process;
    let (number, arguments) = frame.call();
    let [a, b, c, d, ..] = arguments;
    match number {
        28 => memory::advise(process, a, b, c),
        202 => futex_call(process, arguments),
        9 => memory::map(process, arguments),
        10 => memory::protect(process, a, b, c),
        11 => memory::unmap(process, a, b),
        12 => Ok(memory::set_heap_end(process, a)),
        1 => write(process, a, &[(b, c)]),
        20 => write_pieces(process, a, b, c),
        3 => process.files.lock().close(a).map(|()| 0),
        2 => pinning::open(process, a),
        13 => signal_action(c),
        14 => signal_mask(c, d),
        16 => Err(ENOTTY),
        22 | 293 => pinning::pipe(process, a),
        24 => {
            task::give_way();
            Ok(0)
        }
        39 => Ok(u64::from(process.id)),
        56 => clone(task, frame),
        57 => fork(task, frame),
        61 => wait_for(process, a, b, c),
        60 => {
            // Everything that this thread holds is dropped on the way out.
            task.ends.set(true);
            Ok(0)
        }
        231 => {
            process.kill(a as i32 & 0xFF);
            Ok(0)
        }
        77 => truncate(process, a, b),
        // No links: readlink, readlinkat.
        89 | 267 => Err(EINVAL),
        96 => clock(0, a, 1000),
        158 if a == ARCH_SET_FS => set_thread_pointer(task, b),
        158 => Err(EINVAL),
        186 => Ok(u64::from(task.id)),
        218 => {
            task.clear_at_end.set(a);
            Ok(u64::from(task.id))
        }
        228 => clock(a, b, 1),
        257 => pinning::open(process, b),
        262 => Err(ENOENT),
        275 => pinning::splice(process, a, c, arguments[4]),
        278 => pinning::give(process, a, b, c),
        302 => Ok(0),
        318 => random(a, b),
        319 => Ok(process.files.lock().add(File::Memory(Memory::new()))),
        // Refused, as Linux may: programs work without it.
        273 | 334 | 435 => Err(ENOSYS),
        _ => {
            serial::report_line(format_args!("this kernel lacks system call {number}{}", name(number)));
            process.kill(process::LACKING);
            Err(ENOSYS)
        }
    }
}

/// Names of calls that programs are likely to make, for the message.
fn name(number: u64) -> &'static str {
    match number {
        0 => " (read)",
        5 => " (fstat)",
        7 => " (poll)",
        19 => " (readv)",
        25 => " (mremap)",
        35 => " (nanosleep)",
        41 => " (socket)",
        58 => " (vfork)",
        59 => " (execve)",
        72 => " (fcntl)",
        203 => " (sched_setaffinity)",
        204 => " (sched_getaffinity)",
        230 => " (clock_nanosleep)",
        _ => "",
    }
}

fn write(process: &Process, fd: u64, pieces: &[(u64, u64)]) -> Result<u64, Errno> {
    let File::Output = process.files.lock().get(fd)?.clone() else {
        return Err(EINVAL);
    };
    let mut all = Vec::new();
    for &(address, length) in pieces {
        let space_left = MOST_BYTES.saturating_sub(all.len() as u64);
        all.extend(user::bytes(address, length.min(space_left) as usize)?);
    }
    serial::report_bytes(&all);
    Ok(all.len() as u64)
}

fn write_pieces(process: &Process, fd: u64, list: u64, count: u64) -> Result<u64, Errno> {
    if count > MOST_PIECES {
        return Err(EINVAL);
    }
    let piece = |index: u64| Ok((user::word(list + index * 16)?, user::word(list + index * 16 + 8)?));
    let pieces: Result<Vec<_>, Errno> = (0..count).map(piece).collect();
    write(process, fd, &pieces?)
}

/// There are no signals: none is ever pending, and their masks are empty.
fn signal_mask(old: u64, size: u64) -> Result<u64, Errno> {
    if old != 0 {
        user::write(old, &[0; 8][..size.min(8) as usize])?;
    }
    Ok(0)
}

fn signal_action(old: u64) -> Result<u64, Errno> {
    if old != 0 {
        user::write(old, &[0; 32])?;
    }
    Ok(0)
}

fn clock(kind: u64, to: u64, unit_ns: u64) -> Result<u64, Errno> {
    if kind > 7 {
        return Err(EINVAL);
    }
    // Every clock counts from the start of the machine.
    let now = time::now_ns();
    user::write(to, &(now / 1_000_000_000).to_le_bytes())?;
    user::write(to + 8, &(now % 1_000_000_000 / unit_ns).to_le_bytes())?;
    Ok(0)
}

fn set_thread_pointer(task: &Task, base: u64) -> Result<u64, Errno> {
    if base >= crate::memory::USER_END {
        return Err(EINVAL);
    }
    task.set_thread_pointer(base);
    Ok(0)
}

/// Bytes that are not random, so that runs are repeatable.
fn random(to: u64, length: u64) -> Result<u64, Errno> {
    let length = length.min(256);
    let mut bytes = [0; 256];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(167).wrapping_add(13);
    }
    user::write(to, &bytes[..length as usize])?;
    Ok(length)
}

fn truncate(process: &Process, fd: u64, length: u64) -> Result<u64, Errno> {
    let memory = process.files.lock().memory(fd).ok_or(EINVAL)?;
    memory.grow(length.min(1 << 30));
    Ok(0)
}

/// The end of a futex wait, in nanoseconds of the machine. `limit` is the address of a time, or 0 for none: relative,
/// or of the clock if the operation has a bit set.
fn futex_limit(operation: u64, limit: u64) -> Result<u64, Errno> {
    if limit == 0 {
        return Ok(futex::NEVER);
    }
    let (seconds, ns) = (user::word(limit)?, user::word(limit.wrapping_add(8))?);
    if seconds > i64::MAX as u64 || ns >= 1_000_000_000 {
        return Err(EINVAL);
    }
    let given = seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    let begins = if operation == FUTEX_WAIT { time::now_ns() } else { 0 };
    Ok(given.saturating_add(begins).min(futex::NEVER - 1))
}

fn futex_call(process: &Process, [address, operation, value, limit, ..]: [u64; 6]) -> Result<u64, Errno> {
    if !address.is_multiple_of(4) {
        return Err(EINVAL);
    }
    match operation & !FUTEX_FLAGS {
        wait @ (FUTEX_WAIT | FUTEX_WAIT_BITSET) => {
            futex::wait(address, value as u32, futex_limit(wait, limit)?).map(|()| 0)
        }
        FUTEX_WAKE | FUTEX_WAKE_BITSET => Ok(futex::wake(process, address, value as usize) as u64),
        _ => Err(ENOSYS),
    }
}

fn clone(task: &Arc<Task>, frame: &Frame) -> Result<u64, Errno> {
    let (_, [flags, stack, parent_word, child_word, tls, _]) = frame.call();
    if flags & (CLONE_VM | CLONE_THREAD) == 0 && stack == 0 {
        return fork(task, frame);
    }
    if flags & (CLONE_VM | CLONE_THREAD) != CLONE_VM | CLONE_THREAD {
        return Err(ENOSYS);
    }
    let thread_pointer = if flags & CLONE_SETTLS != 0 {
        tls
    } else {
        task.thread_pointer()
    };
    if thread_pointer >= crate::memory::USER_END {
        return Err(EINVAL);
    }
    let mut start = frame.with_stack(stack);
    if flags & CLONE_SETTLS != 0 {
        start = start.with_thread_pointer(thread_pointer);
    }
    start.set_result(0);
    let child = Task::new(
        task.process.clone(),
        task::next_id(),
        start,
        thread_pointer,
        task.fpu_now(),
    )
    .ok_or(ENOMEM)?;
    let id = u64::from(child.id);
    if flags & CLONE_CHILD_CLEARTID != 0 {
        child.clear_at_end.set(child_word);
    }
    for (flag, word) in [(CLONE_PARENT_SETTID, parent_word), (CLONE_CHILD_SETTID, child_word)] {
        if flags & flag != 0 {
            // As Linux does: the thread exists, even if its number could not be written.
            let _written = user::write(word, &(id as u32).to_le_bytes());
        }
    }
    task::wake(child);
    Ok(id)
}

/// A copy of the process, with a copy of this thread in it.
fn fork(task: &Arc<Task>, frame: &Frame) -> Result<u64, Errno> {
    let process = task.process.fork().ok_or(ENOMEM)?;
    let id = process.id;
    let mut start = *frame;
    start.set_result(0);
    let child = Task::new(Arc::clone(&process), id, start, task.thread_pointer(), task.fpu_now()).ok_or(ENOMEM)?;
    // A thread first: to a waiter, a process without one has ended.
    task.process.adopt(process);
    task::wake(child);
    Ok(u64::from(id))
}

fn wait_for(process: &Process, number: u64, to: u64, options: u64) -> Result<u64, Errno> {
    if options != 0 {
        return Err(EINVAL);
    }
    let (id, status) = process.wait_for(number as i32 as i64)?;
    if to != 0 {
        // In Linux's encoding: the exit status, or the number of the signal.
        let packed = if status > 128 { status - 128 } else { status << 8 };
        user::write(to, &packed.to_le_bytes())?;
    }
    Ok(u64::from(id))
}
