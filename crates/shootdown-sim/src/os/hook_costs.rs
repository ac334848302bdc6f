//! Parameters of the hooks from a machine model: costs of broadcasts and of cross-CPU calls, and hardware features.

use shootdown::BroadcastLimits;

/// Costs of remote actions, cycles.
#[derive(Debug, Clone, Copy)]
pub struct RemoteCosts {
    /// Entries of the table.
    pub entries: usize,
    /// Most pages of one.
    pub max_pages: u32,
    /// A message, at its target.
    pub action: u64,
    /// A page there.
    pub page: u64,
    /// A tag there.
    pub tag: u64,
    /// Everything there.
    pub all: u64,
}

/// Costs and settings that the hooks need.
#[derive(Debug, Clone)]
pub struct HookCosts {
    /// Cycles per nanosecond.
    pub ghz: f64,
    /// Shortest synchronisation, cycles.
    pub broadcast_sync: u64,
    /// Mean time that one broadcast occupies the machine before the next, cycles.
    pub broadcast_interval: u64,
    /// Cost of a broadcast for each CPU that receives it, cycles.
    pub broadcast_received: u64,
    /// Bookkeeping of a cross-CPU call, for each target, cycles.
    pub call_target: u64,
    /// Whether a target of such a call answers in a line of its own.
    pub answer_lines: bool,
    /// Broadcast limits; `None` without broadcast.
    pub limits: Option<BroadcastLimits>,
    /// Remote actions, in place of broadcasts.
    pub remote: Option<RemoteCosts>,
}

impl Default for HookCosts {
    /// Round figures without a source, for runs that measure nothing: no broadcast, 2 GHz. Measured runs use a machine
    /// model.
    fn default() -> Self {
        HookCosts {
            ghz: 2.0,
            broadcast_sync: 500,
            broadcast_interval: 50,
            broadcast_received: 5,
            call_target: 0,
            answer_lines: false,
            limits: None,
            remote: None,
        }
    }
}
