//! Remote actions (Intel RAR): the kernel's part, which is the engine's back end, and the microcode of every CPU.
//!
//! A message arrives. The microcode finds the entries that are marked for its CPU, reads them, and carries them out one
//! by one. The CPU stalls for that time, in any state.

use super::hook_costs::RemoteCosts;
use super::hooks::SimKernel;
use crate::hw::Hw;
use crate::machine::activity::{What, note};
use crate::machine::{self, Machine, SimWord, SimWorld};
use shootdown::{Broadcast, CpuId, CpuMask, Local, Rar, RarCpu, RarSignal, RarTable, Stride, Tag, Word};
use shootdown_arch::x86_64::rar::{PageCount, PageSize, Payload};
use shootdown_arch::x86_64::{AddressWidth, Canonical, Pcid};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Whether initiators skip a CPU: 1 while it is off. On its own line, which every CPU that waits for it reads.
#[repr(align(64))]
struct Off(SimWord);

/// The microcode of one CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Microcode {
    /// Whether it reads its action vector.
    looks: bool,
    /// Number of times that it has gone offline: entries begun before are never completed.
    stopped: u64,
    /// Entries that it has begun, a bit each.
    begun: u64,
}

/// The simulated machine's part of remote actions.
struct Remote<const W: usize> {
    rar: Rar<'static, SimWorld, W>,
    hw: Rc<RefCell<Hw>>,
    costs: RemoteCosts,
    off: &'static [Off],
    cpus: RefCell<Vec<Microcode>>,
    /// Stall time of each CPU, cycles.
    pending_cycles: Rc<RefCell<Vec<u64>>>,
}

impl<const W: usize> Remote<W> {
    fn is_off(&self, cpu: CpuId) -> bool {
        self.off[cpu].0.load(Ordering::Relaxed) == 1
    }

    fn change(&self, cpu: CpuId, change: impl FnOnce(&mut Microcode)) {
        change(&mut self.cpus.borrow_mut()[cpu]);
    }

    /// Sends a message to each of `targets`.
    fn send(self: &Rc<Self>, targets: impl IntoIterator<Item = CpuId>) {
        machine::send_message(targets, |target, at| {
            let remote = self.clone();
            machine::at(at, move || remote.arrives(target, at));
        });
    }

    /// A message has arrived; a CPU that is off does not read it.
    fn arrives(self: &Rc<Self>, cpu: CpuId, at: u64) {
        let Microcode { looks, stopped, begun } = self.cpus.borrow()[cpu];
        if !looks {
            return;
        }
        let pending = self.rar.pending(cpu) & !begun;
        self.change(cpu, |microcode| microcode.begun |= pending);
        let mut done = at + self.costs.action;
        for entry in (0..self.costs.entries).filter(|entry| pending >> entry & 1 == 1) {
            let payload = Payload::decode(self.rar.payload(entry), AddressWidth::Bits48);
            done += self.cost(payload);
            let (remote, at) = (self.clone(), done);
            machine::at(at, move || remote.carries_out(cpu, stopped, entry, payload, at));
        }
        self.pending_cycles.borrow_mut()[cpu] += done - at;
    }

    fn cost(&self, payload: Option<Payload>) -> u64 {
        match payload {
            Some(Payload::Pages { count, .. }) => self.costs.page * u64::from(count.get()),
            Some(Payload::Tag(_)) => self.costs.tag,
            Some(Payload::All | Payload::NonGlobal) | None => self.costs.all,
        }
    }

    /// Unless it has gone offline since the count was `stopped`.
    fn carries_out(&self, cpu: CpuId, stopped: u64, entry: usize, payload: Option<Payload>, now: u64) {
        if self.cpus.borrow()[cpu].stopped != stopped {
            return;
        }
        self.change(cpu, |microcode| microcode.begun &= !(1 << entry));
        if let Some(payload) = payload {
            self.hw.borrow_mut().remote_action(cpu, operation(payload));
        }
        let (word, change) = self.rar.answer(cpu, entry, payload.is_none());
        machine::add_by_hardware(cpu, word, change, now);
    }
}

/// The kernel's side of the back end.
struct Signal<'a, const W: usize>(&'a Rc<Remote<W>>);

impl<const W: usize> RarSignal<W> for Signal<'_, W> {
    fn signal(&self, targets: &CpuMask<W>) {
        note(|| What::Sends(targets.iter().collect()));
        self.0.send(targets.iter());
        note(|| What::SendsEnd);
    }
    fn is_off(&self, cpu: CpuId) -> bool {
        self.0.is_off(cpu)
    }
    fn everything(&self) -> [u64; 4] {
        Payload::All.words()
    }
}

impl SimKernel {
    /// Gives the machine its part of remote actions, if its costs have any.
    pub(super) fn has_remote_actions<const W: usize>(&self, machine: &Machine, cpus: usize) {
        let Some(costs) = self.remote_costs() else { return };
        // SAFETY: used by tasks of this machine only, as the engine is.
        let (table, vectors, off) = unsafe {
            (
                machine.alloc_static(RarTable::<SimWorld, W>::new()),
                machine.alloc_static_slice(cpus, RarCpu::<SimWorld>::new),
                machine.alloc_static_slice(cpus, || Off(SimWord::new(1))),
            )
        };
        let remote = Remote {
            rar: Rar::new(table, vectors, costs.entries),
            hw: self.hw.clone(),
            costs,
            off,
            cpus: RefCell::new(vec![Microcode::default(); cpus]),
            pending_cycles: self.pending_cycles.clone(),
        };
        // The kernel has no fixed width of CPU sets.
        assert!(self.remote.set(Box::new(Rc::new(remote))).is_ok(), "once");
    }

