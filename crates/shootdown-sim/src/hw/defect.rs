//! Machines and oracles with injected defects, which tests must notice. Only test builds enable the feature `faults`;
//! otherwise [`Hw::has`](super::Hw::has) is `false` at compile time.

use super::Hw;

/// One defect: a machine that is too strong hides bugs, one that is too weak reports bugs that do not exist, and a
/// blind oracle finds none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Defect {
    /// INVLPG drops the page from every tag.
    InvlpgReachesAllTags,
    /// INVLPG drops the page from every CPU.
    InvlpgReachesAllCpus,
    /// INVLPG leaves global entries.
    InvlpgSparesGlobal,
    /// INVLPG leaves paging-structure entries.
    InvlpgSparesLinks,
    /// With TCE a page invalidation still drops links that are not on the path.
    TceIgnored,
    /// Invalidating a tag drops global entries too.
    TagFlushTakesGlobal,
    /// A root load that keeps the tag's entries flushes them.
    LoadFlushes,
    /// A broadcast takes effect everywhere when it is issued.
    BroadcastAtIssue,
    /// A broadcast takes effect nowhere before its synchronisation.
    BroadcastOnlyAtSync,
    /// TLBSYNC completes the broadcasts of other CPUs.
    SyncOfAnyCpu,
    /// TLBSYNC reaches no CPU that has another tag loaded.
    SyncForgetsAway,
    /// TLBSYNC leaves entries filled from withdrawn tables after the issue.
    SyncByIssueOnly,
    /// Broadcasts that reached a CPU under another tag have no effect when their tag is loaded again.
    AwayStaysStale,
    /// A CPU whose clock is ahead of the issuer's never carries a broadcast out.
    ClockDecides,
    /// Lazy CPUs do not speculate.
    NoSpeculationWhenLazy,
    /// The oracle does not check paging-structure caches.
    OracleIgnoresLinks,
    /// The oracle does not check translations in use.
    OracleIgnoresUse,
    /// The oracle does not check again what it tolerated on a CPU that could not use it.
    OracleForgetsTolerated,
    /// The oracle forbids a translation from the moment of its withdrawal.
    OracleBindsAtOnce,
    /// The oracle lets a frame be freed that a CPU can still use.
    OracleIgnoresFrees,
}

#[cfg(feature = "faults")]
impl Defect {
    /// All of them.
    #[cfg(feature = "faults")]
    pub const ALL: &'static [Defect] = &[
        Defect::InvlpgReachesAllTags,
        Defect::InvlpgReachesAllCpus,
        Defect::InvlpgSparesGlobal,
        Defect::InvlpgSparesLinks,
        Defect::TceIgnored,
        Defect::TagFlushTakesGlobal,
        Defect::LoadFlushes,
        Defect::BroadcastAtIssue,
        Defect::BroadcastOnlyAtSync,
        Defect::SyncOfAnyCpu,
        Defect::SyncForgetsAway,
        Defect::SyncByIssueOnly,
        Defect::AwayStaysStale,
        Defect::ClockDecides,
        Defect::NoSpeculationWhenLazy,
        Defect::OracleIgnoresLinks,
        Defect::OracleIgnoresUse,
        Defect::OracleForgetsTolerated,
        Defect::OracleBindsAtOnce,
        Defect::OracleIgnoresFrees,
    ];
}

impl Hw {
    /// Whether the machine has this defect.
    #[inline(always)]
    pub(super) fn has(&self, defect: Defect) -> bool {
        #[cfg(feature = "faults")]
        return self.config.defect == Some(defect);
        #[cfg(not(feature = "faults"))]
        {
            let _ = defect;
            false
        }
    }
}
