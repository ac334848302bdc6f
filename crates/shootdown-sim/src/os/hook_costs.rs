//! What the hooks need of a machine model: costs of broadcasts and of cross-CPU calls, and what the hardware can do.

use super::remote::RemoteCosts;
use shootdown::BroadcastLimits;

/// Costs and settings that the hooks need.
#[derive(Debug, Clone)]
pub struct HookCosts {
    /// Cycles per nanosecond.
    pub ghz: f64,
    /// The least a synchronisation takes, cycles.
    pub broadcast_sync: u64,
    /// Time that the machine needs for one broadcast before it carries out the next, cycles: the mean.
    pub broadcast_interval: u64,
    /// What a broadcast costs each CPU that receives it, cycles.
    pub broadcast_received: u64,
    /// Bookkeeping of a cross-CPU call, for each target, cycles.
    pub call_target: u64,
    /// What the hardware can do; `None` without broadcast.
    pub limits: Option<BroadcastLimits>,
    /// Remote actions, in place of broadcasts.
    pub remote: Option<RemoteCosts>,
}

impl Default for HookCosts {
    /// Round figures without a source, for runs that measure nothing: no broadcast at 2 GHz. Measured runs take a
    /// machine model's.
    fn default() -> Self {
        HookCosts {
            ghz: 2.0,
            broadcast_sync: 500,
            broadcast_interval: 50,
            broadcast_received: 5,
            call_target: 0,
            limits: None,
            remote: None,
        }
    }
}
