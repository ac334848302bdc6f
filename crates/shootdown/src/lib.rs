//! TLB coherence as a library: the engine of Shootdown.
//!
//! When a kernel changes a page-table entry, every CPU that has cached the old translation must drop it before the page
//! behind it is reused. This crate does that for kernels, hypervisors and emulators, on per-CPU or system-wide tags, by
//! interrupts or by broadcast. It does not allocate, and the flush, switch and interrupt paths take no locks. The one
//! exception is the roll-over of system-wide tags, which takes a lock with interrupts off.
//!
//! # Concepts
//! * A [`Space`] is an address space. Its **generation** counts flush requests. A CPU's tag slot records the generation
//!   that it has seen, and catches up when it is behind.
//! * A [`Policy`] is one setting per axis: how tags are allocated, how invalidations reach other CPUs, which CPUs are
//!   interrupted, how a request is passed on. Published designs are presets. A [`Machine`] states the processor's tags
//!   and errata. A [`Design`] is a policy on a machine.
//! * The kernel implements [`Kernel`] (six required functions and one constant) and picks a [`Facade`] (atomics and
//!   barriers; `Native` on real processors).
//!
//! # The calls
//! | when | call |
//! | --- | --- |
//! | a CPU comes online or goes offline | [`Engine::cpu_online`], [`Engine::cpu_offline`] |
//! | user code enters the kernel | [`Engine::enter_kernel`], optional |
//! | the scheduler switches | [`Engine::switch_to`], [`Engine::switch_to_kernel`] |
//! | a CPU enters or leaves lazy TLB mode | [`Engine::enter_lazy`], [`Engine::leave_lazy`] |
//! | an NMI handler is about to access user addresses | [`Engine::user_access_ok`] |
//! | the shootdown interrupt arrives | [`Engine::on_ipi`] |
//! | a lock is waited for with interrupts off | [`Engine::poll`], in the loop |
//! | page-table entries were cleared or weakened | [`Engine::flush`], or [`Engine::dispatch`] and [`Token::wait`] |
//! | a range of one space is unmapped, with frames to free | [`Engine::gather`] |
//! | many spaces at once | [`Engine::batch`], and [`Engine::flush_pending`] before relying on a cleared entry |
//! | private memory was unmapped, frames can wait | [`Engine::flush_later`], and [`Engine::tick`] on every CPU |
//! | kernel mappings changed | [`Engine::flush_kernel`] |
//! | a fault at an address whose entry is valid | [`Engine::spurious_fault`] |
//! | page tables are read without a lock | [`Engine::walk`] |
//! | page-table pages were unlinked | [`Engine::flush_tables`], or [`Engine::flush`] and [`Engine::retire_tables`] |
//! | the same, pages can wait | [`Engine::flush_tables_later`], and [`Engine::quiescent`] on every CPU |
//! | a space ends | [`Engine::retire`] |
//! | all CPUs are up, once | [`Engine::calibrate`], for [`Reach::Adaptive`] |
//!
//! # The contract, and where it is kept
//! | | what | where |
//! | --- | --- | --- |
//! | C1 | after a flush no CPU uses the old translation | `flush/mod.rs` (`publish_and_count`), `cpu/switch.rs` |
//! | C1 | a CPU that was away catches up first | `cpu/catch_up.rs` |
//! | C2 | frames are freed only after that | [`Flushed`], the proof that [`Token::wait`] returns |
//! | C1, C2 | relaxed, opt-in: until its quarantine ends | `flush/deferred.rs`, [`Free::Deferred`] |
//! | C1 | a target that uses nothing meanwhile may answer first | `transport/early_ack.rs`, [`Ack::Early`] |
//! | C3 | page-table pages outlive cached links to them | [`Range::with_tables`], `cpu/catch_up.rs` |
//! | | on CPUs in lazy TLB mode too | `flush/targets.rs` |
//! | | and after every lockless walk that could hold a pointer to them | [`TablesFree`], the proof; `walk/` |
//! | C1-C3 | the same for TLBs that belong to no CPU | `transport/secondary.rs`, [`Kernel::secondary`] |
//! | C4 | a tag gets a new owner only when no CPU holds entries under it | `tags/`, `cpu/switch.rs` (`load_slot`) |
//! | C5 | handlers take no lock; waiters serve requests | `transport/handler.rs`, `cpu/wait.rs` |
//! | | no CPU waits for an offline one | `cpu/hotplug.rs` |
//! | C6 | in any doubt, flush more | `space/log.rs`, `cpu/catch_up.rs` (`missed`), `range.rs`, `tags/pool.rs` |
//! | C7 | a long wait is reported, never abandoned | `cpu/wait.rs`, [`Kernel::stuck`] |
//!
//! # Where to read
//! `engine.rs` holds all state and nothing of the protocol. The protocol is `impl Engine`, in folders above it; each
//! folder's `mod.rs` has its invariants, and its barriers with their partners, as two columns. A file imports only
//! files of its layer or below (`cargo test -p xtask --test layout`). From above:
//!
//! | layer | files |
//! | --- | --- |
//! | which tag a space has, and what that costs | `tags/`, `adaptive/` |
//! | a flush, from the call to its proof | `flush/` |
//! | lockless walks, and the freeing of page-table pages | `walk/` |
//! | reaching other CPUs | `transport/` |
//! | what a CPU has loaded; waiting for others | `cpu/` |
//! | all state together | `engine.rs` |
//! | state of a CPU, a space, the tags | `state.rs` of each folder, `space/`, `request.rs`, `slots.rs`, `pool.rs` |
//! | values, and the kernel's side | `design/`, `cpuset.rs`, `range.rs`, `adaptive/costs.rs`, `hooks.rs`, `facade.rs` |
#![cfg_attr(not(test), no_std)]
#![warn(clippy::too_many_lines, clippy::excessive_nesting)]

/// The program in the README, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod adaptive;
mod cache_padded;
mod cpu;
pub mod cpuset;
mod design;
mod engine;
pub mod facade;
mod flush;
pub mod hooks;
mod range;
mod space;
mod stuck;
mod tags;
#[cfg(test)]
mod testing;
mod transport;
mod walk;

pub use adaptive::costs::{CONFIRM_STREAK, Costs, EXPLORE_ONE_IN};
pub use cpu::state::PerCpu;
pub use cpuset::{CpuId, CpuMask, CpuSet};
pub use design::{
    Ack, CONSIDER_ONE_IN, Departure, Design, Errata, Exit, Free, MAX_SLOTS, Machine, Order, Policy, Reach, Requests,
    Tags, Targets, USER_HALF, Wait, Walkers,
};
pub use engine::{Engine, Storage, tag_words};
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
pub use facade::Native;
pub use facade::{Facade, Word};
pub use flush::batch::Batch;
pub use flush::deferred::{Deferral, DeferralsOver, Unmapped};
pub use flush::gather::{Freed, Gather, Proof, Room};
pub use flush::token::{Flushed, Token};
pub use hooks::{Answer, Broadcast, BroadcastLimits, Demotion, Event, Kernel, Local, Root, Secondary, Tag, Way};
pub use range::{Chunks, Range, Stride};
pub use space::Space;
pub use space::log::LOG_ENTRIES;
pub use stuck::Stuck;
#[cfg(feature = "rar")]
pub use transport::rar::{RAR_ENTRIES, Rar, RarCpu, RarSignal, RarTable};
pub use walk::{Grace, GracesOver, Retired, TablesFree, Walk};
