//! [`Threads`]: the hooks of the engine, where a CPU is a thread and an interrupt is a bit that it polls.

use crate::facade::{Host, POLLED, Poll};
use crate::mail::Mail;
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{Parker, Unparker};
use shootdown::{Broadcast, BroadcastLimits, CpuId, CpuMask, Kernel, Local, Root, Stuck, Tag};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Instant;

/// The translation state of a virtual CPU. Only the CPU's own thread calls it. [`Tlb`](crate::Tlb) is one.
pub trait Mmu: Send + 'static {
    /// Carries out one invalidation; complete on return.
    fn invalidate(&mut self, what: Local);

    /// Makes `root` the root that a miss walks, under `tag`. Without `keep`, drops every non-global entry of the tag.
    fn load_root(&mut self, root: Root, tag: Tag, keep: bool);

    /// Carries out this CPU's part of a broadcast. The default uses [`invalidate`](Self::invalidate).
    fn broadcast(&mut self, what: Broadcast) {
        match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => {
                for page in 0..u64::from(count) {
                    self.invalidate(Local::Page {
                        address: address + (page << stride.shift()),
                        stride,
                        tag,
                        leaf_only,
                    });
                }
            }
            Broadcast::Tag(tag) => self.invalidate(Local::Tag(tag)),
            // There is no local form for links under every tag, nor for everything except global entries.
            Broadcast::Kernel { .. } | Broadcast::NonGlobal | Broadcast::All => self.invalidate(Local::All),
        }
    }
}

/// Bits of [`Slot::pokes`].
pub(crate) const INTERRUPT: u32 = 1;
pub(crate) const MAIL: u32 = 2;

/// One CPU, as other threads see it.
pub(crate) struct Slot<M> {
    /// Pending work of its thread. The only word that a safe point reads.
    pub(crate) pokes: AtomicU32,
    /// Whether a thread is this CPU.
    pub(crate) attached: AtomicBool,
    pub(crate) mail: Mail,
    unparker: Unparker,
    pub(crate) own: Own<M>,
}

/// State that only the CPU's own thread accesses.
pub(crate) struct Own<M> {
    pub(crate) mmu: RefCell<M>,
    pub(crate) masked: Cell<bool>,
    pub(crate) parker: Parker,
    /// Interrupts sent. Written by the owner, read by any thread.
    pub(crate) sent: AtomicU64,
}

impl<M> Slot<M> {
    /// Interrupts the CPU, asleep or not.
    pub(crate) fn poke(&self, bit: u32) {
        // Release: the request precedes it. Pairs with the acquire in `take`. If the bit is already set, the CPU that
        // set it wakes the thread.
        if self.pokes.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.unparker.unpark();
        }
    }

    /// Clears `bit`. Returns whether it was set. Called by the owner, before it serves the request.
    pub(crate) fn take(&self, bit: u32) -> bool {
        self.pokes.load(Ordering::Relaxed) & bit != 0 && self.pokes.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        self.unparker.unpark();
    }
}

pub(crate) struct Machine<M> {
    number: u64,
    pub(crate) slots: Box<[CachePadded<Slot<M>>]>,
}

// SAFETY: `Slot::own` is the only part that is not `Sync` by itself. `Machine::own` gives it only to the thread that
// `enter` has made the CPU: `attached` lets one thread in at a time, and its exchanges order one thread's accesses
// before the next one's. `M` is used by several threads in turn, so it must be `Send`.
unsafe impl<M: Send> Sync for Machine<M> {}

thread_local! {
    /// The machine and the CPU that this thread is. Machines are numbered from 1.
    static CURRENT: Cell<(u64, CpuId)> = const { Cell::new((0, 0)) };
}

impl<M: Mmu> Poll for Machine<M> {
    fn poll(&self) {
        self.take_mail(self.cpu());
    }
}

impl<M: Mmu> Machine<M> {
    /// The CPU of this thread.
    pub(crate) fn cpu(&self) -> CpuId {
        let (machine, cpu) = CURRENT.get();
        assert_eq!(
            machine, self.number,
            "this thread is no CPU of this machine: Cpu::attach"
        );
        cpu
    }

    /// State of this thread's CPU.
    pub(crate) fn own(&self) -> &Own<M> {
        &self.slots[self.cpu()].own
    }

    /// Makes this thread CPU `cpu`.
    pub(crate) fn enter(self: &Arc<Self>, cpu: CpuId) {
        assert_eq!(CURRENT.get().0, 0, "this thread is a CPU already");
        assert!(
            !self.slots[cpu].attached.swap(true, Ordering::AcqRel),
            "another thread is CPU {cpu}"
        );
        // Attached, then everything is flushed. Pairs with the full barrier before `Kernel::broadcast` reads which CPUs
        // are attached.
        fence(Ordering::SeqCst);
        CURRENT.set((self.number, cpu));
        POLLED.set(Some(self.clone()));
    }

