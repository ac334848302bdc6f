//! The simulated kernel's side of the engine's [`Kernel`] trait: each hook carries the operation out on the simulated
//! hardware and charges its cost.

use super::category::Category;
use super::counts::{Answers, EngineCounts, Roots};
use super::decision_log::DecisionLog;
use super::hook_costs::{HookCosts, RemoteCosts};
use super::hypervisor::VirtualCpu;
use super::preemption::Preemption;
use crate::hw::{HardwareFault, Hw, Isa};
use crate::machine::activity::{What, note};
use crate::machine::{self, SimWorld};
use shootdown::{Broadcast, BroadcastLimits, CpuId, CpuMask, Event, Kernel, Local, Root, Secondary, Stuck, Tag, Way};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The hooks.
pub struct SimKernel {
    pub(super) hw: Rc<RefCell<Hw>>,
    pub(super) isa: Isa,
    costs: HookCosts,
    counts: RefCell<EngineCounts>,
    /// Outcomes of the requests at each CPU, since the machine started.
    answers: RefCell<Vec<Answers>>,
    /// Which space a root belongs to.
    spaces: RefCell<HashMap<u32, u32>>,
    kernel_root: u32,
    /// Of each CPU, since they were last read.
    roots: RefCell<Vec<Roots>>,
    /// When the machine can carry out the next broadcast, cycles.
    broadcast_free: Cell<u64>,
    /// When all broadcasts of each CPU are complete, cycles.
    pub(super) broadcast_done: RefCell<Vec<u64>>,
    /// Broadcasts so far.
    broadcasts: Cell<u64>,
    /// Of these, those that each CPU has received, or sent itself.
    taken_in: RefCell<Vec<u64>>,
    /// Microcode time on each CPU, cycles, that the CPU has not been stalled for yet.
    pub(super) pending_cycles: Rc<RefCell<Vec<u64>>>,
    preemption: Rc<Preemption>,
    /// Callback at the end of a section in which migration was forbidden.
    on_unpin: RefCell<Option<Box<dyn Fn()>>>,
    /// Callback before each root load.
    on_load_root: RefCell<Option<Box<dyn Fn()>>>,
    /// Callback before each local invalidation.
    on_invalidate: RefCell<Option<Box<dyn Fn()>>>,
    /// Remote actions, if the machine has them.
    pub(super) remote: OnceCell<Box<dyn Any>>,
    /// Whether the flush in progress on each CPU reaches other CPUs.
    reaches_others: RefCell<Vec<bool>>,
    /// The log of events, for `explain`.
    decision_log: RefCell<Option<DecisionLog>>,
    /// A hypervisor's record of each virtual CPU, on a virtual machine.
    pub(super) virtual_cpus: OnceCell<Vec<VirtualCpu>>,
    /// Harts that are in the firmware, bit by bit.
    pub(super) in_firmware: Cell<u64>,
}

// SAFETY: a simulated machine and everything on it lives on one host thread; the engine's `Sync` bound is met because
// no second host thread ever sees it (`SimKernel` is not `Send`, being full of `Rc`).
unsafe impl Sync for SimKernel {}

impl SimKernel {
    /// Hooks for a machine of `cpus` CPUs.
    pub fn new(hw: Rc<RefCell<Hw>>, costs: HookCosts, cpus: usize, preemption: Rc<Preemption>) -> Self {
        let isa = hw.borrow().config().isa;
        let kernel_root = hw.borrow().root(0);
        SimKernel {
            hw,
            isa,
            costs,
            counts: RefCell::default(),
            answers: RefCell::new(vec![Answers::default(); cpus]),
            spaces: RefCell::default(),
            kernel_root,
            roots: RefCell::new(vec![Roots::default(); cpus]),
            broadcast_free: Cell::new(0),
            broadcast_done: RefCell::new(vec![0; cpus]),
            broadcasts: Cell::new(0),
            taken_in: RefCell::new(vec![0; cpus]),
            pending_cycles: Rc::new(RefCell::new(vec![0; cpus])),
            preemption,
            on_unpin: RefCell::default(),
            on_load_root: RefCell::default(),
            on_invalidate: RefCell::default(),
            remote: OnceCell::new(),
            reaches_others: RefCell::new(vec![false; cpus]),
            decision_log: RefCell::default(),
            virtual_cpus: OnceCell::new(),
            in_firmware: Cell::new(0),
        }
    }

    /// Registers `root` as the top table of space `number`.
    pub(super) fn know(&self, root: u32, number: u32) {
        self.spaces.borrow_mut().insert(root, number);
    }

