//! Switches that re-introduce bugs that shipped elsewhere. Tests only: the feature `faults` is off in every build that
//! is not a test, and the calls then compile to nothing.

/// One switchable bug. The number is its place in the list of regressions; in that order, and behind each what resembles
/// it and has no number. How many there are may grow: keep those that are on in a set, not in the bits of a word.
#[cfg(feature = "faults")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// 1: a CPU that is switching in is skipped by the requester.
    SkipSwitchingCpu,
    /// 2: joining the CPU set is not a barrier before reading the generation.
    NoBarrierAfterJoin,
    /// 3: when tags run out the allocator returns the one past the range, to everybody.
    TagBeyondRange,
    /// 4: a broadcast limit of 0 is taken at its word.
    ZeroBroadcastLimit,
    /// 5: user halves are only invalidated for tags below 16.
    UserHalfMask16,
    /// 6: the handler tests for a system-wide tag before it tests for lazy.
    TagTestBeforeLazyTest,
    /// 7: a table page is reused without asking whether a lockless walk still holds a link to it.
    ReusedUnderWalk,
    /// 9: a walk publishes itself by less than a full barrier.
    WalkWithoutFullBarrier,
    /// 10: whoever waits does not serve requests aimed at itself.
    NoSelfService,
    /// 13: a flush is skipped when its space is not current on the requester.
    SkipWhenNotCurrent,
    /// 14: the ready flag of a request is visible before its arguments.
    FlagBeforeArguments,
    /// The descriptor of a CPU is used for the next request while a waiter that was preempted still needs it.
    OwnRequestReused,
    /// 15: a CPU is counted before it can take interrupts.
    CountedBeforeOnline,
    /// 15: the requester may migrate between its local flush and sending.
    UnpinnedBeforeSending,
    /// 16: paging-structure caches are not purged when tables are freed.
    TablesNotPurged,
    /// A flush with tables names the first page of its range only: with TCE, links to the other tables stay.
    TablesNamedOnce,
    /// 17: table writes are not made visible to walkers before the invalidation.
    NoPublishBeforeInvalidation,
    /// Table writes are made visible to walkers after the generation that announces them.
    PublishAfterGeneration,
    /// A CPU that comes online invalidates before others are sure to see it online.
    OnlineInvalidatesEarly,
    /// 17: a range too large to be cut up is flushed as a whole tag, but on this CPU only.
    WholeTagOnlyHere,
    /// 18: a tag is reused without a flush of what is left under it.
    TagReusedWithoutFlush,
    /// 19: the kernel hands the engine's numbers of CPUs to the interrupt controller, which has others.
    CpuNumberAsApicId,
    /// 20: what is loaded is read before interrupts are masked.
    StaleViewOfLoaded,
    /// 21: targets are filtered by what the *requester* runs.
    FilterByRequester,
    /// 22: a departing CPU acknowledges a request twice.
    DepartingCpuAcknowledgesTwice,
    /// 23: the membership bit is cleared before the new root is loaded.
    LeaveBeforeRootLoad,
    /// A CPU says what it has loaded before it has left the set of what it had: a space that ends does not wait for it.
    PublishedBeforeDeparture,
    /// 24: the waiter gives up after its bound.
    GiveUpWaiting,
    /// 26: count minus one is passed where the count is meant.
    BroadcastCountOffByOne,
    /// 27: a hart that waits in the firmware does not see to what other harts ask of it.
    FirmwareServesNobody,
    /// 29: the kernel lets interrupts in while it handles one.
    HandlerInterruptible,
    /// 30: a broadcast under split tags invalidates one half only.
    BroadcastOneHalf,
    /// 31: the root is loaded before the CPU set is joined.
    RootLoadBeforeJoin,
    /// 32: no barrier between leaving lazy and reading the generation.
    NoBarrierAfterLazy,
    /// 33, 34: whoever relies on a cleared entry does not look for a batch that has still to flush it.
    SettleIgnoresPending,
    /// 35: lazy CPUs are skipped although table pages are freed.
    SkipLazyDespiteTables,
    /// 36: a flush that frees tables tells the CPUs that run the space, and not those that walk it.
    FlushTellsNoWalkers,
    /// The freeing side looks for walkers before its barrier.
    WalkersReadBeforeBarrier,
    /// Walks leave interrupts on, so the handler forgets a registration in the middle of a walk.
    WalkInterruptible,
    /// After a change of policy the freeing side honours the new mode only.
    PolicyForgetsOldWalkers,
    /// A CPU that comes online goes on with the registrations of its walks from before.
    OnlineKeepsRegistrations,
    /// A grace period is taken to be over one too early.
    GracePeriodTooShort,
    /// 37: a switch leaves interrupts on.
    SwitchInterruptible,
    /// 38: a roll-over does not keep the tags of lazy CPUs, and a CPU leaves lazy on its old tag.
    LazyKeepsOldTag,
    /// 39: the request is sent before the change is published.
    SendBeforePublish,
    /// 40: going lazy clears the membership bit although the root stays loaded.
    LazyLeavesSet,
    /// 42: the tag is flushed before the root load instead of with it.
    FlushBeforeRootLoad,
    /// A CPU that is asked by a request leaves the set of the space although it runs it.
    DepartsWithoutLooking,
    /// 43: the hypervisor is asked whether a virtual CPU is descheduled, and told to flush it in a second step.
    DescheduledNotAtomic,
    /// A virtual CPU that was descheduled in the middle of a lockless walk is not told that a table goes.
    SkipDescheduledWalker,
    /// 44: a CPU that is off is waited for.
    WaitForCpuThatIsOff,
    /// 46: a batch reads the tag before the change is published, and not again.
    TagReadBeforePublish,
    /// Early acknowledgement although table pages are freed.
    EarlyDespiteTables,
    /// Early acknowledgement although a kernel range is concerned.
    EarlyDespiteKernelRange,
    /// The generation that a slot records is advanced before the flush.
    RecordedBeforeFlush,
    /// User addresses may be touched between the acknowledgement and the invalidation.
    UserAccessBeforeInvalidation,
    /// Whether user addresses may be touched is answered without a barrier, in the middle of the end of laziness.
    UserAccessWithoutBarrier,
    /// A deferred unmap does not advance the generation.
    DeferredWithoutGeneration,
    /// A deferral is taken to be over one epoch too early.
    DeferralOverTooSoon,
    /// A tick says that it has flushed, and has not.
    TickDoesNotFlush,
    /// An unmap is deferred although the space runs on a CPU without ticks.
    TicklessNotAsked,
    /// An unmap reads the epoch that it waits for before it asks which CPUs have no ticks: what a missing acquire comes to.
    EpochBeforeTickless,
    /// 47: local invalidations are acknowledged before they are complete.
    AcknowledgeBeforeLocalSync,
    /// 48: the requester may migrate between choosing targets and its own local flush.
    UnpinnedBeforeLocalFlush,
    /// Demotion: flushes under a system-wide tag neither advance the generation nor pass its barrier.
    NoGenerationUnderTag,
    /// Demotion: a flush meanwhile only broadcasts.
    DemotionOnlyBroadcasts,
    /// Secondary TLBs: not told of flushes of a space that is on a system-wide tag.
    SecondaryNotToldUnderTag,
    /// Secondary TLBs: not told of batches.
    SecondaryNotToldByBatch,
    /// Secondary TLBs: not told of the end of a space.
    SecondaryNotToldOfEnd,
    /// Secondary TLBs: told, and not waited for.
    SecondaryNotAwaited,
}

/// Whether a fault is switched on: `fault!(kernel, Name)`; `false`, at compile time, without the feature.
macro_rules! fault {
    ($kernel:expr, $name:ident) => {{
        #[cfg(feature = "faults")]
        let on = $kernel.fault($crate::fault::Fault::$name);
        #[cfg(not(feature = "faults"))]
        let on = false;
        on
    }};
}
pub(crate) use fault;
