//! A small SMP kernel for x86-64 that runs the shootdown engine on real page tables, real interrupts and real instructions.
//!
//! Read `hooks.rs` first: it is all that the engine asks of a kernel. `space.rs` shows when the engine is called.
//!
//! | what | where |
//! | --- | --- |
//! | the engine's hooks; its waiting | `hooks.rs`, `facade.rs` |
//! | address spaces, page tables, physical pages | `space.rs`, `paging.rs`, `frames.rs`, `reclaim.rs` |
//! | the address-space lock, whose waiters sleep | `sleeping.rs` |
//! | the processor | `arch/` |
//! | INVLPGB and TLBSYNC where the processor lacks them | `emulate.rs` |
//! | what is run | `workloads.rs`, `torture/`, `linux/` (unmodified programs) |
//! | known bugs, and which of them show here | `faults.rs` |
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod backing;
mod emulate;
mod facade;
mod faults;
mod frames;
mod hooks;
mod jitter;
mod linux;
mod measure;
mod memory;
mod options;
mod paging;
mod reclaim;
mod serial;
mod sleeping;
mod space;
mod torture;
mod workloads;

use alloc::boxed::Box;
use alloc::string::String;
use arch::cpu::Cpu;
use arch::{acpi, apic, boot, cpu, features, smp, time};
use core::alloc::Layout;
use core::sync::atomic::AtomicU64;
use hooks::{Hooks, WORDS};
use memory::Frame;
use options::Options;
use pvh::start_info::MemmapType;
use pvh::start_info::reader::{MemMap, StartInfoReader};
use serial::Status;
use shootdown::{Engine, PerCpu, Reach, Root, Storage, Tags, tag_words};
use spin::Once;

/// The heap: small things that live long. Pages come from `frames`.
const HEAP: usize = 8 << 20;
/// Large pages kept for those who map them.
const LARGE_PAGES: u32 = 8;

#[global_allocator]
static ALLOCATOR: talc::TalcLock<arch::lock::Mutex<()>, talc::source::Claim> = talc::TalcLock::new({
    static mut MEMORY: [u8; HEAP] = [0; HEAP];
    // SAFETY: the allocator alone uses it.
    unsafe { talc::source::Claim::array(&raw mut MEMORY) }
});

/// The engine of this machine.
pub type Sys = Engine<'static, Hooks, WORDS>;

static ENGINE: Once<Sys> = Once::new();

/// The engine. Set up before the second CPU starts.
#[inline]
pub fn engine() -> &'static Sys {
    ENGINE.get().expect("set up at boot")
}

/// The top table that maps the kernel only.
pub fn kernel_root() -> Frame {
    Frame::at(boot::root())
}

/// What the loader told.
struct Told {
    line: &'static str,
    memory_end: u64,
    root_pointer: u64,
}

/// The first CPU comes here from `boot`, on the boot stack, with the lower half still mapped.
extern "C" fn first_cpu(start_info: u32) -> ! {
    serial::set_up();
    let told = read_start_info(start_info);
    let options = match Options::read(told.line) {
        Ok(options) => options,
        Err((word, why)) => refuse(word, why),
    };
    apic::choose_mode();
    features::get();
    cpu::set_up(&acpi::cpus(told.root_pointer, apic_id_of_first()));
    let me = &cpu::all()[0];
    // SAFETY: once, by the first CPU.
    unsafe { smp::set_up_this_cpu(me) };
    me.up.store(true, core::sync::atomic::Ordering::Release);
    time::set_up(options.icount);
    frames::set_up(memory::image_end(), told.memory_end, LARGE_PAGES);
    set_up_engine(&options);
    come_online(me);
    smp::start_others();
    paging::finish_kernel_root(kernel_root());
    smp::on_all(cpu::all().len(), |_| arch::invalidate::everything());
    run(&options)
}

/// Every other CPU comes here, on a stack of its own.
extern "C" fn other_cpu(id: usize) -> ! {
    let me = &cpu::all()[id];
    // SAFETY: once, by the CPU whose number it is.
    unsafe { smp::set_up_this_cpu(me) };
    come_online(me);
    me.up.store(true, core::sync::atomic::Ordering::Release);
    smp::serve_jobs(me)
}

