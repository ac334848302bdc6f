//! Flushing kernel addresses: every online CPU, global entries, both halves (rule 7).

use crate::cpuset::CpuMask;
use crate::design::{Reach, Requests};
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::flush::token::{Flushed, KERNEL, Token};
use crate::hooks::{Broadcast, Kernel};
use crate::range::{Range, Stride};
use crate::transport::request::Asked;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Flushes a range of kernel addresses on every CPU and waits. Context as for [`flush`](Self::flush). May be called
    /// while only one CPU is up, before broadcast limits are known.
    pub fn flush_kernel(&self, range: Range) -> Flushed {
        let mut token = self.token(KERNEL, 0);
        token.tables = range.tables();
        token.sends(|token| self.dispatch_kernel_into(token, range));
        token.wait_in_place();
        token.proof()
    }

    /// Flushes everything on every CPU and waits: entries of user and kernel pages under every tag, paging-structure
    /// entries included. Context as [`flush`](Self::flush).
    pub fn flush_all(&self) -> Flushed {
        self.flush_kernel(Range::WHOLE)
    }

    /// Begins a flush of kernel addresses; the token waits. See [`dispatch`](Self::dispatch) for what is complete when
    /// it returns.
    ///
    /// # Panics
    /// As [`dispatch`](Self::dispatch).
    pub fn dispatch_kernel<'e>(&'e self, range: Range) -> Token<'e, 'k, K, W> {
        let mut token = self.token(KERNEL, 0);
        token.tables = range.tables();
        token.sends(|token| self.dispatch_kernel_into(token, range));
        token
    }

    // Not inlined: the wait needs no room for this.
    #[inline(never)]
    fn dispatch_kernel_into<'e>(&'e self, token: &Token<'e, 'k, K, W>, range: Range) {
        if self.policy().reach == Reach::None {
            return;
        }
        let pin = self.pinned();
        let me = pin.cpu;
        if self.broadcasts() {
            // The generation is not incremented here, so nothing else orders the entry writes before the broadcast.
            K::Facade::publish_tables();
            token.secondary.set(self.notify_secondary_of_kernel(&range));
            self.broadcast_kernel(&range);
            if self.machine().errata.interrupt_too {
                let running = self.all_targets(me);
                self.interrupt(token, running, (Asked::SYNCHRONISE, Range::WHOLE), pin);
            }
            return;
        }
        self.publish_tables();
        // Entry writes, full barrier, then the read of the online set. Pairs with `cpu_online`: reads this generation,
        // joins the online set (full barrier), then flushes.
        match self.policy().requests {
            Requests::Log => {
                let generation = self.kernel_log.generation.fetch_add_full(1) + 1;
                self.kernel_log.append(generation, &range);
            }
            _ => K::Facade::full_barrier(),
        }
        token.secondary.set(self.notify_secondary_of_kernel(&range));
        let targets = match self.policy().reach {
            Reach::Local => CpuMask::EMPTY,
            _ => self.all_targets(me),
        };
        self.interrupt(token, targets, (Asked::KERNEL, range), pin);
    }

    #[inline(never)]
    fn broadcast_kernel(&self, range: &Range) {
        let limits = self.kernel.broadcast_limits();
        let most = limits.map_or(1, |limits| match range.stride() {
            Stride::Size4K => limits.max_pages,
            Stride::Size2M | Stride::Size1G => limits.max_large_pages,
        });
        // With split tags kernel entries are not global and exist under every tag, which no page form covers.
        if range.is_walkable(self.policy().ceiling.max(most))
            && range.stride() != Stride::Size1G
            && !self.machine().split
        {
            self.broadcast_complete(|| self.issue_kernel(range, most, !range.tables()));
        } else {
            self.broadcast_complete(|| {
                self.kernel.broadcast(Broadcast::All);
                1
            });
        }
    }
}