    pub(super) fn remote_costs(&self) -> Option<RemoteCosts> {
        self.costs.remote
    }

    /// Nanoseconds as cycles of this machine.
    pub fn cycles(&self, ns: f64) -> u64 {
        (ns * self.costs.ghz).round() as u64
    }

    /// Engine events so far.
    pub fn counts(&self) -> EngineCounts {
        *self.counts.borrow()
    }

    /// Outcomes of the requests at this CPU, so far.
    pub(super) fn own_answers(&self) -> Answers {
        self.answers.borrow()[machine::cpu()]
    }

    /// Resets the counts.
    pub fn reset_counts(&self) {
        *self.counts.borrow_mut() = EngineCounts::default();
    }

    /// Sets a callback for each time that preemption is enabled after a pin: tests migrate the task there.
    pub fn on_unpin(&self, hook: impl Fn() + 'static) {
        *self.on_unpin.borrow_mut() = Some(Box::new(hook));
    }

    /// Sets a callback before every root load, interrupts off: tests let time pass, as a hypervisor does that
    /// deschedules the CPU there.
    pub fn on_load_root(&self, hook: impl Fn() + 'static) {
        *self.on_load_root.borrow_mut() = Some(Box::new(hook));
    }

    /// Sets a callback before every local invalidation, on its CPU: tests raise an NMI there.
    pub fn on_invalidate(&self, hook: impl Fn() + 'static) {
        *self.on_invalidate.borrow_mut() = Some(Box::new(hook));
    }

    /// Starts a log of the engine's events, empty.
    pub fn keep_decision_log(&self, cpus: usize) {
        *self.decision_log.borrow_mut() = Some(DecisionLog::new(cpus));
    }

    /// The measured window begins: requests so far are not counted.
    pub(crate) fn begin_counting(&self) {
        if let Some(decision_log) = &mut *self.decision_log.borrow_mut() {
            decision_log.begin_counting();
        }
    }

    /// The log, if one was kept; logging ends.
    pub fn take_decision_log(&self) -> Option<DecisionLog> {
        self.decision_log.borrow_mut().take()
    }

    /// A flush on this CPU that began at `begun`, cycles, is over.
    pub(super) fn flush_took(&self, begun: u64) {
        if std::mem::take(&mut self.reaches_others.borrow_mut()[machine::cpu()]) {
            let took = machine::now().saturating_sub(begun);
            self.preemption.latencies.shootdown.record(took);
        }
        if let Some(decision_log) = &mut *self.decision_log.borrow_mut() {
            let ns = (machine::now() - begun) as f64 / self.costs.ghz;
            decision_log.took(machine::cpu(), ns);
        }
    }

    /// This CPU has lost the time that broadcasts of other CPUs since the last call took. Between calls the stall time
    /// accumulates, so that a long stretch of computing is stalled at its end.
    pub(super) fn take_in_broadcasts(&self) {
        if self.costs.broadcast_received > 0 || self.costs.remote.is_some() {
            let pending_cycles = self.pending_cycles.borrow()[machine::cpu()];
            machine::charge(pending_cycles + self.forget_broadcasts() * self.costs.broadcast_received);
        }
    }

    /// A sleeping CPU is not stalled. Returns the number of broadcasts that it had not received.
    pub(super) fn forget_broadcasts(&self) -> u64 {
        let (cpu, all) = (machine::cpu(), self.broadcasts.get());
        self.pending_cycles.borrow_mut()[cpu] = 0;
        all - std::mem::replace(&mut self.taken_in.borrow_mut()[cpu], all)
    }

    /// The running CPU has loaded a root, or caught up instead; counted if it is at a switch.
    fn at_switch(&self, flushed: bool) {
        if machine::category() == Category::Switch as u8 {
            let roots = &mut self.roots.borrow_mut()[machine::cpu()];
            roots.kept += u64::from(!flushed);
            roots.flushed += u64::from(flushed);
        }
    }

    /// Root loads at switches of the running CPU since this was last called.
    pub(crate) fn take_roots(&self) -> Roots {
        std::mem::take(&mut self.roots.borrow_mut()[machine::cpu()])
    }

    fn count(&self, change: impl FnOnce(&mut EngineCounts)) {
        change(&mut self.counts.borrow_mut());
    }
}

/// # Panics
/// When the engine made the hardware fault, by an operand that the machine does not support.
fn carried_out(result: Result<u32, HardwareFault>) -> u32 {
    result.unwrap_or_else(|fault| panic!("the engine made the hardware fault: {fault:?}"))
}

