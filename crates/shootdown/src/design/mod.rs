//! A design: a [`Policy`], which the kernel chooses, on a [`Machine`], which it detects.
//!
//! Published designs are presets of the policy. Settings can be mixed freely. To add a design, add a value to an axis
//! in `policy.rs` and implement it where the axis is read, which each axis states.

mod machine;
mod policy;
mod presets;

pub use machine::*;
pub use policy::*;

/// A policy on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Design {
    /// What the kernel chooses.
    pub policy: Policy,
    /// What the machine can do.
    pub machine: Machine,
}

impl From<Policy> for Design {
    /// On [`Machine::PCID`].
    fn from(policy: Policy) -> Design {
        policy.on(Machine::PCID)
    }
}

impl Policy {
    /// This policy on `machine`.
    pub const fn on(self, machine: Machine) -> Design {
        Design { policy: self, machine }
    }
}

/// How spaces get tags: as the policy says, if the machine has tags.
#[inline]
pub(crate) const fn tags_on(policy: &Policy, machine: &Machine) -> Tags {
    // In this order: a policy with only per-CPU tags, fixed at compile time, never reads the machine.
    if !policy.tags.has_system_tags() || machine.has_tags() {
        policy.tags
    } else {
        Tags::PerCpu
    }
}

/// System-wide tags: `first..end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TagRange {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

impl Design {
    pub(crate) const fn tags(&self) -> Tags {
        tags_on(&self.policy, &self.machine)
    }

    /// The system-wide tags: above the per-CPU slots where both kinds exist.
    pub(crate) const fn pool(&self) -> TagRange {
        let slots = match self.tags() {
            Tags::System => 0,
            _ => self.policy.slots as u32,
        };
        TagRange {
            first: self.machine.first_tag as u32 + slots,
            end: self.machine.end_of_tags(),
        }
    }

    /// Whether policy and machine fit each other and `cpus` CPUs.
    ///
    /// # Errors
    /// A message that names the conflict. [`Engine::new`](crate::Engine::new) panics with it.
    pub const fn fits(&self, cpus: usize) -> Result<(), &'static str> {
        let Design { policy, machine } = self;
        let TagRange { first, end } = self.pool();
        Err(if policy.slots < 1 || policy.slots as usize > MAX_SLOTS {
            "slots must be 1 to 16"
        } else if machine.first_tag == 0 && machine.has_tags() {
            "tag 0 is the kernel's root's"
        } else if machine.tag_limit > 1 << 16 {
            "tags have at most 16 bits"
        } else if self.tags().promote_at().is_some() && policy.consider_window_ns == 0 {
            "a sampling window has a length"
        } else if !policy.sample_one_in.is_power_of_two() {
            "sampling one in a power of two"
        } else if matches!(self.tags(), Tags::System) && end.saturating_sub(first) as usize <= cpus {
            "system-wide tags must outnumber the CPUs"
        } else if first > end && machine.has_tags() {
            "the slots' tags must lie below the end of tags"
        } else {
            return Ok(());
        })
    }
}

const _: () = assert!(MAX_SLOTS == 16, "the message in `fits` says 16");

#[cfg(test)]
mod tests;
