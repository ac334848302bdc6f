//! Reaches other CPUs by interrupts: a ticket posted at each for the log (`post.rs`), or a descriptor queued at each
//! (`send.rs`).

use crate::cpuset::CpuMask;
use crate::design::{Order, Requests};
use crate::engine::{Engine, Pinned};
use crate::flush::token::Token;
use crate::hooks::{Event, Kernel};
use crate::range::Range;
use crate::transport::request::{Asked, OwnPart};

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Interrupts `targets` for what is asked of `range`, and does the own part before or while they answer. The token
    /// waits.
    ///
    /// Unpins, unless a wait for a descriptor follows that spins: that wait takes the pin over. Some requests need a
    /// descriptor in every design: those with a tag, with a space from whose walker set targets are removed, or with a
    /// space whose set targets leave. A handler may dereference only the space it has loaded, and what a waiting
    /// requester keeps alive.
    #[inline(always)]
    pub(crate) fn interrupt(
        &self,
        token: &Token<'_, 'k, K, W>,
        targets: CpuMask<W>,
        (asked, range): (Asked, Range),
        pin: Pinned<'_, K, W>,
    ) {
        token.targets.set(targets);
        // A tail call: no argument lies in the caller's frame (`cargo xtask stack`).
        pin.hand_over();
        self.interrupt_targets(token, asked, range);
    }

    /// The same for the targets in the token. Takes over the caller's pin.
    // Not inlined: ten senders end in it.
    #[inline(never)]
    pub(crate) fn interrupt_targets(&self, token: &Token<'_, 'k, K, W>, asked: Asked, range: Range) {
        let pin = self.still_pinned();
        let serial = self.policy().order == Order::Serial;
        if serial {
            self.do_own_part(asked, token.generation.get(), range);
        }
        if token.targets().is_empty() {
            if !serial {
                self.do_own_part(asked, token.generation.get(), range);
            }
            self.kernel.event(Event::LocalOnly);
            return;
        }
        self.refuse_in_handler();
        let posted = !asked.needs_descriptor() && !token.names_space();
        if self.policy().requests == Requests::Log && posted {
            self.post(token, pin.cpu);
            if !serial {
                self.do_own_part(asked, token.generation.get(), range);
            }
            drop(pin);
        } else {
            // A tail call, so that this frame is not on the stack below it.
            pin.hand_over();
            self.request(token, asked, range);
        }
    }

    /// The requester's part of a request. Pinned.
    #[inline(always)]
    pub(crate) fn do_own_part(&self, asked: Asked, generation: u64, range: Range) {
        if asked.has_own_part() {
            self.masked(|| self.do_own_part_masked(asked, generation, range));
        }
    }

    /// The same with interrupts off.
    // Not inlined: it ends in tail calls, so that only the caller's frame is below them.
    #[inline(never)]
    fn do_own_part_masked(&self, asked: Asked, generation: u64, range: Range) {
        let cpu = &self.cpus[self.kernel.cpu()];
        match asked.own_part() {
            OwnPart::Space(id) if cpu.state().id() == id => {
                // SAFETY: interrupts are off; see `loaded`.
                if let Some(space) = unsafe { self.loaded(cpu) } {
                    self.flush_on_masked(cpu, space, generation, range);
                }
            }
            // Its slot is behind, and catches up at the next switch-in.
            OwnPart::Space(_) => {}
            // No request has a tag where spaces have none; so the compiler leaves this out.
            OwnPart::Tag(_) if !self.policy().tags.has_system_tags() => {}
            OwnPart::Tag(tag) => self.flush_under(tag, range),
            OwnPart::Kernel if self.policy().requests == Requests::Log => self.catch_up_kernel_apart(cpu),
            OwnPart::Kernel => self.flush_kernel_range(cpu, range),
            OwnPart::CatchUp { if_lazy } => {
                if if_lazy || !cpu.state().is_lazy() {
                    self.sync_loaded_space(cpu);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