// SAFETY: a simulated CPU is one coroutine; masks, pins and invalidations are those of the simulated machine.
unsafe impl<const W: usize> Kernel<W> for SimKernel {
    const PREEMPTIBLE: bool = true;
    type Facade = SimWorld;

    #[inline]
    fn cpu(&self) -> CpuId {
        machine::cpu()
    }

    #[inline]
    fn interrupts_off(&self) -> u64 {
        machine::interrupts_off()
    }

    #[inline]
    fn interrupts_restore(&self, saved: u64) {
        machine::interrupts_restore(saved);
    }

    #[inline]
    fn interrupts_are_off(&self) -> bool {
        !machine::interrupts_enabled()
    }

    fn send_ipi(&self, targets: &CpuMask<W>) {
        note(|| What::Sends(targets.iter().collect()));
        machine::send_ipi(targets.iter());
        note(|| What::SendsEnd);
        if let Some(host) = self.preemption.host() {
            host.has_sent(targets.iter());
        }
    }

    fn invalidate(&self, what: Local) {
        if let Some(hook) = &*self.on_invalidate.borrow() {
            hook();
        }
        self.may_speculate();
        if let Some(cost) = self.invalidate_by_isa(what) {
            machine::charge(u64::from(carried_out(cost)));
            return self.may_speculate();
        }
        // Invalidations are serialising: earlier stores of this CPU are visible first.
        machine::drain_stores();
        machine::synchronise();
        note(|| What::InvalidateBegins);
        let cost = self.hw.borrow_mut().local(machine::cpu(), what, machine::now());
        machine::charge(u64::from(carried_out(cost)));
        note(|| What::InvalidateEnds);
        self.may_speculate();
    }