    fn remote_if_any<const W: usize>(&self) -> Option<&Rc<Remote<W>>> {
        let remote = self.remote.get()?;
        Some(remote.downcast_ref().expect("one width of sets"))
    }

    fn remote<const W: usize>(&self) -> &Rc<Remote<W>> {
        self.remote_if_any()
            .expect("the engine asks for none where there are none")
    }

    /// This CPU is about to be online: its microcode reads messages from here on. In the order of [`Rar::reset`].
    pub(super) fn remote_online<const W: usize>(&self) {
        let Some(remote) = self.remote_if_any::<W>() else {
            return;
        };
        let me = machine::cpu();
        remote.off[me].0.store(0, Ordering::Relaxed);
        remote.rar.reset(me);
        remote.change(me, |microcode| (microcode.looks, microcode.begun) = (true, 0));
        remote.send([me]);
    }

    /// This CPU is offline: its microcode reads no more messages.
    pub(super) fn remote_offline<const W: usize>(&self) {
        let Some(remote) = self.remote_if_any::<W>() else {
            return;
        };
        let me = machine::cpu();
        remote.off[me].0.store(1, Ordering::Release);
        remote.change(me, |microcode| {
            microcode.looks = false;
            microcode.stopped += 1;
        });
    }

    /// Starts one action on `targets`.
    pub(super) fn act_remotely<const W: usize>(&self, targets: &CpuMask<W>, what: Broadcast) {
        note(|| What::Broadcasts);
        let remote = self.remote::<W>();
        let payload = payload(what).words();
        remote.rar.request(machine::cpu(), payload, targets, &Signal(remote));
    }

    /// Starts one action on every other online CPU, and completes it here.
    pub(super) fn act_everywhere<const W: usize>(&self, what: Broadcast) {
        let me = machine::cpu();
        let mut others = CpuMask::<W>::EMPTY;
        let remote = self.remote::<W>();
        (0..remote.off.len())
            .filter(|&cpu| cpu != me && !remote.is_off(cpu))
            .for_each(|cpu| others.insert(cpu));
        if !others.is_empty() {
            self.act_remotely(&others, what);
        }
        machine::drain_stores();
        machine::synchronise();
        let what = match what {
            Broadcast::Pages { tag, .. } | Broadcast::Tag(tag) => Local::Tag(tag),
            Broadcast::Kernel { .. } | Broadcast::NonGlobal | Broadcast::All => Local::All,
        };
        let cost = self.hw.borrow_mut().local(me, what, machine::now());
        machine::charge(u64::from(cost.expect("a tag that the machine has")));
    }

    /// Waits until every action that this CPU has started is done everywhere.
    pub(super) fn await_remote<const W: usize>(&self) {
        let remote = self.remote::<W>();
        remote.rar.wait(machine::cpu(), &Signal(remote));
    }
}

/// The encoding of an action. Pages under every tag have no encoding of their own: it flushes everything (C6).
fn payload(what: Broadcast) -> Payload {
    let pcid = |tag: Tag| Pcid::new(tag.0).expect("12 bits on x86-64");
    match what {
        Broadcast::Pages {
            address,
            stride,
            count,
            tag,
            ..
        } => {
            let address = Canonical::new(address, AddressWidth::Bits48);
            match (address, PageCount::new(count)) {
                (Some(address), Some(count)) => Payload::Pages {
                    pcid: pcid(tag),
                    address,
                    size: match stride {
                        Stride::Size4K => PageSize::Size4K,
                        Stride::Size2M => PageSize::Size2M,
                        Stride::Size1G => PageSize::Size1G,
                    },
                    count,
                },
                _ => Payload::Tag(pcid(tag)),
            }
        }
        Broadcast::Tag(tag) => Payload::Tag(pcid(tag)),
        Broadcast::NonGlobal => Payload::NonGlobal,
        Broadcast::Kernel { .. } | Broadcast::All => Payload::All,
    }
}

/// The microcode's work for it. Like INVPCID it drops the links on the path.
fn operation(payload: Payload) -> Broadcast {
    let tag = |pcid: Pcid| Tag(pcid.get());
    match payload {
        Payload::Pages {
            pcid,
            address,
            size,
            count,
        } => Broadcast::Pages {
            address: address.get(),
            stride: match size {
                PageSize::Size4K => Stride::Size4K,
                PageSize::Size2M => Stride::Size2M,
                PageSize::Size1G => Stride::Size1G,
            },
            count: count.get(),
            tag: tag(pcid),
            leaf_only: false,
        },
        Payload::Tag(pcid) => Broadcast::Tag(tag(pcid)),
        Payload::NonGlobal => Broadcast::NonGlobal,
        Payload::All => Broadcast::All,
    }
}
