//! Unmodified Linux programs: static ELF files, with threads, that use only the calls of `calls.rs`.
//!
//! The runs are in the archive that the loader passes beside the kernel: the file `plan`, with a program and its
//! arguments in each line, and the programs. Reports go to the second serial port, like those of `workloads/init.c` on
//! Linux: the output of the program, and a line of JSON when it has ended.
//!
//! | task | files |
//! | --- | --- |
//! | loading a program | `archive.rs`, `elf.rs` |
//! | threads, and which CPU runs them | `task.rs`, `process.rs`, `futex.rs` |
//! | entry and exit | `arch/*/user.rs`; the engine's part: `inside.rs` |
//! | system calls | `calls.rs`, `memory.rs`, `files.rs`, `pinning.rs`, `user.rs`, `errno.rs` |

pub mod archive;
pub mod calls;
mod elf;
mod errno;
mod files;
mod futex;
pub mod inside;
mod memory;
mod pinning;
pub mod process;
pub mod task;
mod user;

use crate::arch::traps::Frame;
use crate::arch::user::Fpu;
use crate::options::Options;
use crate::serial::{self, Status};
use crate::space::AddressSpace;
use crate::{cpu, smp};
use ::alloc::format;
use ::alloc::string::String;
use ::alloc::sync::Arc;
use ::alloc::vec::Vec;
use core::sync::atomic::Ordering;
use process::Process;
use shootdown::Reach;
use task::Task;

/// Runs the plan and ends.
pub fn run(options: &Options) -> ! {
    let Some(plan) = archive::file("plan").and_then(|plan| core::str::from_utf8(plan).ok()) else {
        serial::print_last(format_args!(
            "shootdown kernel: workload=linux: no plan; give QEMU an archive with it by -initrd"
        ));
        serial::exit(Status::Usage);
    };
    if crate::engine().policy().reach == Reach::Adaptive {
        let _costs = crate::engine().calibrate();
    }
    serial::report_line(format_args!(
        "{{\"kernel\":\"shootdown {} {}\"}}",
        env!("CARGO_PKG_VERSION"),
        options.design_name
    ));
    let mut failed = false;
    for line in plan.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [program, ..] = words.as_slice() {
            let before = interrupts();
            let status = execute(program, &words).unwrap_or_else(|why| {
                serial::report_line(format_args!("{program}: {why}"));
                process::LACKING
            });
            failed |= status != 0;
            serial::report_line(format_args!(
                "{{\"ran\":\"{program}\",\"status\":{status},\"shootdown_interrupts\":{}}}",
                interrupts() - before
            ));
        }
    }
    serial::report_line(format_args!("{{\"done\":true}}"));
    serial::exit(if failed { Status::Failure } else { Status::Success })
}

/// Shootdown interrupts that all CPUs have taken, and those for emulated broadcasts.
fn interrupts() -> u64 {
    let taken = cpu::all()
        .iter()
        .map(|cpu| cpu.counts.taken.load(Ordering::Acquire) + cpu.counts.emulation.load(Ordering::Acquire));
    taken.sum()
}

/// Runs one program to its end; returns its exit status.
fn execute(program: &str, arguments: &[&str]) -> Result<i32, String> {
    let file = archive::file(program.trim_start_matches('/')).ok_or("no such file in the archive")?;
    let space = AddressSpace::new().ok_or("no memory")?;
    let process = Process::new(space, memory::Addresses::new(0), files::Files::new());
    // Loaded through its own translations.
    process.space().enter();
    let loaded = elf::load(process.space(), file, arguments);
    AddressSpace::leave();
    let loaded = loaded.map_err(|why| format!("cannot be run: {why}"))?;
    *process.addresses.write() = loaded.addresses;
    let frame = Frame::user(loaded.entry, loaded.stack);
    let first = Task::new(Arc::clone(&process), process.id, frame, 0, Fpu::new()).ok_or("no memory")?;
    task::wake(first);
    smp::on_all(cpu::all().len(), task::serve);
    Ok(process.status())
}
