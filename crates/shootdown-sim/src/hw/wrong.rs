//! Deliberately wrong machines and oracles, for the tests that must notice them. The feature `faults` is off in every
//! build that is not a test; [`Hw::wrong`](super::Hw::wrong) is then `false` at compile time.

use super::Hw;

/// One way of being wrong: too strong hides bugs, too weak finds some that do not exist, a blind oracle finds none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// INVLPG takes the page from every tag.
    InvlpgReachesAllTags,
    /// INVLPG takes the page from every CPU.
    InvlpgReachesAllCpus,
    /// INVLPG leaves global entries.
    InvlpgSparesGlobal,
    /// INVLPG leaves paging-structure entries.
    InvlpgSparesLinks,
    /// With TCE a page invalidation still drops links that are not on the way.
    TceIgnored,
    /// Invalidating a tag takes global entries along.
    TagFlushTakesGlobal,
    /// A root load that keeps the tag's entries flushes them.
    LoadFlushes,
    /// A broadcast takes effect everywhere when it is issued.
    BroadcastAtIssue,
    /// A broadcast takes effect nowhere before its synchronisation.
    BroadcastOnlyAtSync,
    /// TLBSYNC completes the broadcasts of other CPUs.
    SyncOfAnybody,
    /// TLBSYNC reaches no CPU that has another tag loaded.
    SyncForgetsAway,
    /// TLBSYNC leaves what was filled from withdrawn tables after the issue.
    SyncByIssueOnly,
    /// What reached a CPU under another tag is not true when its tag is loaded again.
    AwayStaysStale,
    /// A CPU whose clock is ahead of the issuer's never carries a broadcast out.
    ClockDecides,
    /// Lazy CPUs do not speculate.
    NoSpeculationWhenLazy,
    /// The oracle does not look at paging-structure caches.
    OracleIgnoresLinks,
    /// The oracle does not look at translations in use.
    OracleIgnoresUse,
    /// The oracle does not look again at what it tolerated on a CPU that could not use it.
    OracleForgetsTolerated,
    /// The oracle forbids a translation from the moment it is withdrawn.
    OracleBindsAtOnce,
    /// The oracle lets a frame go that a CPU can still use.
    OracleIgnoresFrees,
}

#[cfg(feature = "faults")]
impl Wrong {
    /// All of them.
    #[cfg(feature = "faults")]
    pub const ALL: &'static [Wrong] = &[
        Wrong::InvlpgReachesAllTags,
        Wrong::InvlpgReachesAllCpus,
        Wrong::InvlpgSparesGlobal,
        Wrong::InvlpgSparesLinks,
        Wrong::TceIgnored,
        Wrong::TagFlushTakesGlobal,
        Wrong::LoadFlushes,
        Wrong::BroadcastAtIssue,
        Wrong::BroadcastOnlyAtSync,
        Wrong::SyncOfAnybody,
        Wrong::SyncForgetsAway,
        Wrong::SyncByIssueOnly,
        Wrong::AwayStaysStale,
        Wrong::ClockDecides,
        Wrong::NoSpeculationWhenLazy,
        Wrong::OracleIgnoresLinks,
        Wrong::OracleIgnoresUse,
        Wrong::OracleForgetsTolerated,
        Wrong::OracleBindsAtOnce,
        Wrong::OracleIgnoresFrees,
    ];
}

impl Hw {
    /// Whether the machine is wrong in this way.
    #[inline(always)]
    pub(super) fn wrong(&self, how: Wrong) -> bool {
        #[cfg(feature = "faults")]
        return self.config.wrong == Some(how);
        #[cfg(not(feature = "faults"))]
        {
            let _ = how;
            false
        }
    }
}