    /// Detaches this thread from CPU `cpu`.
    pub(crate) fn leave(&self, cpu: CpuId) {
        self.take_mail(cpu);
        POLLED.set(None);
        CURRENT.set((0, 0));
        self.slots[cpu].attached.store(false, Ordering::Release);
    }
}

/// Virtual CPUs on threads, as the engine's kernel. A thread becomes a CPU by [`Cpu::attach`](crate::Cpu::attach).
///
/// A thread does not migrate between virtual CPUs while it is attached, so pinning does nothing. Interrupts are taken
/// only at safe points; masking them sets a flag.
pub struct Threads<M> {
    pub(crate) machine: Arc<Machine<M>>,
    limits: Option<BroadcastLimits>,
    begun: Instant,
    on_stuck: fn(Stuck),
}

impl<M: Mmu> Threads<M> {
    /// `cpus` virtual CPUs, none of them attached to a thread; `mmu` creates the translation state of each.
    pub fn new(cpus: usize, mut mmu: impl FnMut(CpuId) -> M) -> Self {
        static MACHINES: AtomicU64 = AtomicU64::new(1);
        let slot = |cpu| {
            let parker = Parker::new();
            CachePadded::new(Slot {
                pokes: AtomicU32::new(0),
                attached: AtomicBool::new(false),
                mail: Mail::new(),
                unparker: parker.unparker().clone(),
                own: Own {
                    mmu: RefCell::new(mmu(cpu)),
                    masked: Cell::new(false),
                    parker,
                    sent: AtomicU64::new(0),
                },
            })
        };
        Threads {
            machine: Arc::new(Machine {
                number: MACHINES.fetch_add(1, Ordering::Relaxed),
                slots: (0..cpus).map(slot).collect(),
            }),
            limits: None,
            begun: Instant::now(),
            on_stuck: |stuck| eprintln!("{stuck}"),
        }
    }

    /// Enables broadcast invalidation of up to `max_pages` pages at once. Every attached CPU carries it out at its next
    /// safe point, even with interrupts masked or while it waits, and the synchronisation waits for all of them. For
    /// designs that broadcast. It is not faster than interrupts, because it involves every CPU.
    pub fn with_broadcast(mut self, max_pages: u32) -> Self {
        self.limits = Some(BroadcastLimits {
            max_pages,
            max_large_pages: max_pages,
        });
        self
    }

    /// Calls `report` when a CPU has not answered within the design's bound (C7). The default prints to standard error.
    pub fn on_stuck(mut self, report: fn(Stuck)) -> Self {
        self.on_stuck = report;
        self
    }

    /// Interrupts sent so far, by all CPUs.
    pub fn interrupts_sent(&self) -> u64 {
        let slots = self.machine.slots.iter();
        slots.map(|slot| slot.own.sent.load(Ordering::Relaxed)).sum()
    }

    /// Wakes `cpu` from [`Cpu::halt`](crate::Cpu::halt). Any thread.
    pub fn wake(&self, cpu: CpuId) {
        self.machine.slots[cpu].wake();
    }
}

// SAFETY: a CPU is one host thread, interrupts are polled at safe points, and invalidations are its own table's.
unsafe impl<M: Mmu, const W: usize> Kernel<W> for Threads<M> {
    // A CPU is a thread, on any processor of the host.
    const PREEMPTIBLE: bool = false;
    type Facade = Host;

    fn cpu(&self) -> CpuId {
        self.machine.cpu()
    }
    fn interrupts_off(&self) -> u64 {
        u64::from(self.machine.own().masked.replace(true))
    }
    fn interrupts_restore(&self, saved: u64) {
        self.machine.own().masked.set(saved != 0);
    }
    fn send_ipi(&self, targets: &CpuMask<W>) {
        let sent = &self.machine.own().sent;
        sent.store(sent.load(Ordering::Relaxed) + targets.len() as u64, Ordering::Relaxed);
        for cpu in targets.iter() {
            self.machine.slots[cpu].poke(INTERRUPT);
        }
    }
    fn invalidate(&self, what: Local) {
        self.machine.own().mmu.borrow_mut().invalidate(what);
    }
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        self.machine.own().mmu.borrow_mut().load_root(root, tag, keep);
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.limits
    }
    fn broadcast_interrupts(&self) -> bool {
        true
    }
    fn broadcast(&self, what: Broadcast) {
        self.machine.broadcast(what);
    }
    fn broadcast_sync(&self) {
        self.machine.broadcast_sync();
    }
    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
    fn stuck(&self, report: Stuck) {
        (self.on_stuck)(report);
    }
}
