//! Broadcast invalidation for threads: a CPU carries out the messages in its mailbox at its next safe point or in a
//! wait.
//!
//! Like hardware broadcasts, and unlike an interrupt, this cannot be masked. It proves nothing about lockless walks.

use crate::facade::Host;
use crate::threads::{MAIL, Machine, Mmu};
use shootdown::{Broadcast, CpuId, Facade};
use std::sync::atomic::Ordering;

impl<M: Mmu> Machine<M> {
    /// Carries out `what` on this CPU and posts it to every other attached CPU. A CPU that attaches later flushes
    /// everything first.
    pub(crate) fn broadcast(&self, what: Broadcast) {
        let me = self.cpu();
        self.slots[me].own.mmu.borrow_mut().broadcast(what);
        for (cpu, slot) in self.slots.iter().enumerate() {
            if cpu == me || !slot.attached.load(Ordering::Acquire) {
                continue;
            }
            if slot.mail.letters.push(what).is_err() {
                slot.mail.overflowed.store(true, Ordering::Release);
            }
            // Release: the message precedes its count. Pairs with the acquire in `take_mail`.
            slot.mail.posted.fetch_add(1, Ordering::AcqRel);
            slot.poke(MAIL);
        }
    }

    /// Waits until every other CPU has carried out what was posted to it so far. Not a full barrier: `publish_tables`
    /// of [`Host`] is one.
    pub(crate) fn broadcast_sync(&self) {
        let me = self.cpu();
        for (cpu, slot) in self.slots.iter().enumerate() {
            let goal = slot.mail.posted.load(Ordering::Acquire);
            // Acquire: pairs with the release in `take_mail`. The wait takes its own mail, so two CPUs that wait for
            // each other both proceed.
            let done = || slot.mail.done.load(Ordering::Acquire) >= goal || !slot.attached.load(Ordering::Acquire);
            if cpu != me && !done() {
                Host::wait_until(done);
            }
        }
    }

    /// Carries out everything posted to CPU `me`, which is this thread.
    pub(crate) fn take_mail(&self, me: CpuId) {
        let slot = &self.slots[me];
        if !slot.take(MAIL) {
            return;
        }
        let mail = &slot.mail;
        let posted = mail.posted.load(Ordering::Acquire);
        let mut mmu = slot.own.mmu.borrow_mut();
        while let Some(what) = mail.letters.pop() {
            mmu.broadcast(what);
        }
        if mail.overflowed.swap(false, Ordering::AcqRel) {
            mmu.broadcast(Broadcast::All);
        }
        drop(mmu);
        mail.done.store(posted, Ordering::Release);
    }
}
