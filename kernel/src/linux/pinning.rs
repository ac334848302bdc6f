//! The calls by which a program has its pages pinned: pipes, and moving pages in and out of them without a copy.

use super::errno::{EAGAIN, EFAULT, EINVAL, ENOENT, Errno};
use super::files::{File, Pipe};
use super::process::{self, Process};
use super::{inside, user};
use crate::engine;
use crate::memory::PAGE;
use crate::region::Access;
use crate::serial;
use crate::space::AddressSpace;
use shootdown::{Reach, Walkers};

/// pipe, pipe2: two numbers at `to`.
///
/// # Errors
/// EFAULT.
pub fn pipe(process: &Process, to: u64) -> Result<u64, Errno> {
    let pipe = Pipe::new();
    let (out, into) = {
        let mut files = process.files.lock();
        (files.add(File::PipeOut(pipe.clone())), files.add(File::PipeIn(pipe)))
    };
    user::write(to, &(out as u32).to_le_bytes())?;
    user::write(to + 4, &(into as u32).to_le_bytes())?;
    Ok(0)
}

/// open: of /dev/null only.
///
/// # Errors
/// ENOENT for everything else.
pub fn open(process: &Process, name: u64) -> Result<u64, Errno> {
    match user::string(name)?.as_slice() {
        b"/dev/null" => Ok(process.files.lock().add(File::Null)),
        _ => Err(ENOENT),
    }
}

/// vmsplice: puts whole pages into a pipe, each pinned by a lockless walk. Returns the number of bytes.
///
/// # Errors
/// EINVAL for parts of pages, EFAULT, EAGAIN when the pipe is full (Linux would wait).
pub fn give(process: &Process, fd: u64, list: u64, count: u64) -> Result<u64, Errno> {
    let File::PipeIn(pipe) = process.files.lock().get(fd)?.clone() else {
        return Err(EINVAL);
    };
    let (hooks, reach) = (engine().kernel(), engine().policy().reach);
    let lacking = if engine().policy().walkers == Walkers::None {
        Some("lockless walks under this design")
    } else if reach != Reach::Ipi && hooks.processor.broadcast_limits().is_some() && !hooks.emulated {
        // `AddressSpace::pin` relies on flushes that wait.
        Some("lockless walks beside broadcasts by the processor")
    } else {
        None
    };
    if let Some(what) = lacking {
        serial::report_line(format_args!("this kernel lacks {what}"));
        process.kill(process::LACKING);
        return Err(EINVAL);
    }
    let mut given = 0;
    for piece in 0..count.min(64) {
        let (start, length) = (user::word(list + piece * 16)?, user::word(list + piece * 16 + 8)?);
        let end = start
            .checked_add(length)
            .filter(|&end| end <= crate::memory::USER_END)
            .ok_or(EFAULT)?;
        if !start.is_multiple_of(PAGE) || !end.is_multiple_of(PAGE) {
            return Err(EINVAL);
        }
        for address in (start..end).step_by(PAGE as usize) {
            let page = loop {
                inside::end();
                match process.space().pin(address) {
                    Some(page) => break page,
                    None if process.space().fault(address, Access::data(false)) => {}
                    None => return Err(EFAULT),
                }
            };
            if !pipe.push(page) {
                AddressSpace::release_one(page);
                return if given > 0 { Ok(given) } else { Err(EAGAIN) };
            }
            given += PAGE;
        }
    }
    Ok(given)
}

/// splice, from a pipe to /dev/null: releases pages. Returns the number of bytes.
///
/// # Errors
/// EINVAL for anything else.
pub fn splice(process: &Process, from: u64, to: u64, length: u64) -> Result<u64, Errno> {
    let (File::PipeOut(pipe), File::Null) = ({
        let files = process.files.lock();
        (files.get(from)?.clone(), files.get(to)?.clone())
    }) else {
        return Err(EINVAL);
    };
    let mut gone = 0;
    while gone + PAGE <= length
        && let Some(page) = pipe.pop()
    {
        AddressSpace::release_one(page);
        gone += PAGE;
    }
    Ok(gone)
}