/// Brings this CPU into the engine. Interrupts are off, and come on.
fn come_online(me: &Cpu) {
    me.mail.attach();
    engine().cpu_online();
    x86_64::instructions::interrupts::enable();
}

/// The number of the first CPU, before it has a structure of its own.
fn apic_id_of_first() -> u32 {
    apic::enable();
    apic::id()
}

fn set_up_engine(options: &Options) {
    let cpus = cpu::all().len();
    let features = features::get();
    let emulated = options.emulate && features.broadcast.is_none();
    if emulated && !matches!(options.design.reach, Reach::Ipi | Reach::None) {
        time::take_up(time::MAIL);
    }
    let hooks = Hooks {
        broadcast: features.broadcast.or(emulated.then(emulate::limits)),
        emulated,
        #[cfg(feature = "faults")]
        fault: options.fault.map(|name| match faults::named(name) {
            Some(fault) => fault,
            None => refuse(name, "no such fault: workload=faults lists them"),
        }),
    };
    if cfg!(not(feature = "faults"))
        && let Some(name) = options.fault
    {
        refuse(name, "built without faults: cargo build --release --features faults");
    }
    let design = if options.workload == "torture" {
        torture::tightened(options.design, cpus)
    } else {
        options.design
    };
    let tags = if design.tags == Tags::PerCpu {
        0
    } else {
        tag_words(design.tag_limit)
    };
    let storage = Storage {
        cpus: Box::leak((0..cpus).map(|_| PerCpu::new()).collect()),
        tags: Box::leak((0..tags).map(|_| AtomicU64::new(0)).collect()),
    };
    ENGINE.call_once(|| Engine::new(hooks, design, Root(boot::root()), storage));
}

fn run(options: &Options) -> ! {
    match options.workload {
        "hello" => {
            println!(
                "shootdown kernel: {} CPUs, design {}, {:?}, {} ticks per second",
                cpu::all().len(),
                options.design_name,
                features::get(),
                time::hertz()
            );
            serial::exit(Status::Success)
        }
        "faults" => {
            faults::list();
            serial::exit(Status::Success)
        }
        "torture" => torture::run(options),
        "linux" => linux::run(options),
        name => match workloads::named(name) {
            Some(workload) => workloads::run(workload, options),
            None => refuse(name, "no such workload"),
        },
    }
}

fn refuse(word: &str, why: &str) -> ! {
    serial::print_last(format_args!("shootdown kernel: `{word}`: {why}"));
    serial::exit(Status::Usage)
}

struct DirectMap;

impl MemMap for DirectMap {
    fn ptr(&self, address: usize, layout: Layout) -> *const u8 {
        if address as u64 + layout.size() as u64 > memory::DIRECT_BYTES {
            return core::ptr::null();
        }
        memory::direct(address as u64)
    }
}

fn read_start_info(address: u32) -> Told {
    // SAFETY: the loader passes the address of a valid structure, which nobody writes.
    let reader = unsafe { StartInfoReader::from_paddr(address, DirectMap) }.expect("the loader says where it is");
    if let Some(module) = reader.modlist().next() {
        linux::archive::keep(module.as_slice());
    }
    let line = reader.cmdline().map_or("", |line| line.to_str().unwrap_or(""));
    // What holds the kernel: the memory that it was loaded into.
    let image = memory::image_end();
    let memory_end = reader
        .memmap()
        .iter()
        .filter(|entry| {
            entry.ty == u32::from(MemmapType::Ram) && entry.addr <= image && image < entry.addr + entry.size
        })
        .map(|entry| entry.addr + entry.size)
        .next()
        .expect("the memory map covers the kernel");
    Told {
        line: Box::leak(String::from(line).into_boxed_str()),
        memory_end: memory_end.min(memory::DIRECT_BYTES),
        root_pointer: reader.raw().rsdp_paddr,
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    x86_64::instructions::interrupts::disable();
    serial::print_last(format_args!("{info}"));
    serial::exit(Status::Failure)
}