    #[inline]
    fn local_sync(&self) {
        self.local_sync_by_isa();
    }

    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        if let Some(hook) = &*self.on_load_root.borrow() {
            hook();
        }
        self.may_speculate();
        machine::drain_stores();
        machine::synchronise();
        note(|| What::LoadsRoot { keep });
        let root = root.0 as u32;
        let space = self.spaces.borrow().get(&root).copied().unwrap_or(0);
        match root == self.kernel_root {
            true => self.count(|counts| counts.roots_kernel += 1),
            false => self.at_switch(!keep),
        }
        let left = self.hw.borrow().loaded_tag(machine::cpu());
        let cost = self
            .hw
            .borrow_mut()
            .load_root(machine::cpu(), root, tag.0, keep, space, machine::now());
        machine::charge(u64::from(carried_out(cost)));
        self.await_old_walks(left);
        self.may_speculate();
    }

    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        match self.costs.remote {
            Some(remote) => Some(BroadcastLimits {
                max_pages: remote.max_pages,
                max_large_pages: remote.max_pages,
            }),
            None => self.costs.limits,
        }
    }

    #[inline]
    fn broadcast_is_targeted(&self) -> bool {
        self.costs.remote.is_some()
    }

    fn broadcast_to(&self, targets: &CpuMask<W>, what: Broadcast) {
        self.count(|counts| counts.broadcasts += 1);
        self.act_remotely(targets, what);
    }

    fn broadcast_interrupts(&self) -> bool {
        self.broadcast_interrupts_by_isa()
    }

    fn broadcast(&self, what: Broadcast) {
        if self.costs.remote.is_some() {
            self.count(|counts| counts.broadcasts += 1);
            return self.act_everywhere::<W>(what);
        }
        // Weakly ordered: the store buffer is not drained.
        machine::synchronise();
        note(|| What::Broadcasts);
        let (cpu, now) = (machine::cpu(), machine::now());
        let (instructions, cost) = match self.broadcast_by_isa(what) {
            Some((instructions, cost)) => (instructions, carried_out(cost)),
            None => (1, carried_out(self.hw.borrow_mut().broadcast(cpu, what, now))),
        };
        // The machine carries out one at a time; each is complete some time after its start. How long one occupies the
        // machine depends on the slowest CPU: between zero and twice the mean.
        let mean = self.costs.broadcast_interval;
        let begun = self.broadcast_free.get().max(now) + mean * (instructions - 1);
        self.broadcast_free.set(begun + machine::random_below(2 * mean + 1));
        let done = begun + self.costs.broadcast_sync + self.crowd(now);
        self.broadcast_done.borrow_mut()[cpu] = done;
        self.broadcasts.set(self.broadcasts.get() + instructions);
        self.taken_in.borrow_mut()[cpu] += instructions;
        self.count(|counts| counts.broadcasts += instructions);
        machine::charge(u64::from(cost));
    }

    fn broadcast_sync(&self) {
        note(|| What::SyncBegins);
        self.may_speculate();
        if self.costs.remote.is_some() {
            self.await_remote::<W>();
            return note(|| What::SyncEnds);
        }
        let cpu = machine::cpu();
        let ready = self.hw.borrow().sync_ready_at(cpu, machine::now());
        let done = self.broadcast_done.borrow()[cpu].max(ready);
        machine::pass_until(done.max(machine::now() + 1));
        self.may_speculate();
        machine::synchronise();
        if !self.broadcast_sync_by_isa() {
            self.hw.borrow_mut().sync_done(machine::cpu());
        }
        note(|| What::SyncEnds);
    }

    #[inline]
    fn pin(&self) {
        self.preemption.off();
    }

    fn unpin(&self) {
        if !self.preemption.on() {
            return;
        }
        if let Some(hook) = &*self.on_unpin.borrow() {
            hook();
        }
        machine::preemption_point();
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        (machine::now() as f64 / self.costs.ghz) as u64
    }

    fn flush_at_entry(&self, cpu: CpuId) -> bool {
        let Some(virtual_cpus) = self.virtual_cpus.get() else {
            return false;
        };
        virtual_cpus[cpu].request_flush()
    }

    fn secondary(&self, root: Root, invalidation: Secondary) -> u64 {
        if self.hw.borrow().config().iommu.is_none() {
            return 0;
        }
        // Handing a command to the device drains the store buffer: its walker's later reads see the stores.
        machine::drain_stores();
        machine::synchronise();
        self.hw
            .borrow_mut()
            .command(root.0 as u32, invalidation, machine::now())
    }

    fn secondary_sync(&self, ticket: u64) {
        let due = self.hw.borrow().commands_due(ticket, machine::now());
        machine::pass_until(due);
        machine::synchronise();
        self.hw.borrow_mut().carry_out_commands(machine::now());
    }

    fn stuck(&self, _report: Stuck) {
        self.count(|counts| counts.stuck += 1);
    }

    fn event(&self, event: Event) {
        if let Event::Interrupted { targets, .. } = event {
            note(|| What::Prepares);
            machine::charge(u64::from(targets) * self.costs.call_target);
            note(|| What::Prepared);
        }
        let way = match event {
            Event::LocalOnly | Event::Deferred { .. } => Some(Way::Local),
            Event::Interrupted { .. } => Some(Way::Interrupts),
            Event::Broadcast { .. } => Some(Way::Broadcast),
            _ => None,
        };
        if matches!(way, Some(Way::Interrupts | Way::Broadcast)) {
            self.reaches_others.borrow_mut()[machine::cpu()] = true;
        }
        if let Some(decision_log) = &mut *self.decision_log.borrow_mut() {
            if let Some(way) = way {
                decision_log.goes(machine::cpu(), way);
            } else if !matches!(
                event,
                Event::Answered(_) | Event::CaughtUpPartly | Event::CaughtUpWhole | Event::Chose { .. }
            ) {
                decision_log.note((machine::now() as f64 / self.costs.ghz) as u64, event);
            }
        }
        if matches!(event, Event::CaughtUpPartly | Event::CaughtUpWhole) {
            // A CPU that leaves lazy TLB mode catches up without a root load.
            self.at_switch(true);
        }
        if let Event::Answered(answer) = event {
            self.answers.borrow_mut()[machine::cpu()].count(answer);
            if self.costs.answer_lines {
                machine::answers_in_own_line();
            }
        }
        self.count(|counts| match event {
            Event::Promoted => counts.promoted += 1,
            Event::TagsExhausted => counts.exhausted += 1,
            Event::RollOver => counts.rolled_over += 1,
            Event::LocalOnly => counts.local_only += 1,
            Event::Interrupted { sent, targets } => {
                counts.interrupting += 1;
                counts.interrupts += u64::from(sent);
                counts.queued += u64::from(targets);
            }
            Event::Answered(answer) => counts.answers.count(answer),
            Event::CaughtUpPartly => counts.caught_up_partly += 1,
            Event::CaughtUpWhole => counts.caught_up_whole += 1,
            Event::WalksChanged => counts.walks_changed += 1,
            Event::Broadcast { .. } => counts.broadcast_requests += 1,
            Event::Promoting { .. } | Event::Calibrated(_) => {}
            Event::Chose { .. } => counts.any_tag += 1,
            Event::Measured { .. } => counts.measured += 1,
            Event::ThresholdMoved { .. } => counts.threshold_moved += 1,
            Event::Demoting { .. } => counts.demoting += 1,
            Event::Demoted => counts.demoted += 1,
            Event::Deferred { .. } => counts.deferred += 1,
        });
    }
}
