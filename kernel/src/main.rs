//! A small SMP kernel that runs the shootdown engine on real page tables, real interrupts and real
//! instructions.
//!
//! Read `hooks.rs` first: it has the engine's hooks. `space.rs` shows when the engine is called.
//!
//! | part | files |
//! | --- | --- |
//! | the engine's hooks; its waiting | `hooks.rs`, `facade.rs` |
//! | address spaces, page tables, physical pages | `space.rs`, `paging.rs`, `frames.rs`, `reclaim.rs` |
//! | changes that are not flushed yet | `unflushed.rs` |
//! | the address-space lock, whose waiters sleep | `sleeping.rs` |
//! | delay before a flush, for tests | `window.rs` |
//! | the processor, the board and its loader; page-table entries | `arch/`, a folder for each instruction set |
//! | CPUs, their jobs and stacks, interrupt handlers, time | `cpu.rs`, `smp.rs`, `stacks.rs`, `trap.rs`, `time.rs` |
//! | programs | `workloads.rs`, `table.rs` (designs in one boot), `torture/`, `linux/` (unmodified programs) |
//! | the effect of each invalidating instruction | `operands.rs` |
#![no_std]
#![no_main]

extern crate alloc;
#[cfg(feature = "known-bugs")]
extern crate shootdown_cpu_patched as shootdown_cpu;
#[cfg(feature = "known-bugs")]
extern crate shootdown_patched as shootdown;

mod arch;
mod backing;
mod counters;
mod cpu;
mod facade;
mod frames;
mod hooks;
mod invalidate;
mod jitter;
mod linux;
mod lock;
mod measure;
mod memory;
mod operands;
mod options;
mod paging;
mod probe;
mod reclaim;
mod region;
mod serial;
mod sleeping;
mod smp;
mod space;
mod stacks;
mod table;
mod time;
mod torture;
mod trap;
mod unflushed;
mod window;
mod workloads;

use alloc::boxed::Box;
use arch::interrupts::without_interrupts;
use arch::{boot, controller, features, interrupts};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use cpu::Cpu;
use hooks::{Hooks, WORDS};
use options::Options;
use serial::Status;
use shootdown::{Design, Engine, Local, PerCpu, Reach, Root, Storage, Tags, tag_words};

/// The heap, for small objects. Pages and stacks come from `frames`.
const HEAP: usize = 8 << 20;
/// Large pages that are reserved for mappings.
const LARGE_PAGES: u32 = 8;

#[global_allocator]
static ALLOCATOR: talc::TalcLock<lock::Mutex<()>, talc::source::Claim> = talc::TalcLock::new({
    static mut MEMORY: [u8; HEAP] = [0; HEAP];
    // SAFETY: the allocator alone uses it.
    unsafe { talc::source::Claim::array(&raw mut MEMORY) }
});

/// The engine of this machine.
pub type Sys = Engine<'static, Hooks, WORDS>;

static ENGINE: AtomicPtr<Sys> = AtomicPtr::new(core::ptr::null_mut());

/// The engine. Initialised before the second CPU starts.
#[inline]
pub fn engine() -> &'static Sys {
    // SAFETY: engines are leaked, and the first one exists before any use.
    unsafe { &*ENGINE.load(Ordering::Acquire) }
}

/// Replaces the engine by one with that design. No space of the old one is left, and this runs on the first CPU.
fn replace_engine(options: &Options, design: Design) {
    smp::on_all(cpu::all().len(), |cpu| {
        without_interrupts(|| {
            engine().switch_to_kernel();
            engine().cpu_offline();
            cpu.local.detach();
        });
    });
    // No CPU walks any more.
    reclaim::free_all_that_waits();
    set_up_engine(options, design);
    smp::on_all(cpu::all().len(), |cpu| without_interrupts(|| come_online(cpu)));
}

