//! Remote actions (Intel RAR): the kernel's part, which is the engine's back end, and the microcode of every CPU.
//!
//! A message arrives; the microcode finds which entries are marked for its CPU, reads them, and carries one out after the other,
//! whatever the CPU is doing, which stands still for as long.

use super::hooks::SimKernel;
use crate::hw::Hw;
use crate::machine::{self, Machine, SimWorld};
use crate::timeline::{What, note};
use shootdown::{Broadcast, CpuId, CpuMask, Local, Rar, RarCpu, RarSignal, RarTable, Stride, Tag};
use shootdown_arch::x86_64::rar::{PageCount, PageSize, Payload};
use shootdown_arch::x86_64::{AddressWidth, Canonical, Pcid};
use std::cell::RefCell;
use std::rc::Rc;

/// What remote actions cost, cycles.
#[derive(Debug, Clone, Copy)]
pub struct RemoteCosts {
    /// Entries of the table.
    pub entries: usize,
    /// Most pages of one.
    pub max_pages: u32,
    /// A message, at the CPU that gets it.
    pub action: u64,
    /// A page there.
    pub page: u64,
    /// A tag there.
    pub tag: u64,
    /// Everything there.
    pub all: u64,
}

/// What the simulated machine has of it.
struct Remote<const W: usize> {
    rar: Rar<'static, SimWorld, W>,
    hw: Rc<RefCell<Hw>>,
    costs: RemoteCosts,
    /// Entries that the microcode of each CPU has begun with, a bit each.
    begun: RefCell<Vec<u64>>,
    /// What each CPU is to stand still for, cycles.
    owed: Rc<RefCell<Vec<u64>>>,
}

impl<const W: usize> Remote<W> {
    /// A message is there.
    fn arrives(self: &Rc<Self>, cpu: CpuId, at: u64) {
        let begun = self.begun.borrow()[cpu];
        let pending = self.rar.pending(cpu) & !begun;
        self.begun.borrow_mut()[cpu] |= pending;
        let mut done = at + self.costs.action;
        for entry in (0..self.costs.entries).filter(|entry| pending >> entry & 1 == 1) {
            let payload = Payload::decode(self.rar.payload(entry), AddressWidth::Bits48);
            done += self.cost(payload);
            let (remote, at) = (self.clone(), done);
            machine::at(at, move || remote.carries_out(cpu, entry, payload, at));
        }
        self.owed.borrow_mut()[cpu] += done - at;
    }

    fn cost(&self, payload: Option<Payload>) -> u64 {
        match payload {
            Some(Payload::Pages { count, .. }) => self.costs.page * u64::from(count.get()),
            Some(Payload::Tag(_)) => self.costs.tag,
            Some(Payload::All | Payload::NonGlobal) | None => self.costs.all,
        }
    }

    fn carries_out(&self, cpu: CpuId, entry: usize, payload: Option<Payload>, now: u64) {
        self.begun.borrow_mut()[cpu] &= !(1 << entry);
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
        machine::send_message(targets.iter(), |target, at| {
            let remote = self.0.clone();
            machine::at(at, move || remote.arrives(target, at));
        });
        note(|| What::SendsEnd);
    }
    fn is_off(&self, cpu: CpuId) -> bool {
        !self.0.hw.borrow().is_online(cpu)
    }
    fn everything(&self) -> [u64; 4] {
        Payload::All.words()
    }
}

impl SimKernel {
    /// Gives the machine what it has of remote actions, if its costs say that it has any.
    pub(super) fn has_remote_actions<const W: usize>(&self, machine: &Machine, cpus: usize) {
        let Some(costs) = self.remote_costs() else { return };
        // SAFETY: used by tasks of this machine only, as the engine is.
        let (table, vectors) = unsafe {
            (
                machine.alloc_static(RarTable::<SimWorld, W>::new()),
                machine.alloc_static_slice(cpus, RarCpu::<SimWorld>::new),
            )
        };
        let remote = Remote {
            rar: Rar::new(table, vectors, costs.entries),
            hw: self.hw.clone(),
            costs,
            begun: RefCell::new(vec![0; cpus]),
            owed: self.owed.clone(),
        };
        // An `Rc` in an `Rc`: what a message is to find outlives the call, and the kernel knows no width.
        assert!(self.remote.set(Rc::new(Rc::new(remote))).is_ok(), "once");
    }

    fn remote<const W: usize>(&self) -> &Rc<Remote<W>> {
        let remote = self
            .remote
            .get()
            .expect("the engine asks for none where there are none");
        remote.downcast_ref().expect("one width of sets")
    }

    /// One action on `targets`, begun.
    pub(super) fn act_remotely<const W: usize>(&self, targets: &CpuMask<W>, what: Broadcast) {
        note(|| What::Broadcasts);
        let remote = self.remote::<W>();
        let payload = payload(what).words();
        remote.rar.request(machine::cpu(), payload, targets, &Signal(remote));
    }

    /// One action on every other CPU that is online, begun, and the same here, done.
    pub(super) fn act_everywhere<const W: usize>(&self, what: Broadcast) {
        let me = machine::cpu();
        let mut others = CpuMask::<W>::EMPTY;
        let cpus = self.owed.borrow().len();
        (0..cpus)
            .filter(|&cpu| cpu != me && self.hw.borrow().is_online(cpu))
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

    /// Until what this CPU has begun is done everywhere.
    pub(super) fn await_remote<const W: usize>(&self) {
        let remote = self.remote::<W>();
        remote.rar.wait(machine::cpu(), &Signal(remote));
    }
}

/// As what an action is written down. Pages under every tag have no form of their own: everything goes (C6).
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

/// What the microcode does for it. Like INVPCID it takes the links on the way along.
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
