//! The engine on host threads: each virtual CPU is a thread with a software TLB that only this thread accesses.
//!
//! For emulators. A virtual CPU runs guest code block by block. Between two blocks, at a *safe point*, it checks for
//! interrupts. The world is never stopped: a thread that unmaps a guest page interrupts only the CPUs that may have it
//! in their TLB, and waits only for those.
//!
//! ```text
//!   facade.rs     atomics of the host; a wait that yields
//!   threads.rs    Threads: the hooks of the engine, on threads
//!   cpu.rs        Cpu: a thread that is a CPU; its safe points
//!   tlb.rs        a software TLB, ready to use
//!   broadcast.rs  broadcast invalidation, carried out at safe points
//! ```
//!
//! `examples/tiny_emulator.rs` is a complete small emulator. In short:
//!
//! ```
//! use shootdown::{Engine, Machine, PerCpu, Policy, Range, Root, Storage};
//! use shootdown_host::{Cpu, Threads, Tlb};
//!
//! let mut cpus: Vec<_> = (0..2).map(|_| PerCpu::new()).collect();
//! let threads = Threads::new(2, |_cpu| Tlb::<u64, u64>::new());
//! let storage = Storage { cpus: &mut cpus, tags: &mut [] };
//! let engine: Engine<'_, _, 1> = Engine::new(threads, Policy::IPI.on(Machine::PCID), Root(0), storage);
//! let space = engine.space(Root(1));
//! std::thread::scope(|scope| {
//!     for id in 0..2 {
//!         let (engine, space) = (&engine, &space);
//!         scope.spawn(move || {
//!             let cpu = Cpu::attach(engine, id);
//!             // SAFETY: the space outlives all threads.
//!             unsafe { engine.switch_to(space) };
//!             cpu.mmu().fill(0x5000, 7, false); // a guest access that missed
//!             cpu.safe_point(); // between two blocks
//!             let _flushed = engine.flush(space, Range::page(0x5000));
//!             assert_eq!(cpu.mmu().lookup(0x5000), None);
//!         });
//!     }
//! });
//! ```
//!
//! A CPU must not block without passing safe points, because other CPUs wait for it. Take locks by [`Cpu::lock`], sleep
//! by [`Cpu::halt`], and detach (drop the [`Cpu`]) around system calls that may take long.

mod broadcast;
mod cpu;
mod facade;
mod mail;
mod threads;
mod tlb;

pub use cpu::Cpu;
pub use facade::Host;
pub use threads::{Mmu, Threads};
pub use tlb::Tlb;
