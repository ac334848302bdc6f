//! Reaches other CPUs by interrupts: a ticket posted at each for the log (`post.rs`), or a descriptor queued at each
//! (`send.rs`).

use crate::cpuset::CpuMask;
use crate::design::{Order, Requests};
use crate::engine::{Engine, Pinned};
use crate::flush::token::Token;
use crate::hooks::{Event, Kernel};
use crate::transport::request::EncodedRequest;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Interrupts `targets`, does the local part before or while they answer, and unpins: before the wait if waits are
    /// preemptible, after it if they spin.
    ///
    /// With a log the token is returned to be waited for; a stack request is waited for here. Some requests need a
    /// descriptor in every design: those with a tag, with a space from whose walker set targets are removed, or with a
    /// space whose set targets leave. A handler may dereference only the space it has loaded, and what a waiting
    /// requester keeps alive.
    // Not inlined: it has ten callers, and each copy is about 2 KiB (`cargo xtask size`).
    #[inline(never)]
    pub(crate) fn interrupt(
        &self,
        token: &mut Token<'_, 'k, K, W>,
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
        let posted = !encoded.needs_descriptor() && token.walked == 0 && token.departed == 0;
        if self.policy().requests == Requests::Log && posted {
            self.post(token, targets, pin.cpu);
            if !serial {
                local(self);
            }
            drop(pin);
        } else {
            // A tail call, so that this frame is not on the stack below the descriptor.
            pin.hand_over();
            self.request(token, targets, encoded, local);
        }
    }
}

#[cfg(test)]
mod tests;
