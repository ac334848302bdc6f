//! Reaches other CPUs by interrupts: a ticket posted at each for the log (`post.rs`), or a descriptor queued at each
//! (`send.rs`).

use crate::cpuset::CpuMask;
use crate::design::{Order, Requests};
use crate::engine::{Engine, Pinned};
use crate::flush::token::Token;
use crate::hooks::{Event, Kernel};
use crate::transport::request::EncodedRequest;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Interrupts `targets`, and does the local part before or while they answer. The token waits.
    ///
    /// Unpins, unless a wait for a descriptor follows that spins: that wait takes the pin over. Some requests need a
    /// descriptor in every design: those with a tag, with a space from whose walker set targets are removed, or with a
    /// space whose set targets leave. A handler may dereference only the space it has loaded, and what a waiting
    /// requester keeps alive.
    // Not inlined: it has ten callers, and each copy is about 2 KiB (`cargo xtask size`).
    #[inline(never)]
    pub(crate) fn interrupt(
        &self,
        token: &Token<'_, 'k, K, W>,
        targets: &CpuMask<W>,
        encoded: &EncodedRequest,
        pin: Pinned<'_, K, W>,
        local: &dyn Fn(&Self),
    ) {
        // Written once for both cases, so that it is inlined here.
        let (alone, serial) = (targets.is_empty(), self.policy().order == Order::Serial);
        if alone || serial {
            local(self);
        }
        if alone {
            self.kernel.event(Event::LocalOnly);
            return;
        }
        self.refuse_in_handler();
        let posted = !encoded.needs_descriptor() && !token.names_space();
        if self.policy().requests == Requests::Log && posted {
            self.post(token, targets, pin.cpu);
            if !serial {
                local(self);
            }
            drop(pin);
        } else {
            // A tail call, so that this frame is not on the stack below it.
            pin.hand_over();
            self.request(token, targets, encoded, local);
        }
    }
}

#[cfg(test)]
mod tests;