/// The first CPU enters here from `boot`, on the boot stack.
pub fn first_cpu(boot_info: &boot::BootInfo) -> ! {
    let options = match Options::read(boot_info.line) {
        Ok(options) => options,
        Err((word, why)) => refuse(word, why),
    };
    #[cfg(target_arch = "x86_64")]
    if options.bochs {
        arch::console::in_bochs();
    }
    cpu::set_up(&controller::set_up(boot_info));
    if let Some(Err(why)) = options.paging.map(boot::set_paging) {
        refuse("paging", why);
    }
    if let Some(Err(why)) = options.asid_bits.map(features::limit_asids) {
        refuse("asid_bits", why);
    }
    frames::set_up(memory::image_end(), boot_info.memory_end, LARGE_PAGES);
    let me = &cpu::all()[0];
    // SAFETY: once, by the first CPU.
    unsafe { smp::set_up_this_cpu(me) };
    me.up.store(true, Ordering::Release);
    time::set_up(options.icount);
    window::set(options.linger);
    set_up_engine(&options, options.design);
    come_online(me);
    interrupts::enable();
    smp::start_others();
    paging::finish_kernel_root();
    smp::on_all(cpu::all().len(), |cpu| {
        invalidate::here(cpu, Local::All);
        invalidate::sync();
    });
    run(&options)
}

/// Every other CPU enters here, on its own stack.
pub extern "C" fn other_cpu(id: usize) -> ! {
    let me = &cpu::all()[id];
    // SAFETY: on the CPU with that number, each time it starts.
    unsafe { smp::set_up_this_cpu(me) };
    smp::continue_after_stop(me);
    come_online(me);
    interrupts::enable();
    me.up.store(true, Ordering::Release);
    smp::serve_jobs(me)
}

/// Brings this CPU online in the engine. Interrupts are off.
fn come_online(me: &Cpu) {
    me.local.attach();
    engine().cpu_online();
}

fn set_up_engine(options: &Options, design: Design) {
    let cpus = cpu::all().len();
    let broadcasts = !matches!(design.policy.reach, Reach::Ipi | Reach::None);
    let (processor, emulated) = features::broadcasts(options.emulate, broadcasts);
    let hooks = Hooks {
        processor,
        emulated,
        by_ipi: shootdown_cpu::FlushByIpi::new(),
        silence_is_violation: options.workload == "torture"
            && (options.icount.is_some() || options.bochs && options.fault.is_some()),
    };
    if let Some(name) = options.fault {
        select_bug(name);
    }
    let design = features::on_this_machine(options.with_errata(design));
    let design = if options.workload == "torture" {
        torture::tightened(design, cpus, options.tags)
    } else {
        design
    };
    let tags = if design.policy.tags == Tags::PerCpu {
        0
    } else {
        tag_words(design.machine.tag_limit)
    };
    let storage = Storage {
        cpus: Box::leak((0..cpus).map(|_| PerCpu::new()).collect()),
        tags: Box::leak((0..tags).map(|_| AtomicU64::new(0)).collect()),
    };
    let engine = Engine::new(hooks, design, Root(boot::root()), storage);
    ENGINE.store(Box::into_raw(Box::new(engine)), Ordering::Release);
}

/// Selects a bug in the copy of the engine that contains all of them.
fn select_bug(name: &str) {
    #[cfg(feature = "known-bugs")]
    match shootdown_known_bugs::named(name) {
        None if name == "AcknowledgedLate" => trap::ACKNOWLEDGES_LATE.store(true, Ordering::Relaxed),
        None => refuse(name, "no such bug: crates/shootdown-known-bugs/bugs.toml lists them"),
        bug => shootdown_known_bugs::select_everywhere(bug),
    }
    #[cfg(not(feature = "known-bugs"))]
    refuse(name, "built without bugs: cargo build --release --features known-bugs");
}

fn run(options: &Options) -> ! {
    match options.workload {
        "hello" => {
            #[cfg(target_arch = "x86_64")]
            controller::survive_nmis();
            println!(
                "shootdown kernel: {} CPUs, design {}, {:?}, {} ticks per second, tags: {}",
                cpu::all().len(),
                options.design_name,
                features::get(),
                time::hertz(),
                features::tags_in_words()
            );
            serial::exit(Status::Success)
        }
        "torture" => torture::run(options),
        "operands" => operands::run(options),
        "linux" => linux::run(options),
        name => match workloads::named(name) {
            Some(workload) if options.table => table::run(workload, options),
            Some(workload) => workloads::run(workload, options),
            None => refuse(name, "no such workload"),
        },
    }
}

fn refuse(word: &str, why: &str) -> ! {
    serial::print_last(format_args!("shootdown kernel: `{word}`: {why}"));
    serial::exit(Status::Usage)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    interrupts::disable();
    serial::print_last(format_args!("{info}"));
    serial::exit(Status::Failure)
}
