//! The engine's known bugs, and which of them can show in QEMU.
//!
//! Each either names a design under which torture catches it (`cargo xtask kernel` tries every one), or says why nothing is to
//! be seen here; those are caught in the simulated machine. On a processor with tags, links in caches and speculation more would
//! show.

/// Prints the table, a line of JSON each.
#[cfg(feature = "faults")]
pub fn list() {
    for known in KNOWN {
        match known.shows {
            Shows::Under(design) => crate::println!("{{\"fault\":\"{}\",\"design\":\"{design}\"}}", known.name),
            Shows::Not(why) => {
                crate::println!("{{\"fault\":\"{}\",\"design\":null,\"reason\":\"{why}\"}}", known.name);
            }
        }
    }
}

/// There is nothing to list.
#[cfg(not(feature = "faults"))]
pub fn list() {
    crate::println!("built without faults: cargo build --release --features faults");
}

/// A mistake of a kernel's hooks, and no bug of the engine's: pages of the kernel are dropped by dropping a tag, which leaves
/// them, because they are global. QEMU's root loads drop global pages too, so it shows in Bochs only (`cargo xtask bochs`).
#[cfg(feature = "faults")]
pub const KERNEL_RANGE_BY_TAG: &str = "KernelRangeByTag";

/// The bug of that name.
#[cfg(feature = "faults")]
pub fn named(name: &str) -> Option<shootdown::Fault> {
    KNOWN.iter().find(|known| known.name == name).map(|known| known.fault)
}

#[cfg(feature = "faults")]
struct Known {
    name: &'static str,
    fault: shootdown::Fault,
    shows: Shows,
}

#[cfg(feature = "faults")]
enum Shows {
    /// Under torture with this design.
    Under(&'static str),
    /// Why not.
    Not(&'static str),
}

/// QEMU's processor has no PCIDs: every root load drops what is not global.
#[cfg(feature = "faults")]
const NO_TAGS: Shows = Shows::Not("no tags: a root load drops everything that is not global");
#[cfg(feature = "faults")]
const NO_LINKS: Shows = Shows::Not("no paging-structure caches, and no walks by speculation");
#[cfg(feature = "faults")]
const IN_ORDER: Shows = Shows::Not("one CPU runs at a time: stores are seen in order, barriers or not");
#[cfg(feature = "faults")]
const COMPLETE: Shows = Shows::Not("local invalidations are complete at once");
#[cfg(feature = "faults")]
const MASKED: Shows =
    Shows::Not("between acknowledgement and invalidation the handler touches nothing that was unmapped");
#[cfg(feature = "faults")]
const STAYS: Shows = Shows::Not("threads stay on their CPU while they are in the kernel");
#[cfg(feature = "faults")]
const NO_DEVICE: Shows = Shows::Not("no TLB of a device or a guest");
#[cfg(feature = "faults")]
const NO_HOST: Shows = Shows::Not("this kernel is not told by its hypervisor which CPUs are descheduled");
#[cfg(feature = "faults")]
const NOT_DEFERRED: Shows = Shows::Not("unmaps are not deferred here: that is another contract");
#[cfg(feature = "faults")]
const NOT_SPLIT: Shows = Shows::Not("user and kernel share their tables");
#[cfg(feature = "faults")]
const NARROW: Shows = Shows::Not("a window of a few instructions, in which no access falls");

#[cfg(feature = "faults")]
const NOT_HERE: Shows =
    Shows::Not("a mistake of a kernel or of firmware, not the engine's: this kernel does not make it");

macro_rules! known {
    ($($name:ident: $shows:expr,)*) => {
        #[cfg(feature = "faults")]
        const KNOWN: &[Known] = &[
            $(Known { name: stringify!($name), fault: shootdown::Fault::$name, shows: $shows },)*
        ];
    };
}

// In the order of the engine's list.
known! {
    SkipSwitchingCpu: NO_TAGS,
    NoBarrierAfterJoin: IN_ORDER,
    TagBeyondRange: NO_TAGS,
    ZeroBroadcastLimit: Shows::Not("the limit is read before anything is broadcast, and never 0"),
    UserHalfMask16: NOT_SPLIT,
    TagTestBeforeLazyTest: NO_LINKS,
    ReusedUnderWalk: Shows::Under("walk-precise"),
    WalkWithoutFullBarrier: IN_ORDER,
    NoSelfService: Shows::Under("ipi"),
    SkipWhenNotCurrent: Shows::Under("ipi"),
    FlagBeforeArguments: Shows::Under("ipi"),
    OwnRequestReused: STAYS,
    CountedBeforeOnline: Shows::Under("ipi"),
    UnpinnedBeforeSending: STAYS,
    TablesNotPurged: NO_LINKS,
    TablesNamedOnce: NO_LINKS,
    NoPublishBeforeInvalidation: IN_ORDER,
    PublishAfterGeneration: IN_ORDER,
    OnlineInvalidatesEarly: IN_ORDER,
    WholeTagOnlyHere: Shows::Under("arm-broadcast"),
    TagReusedWithoutFlush: NO_TAGS,
    CpuNumberAsApicId: NOT_HERE,
    StaleViewOfLoaded: STAYS,
    FilterByRequester: Shows::Under("ipi"),
    DepartingCpuAcknowledgesTwice: Shows::Under("ipi"),
    LeaveBeforeRootLoad: NO_LINKS,
    PublishedBeforeDeparture: NARROW,
    GiveUpWaiting: Shows::Under("ipi"),
    BroadcastCountOffByOne: Shows::Under("arm-broadcast"),
    FirmwareServesNobody: NOT_HERE,
    HandlerInterruptible: NOT_HERE,
    BroadcastOneHalf: NOT_SPLIT,
    RootLoadBeforeJoin: NARROW,
    NoBarrierAfterLazy: IN_ORDER,
    SettleIgnoresPending: Shows::Under("ipi"),
    SkipLazyDespiteTables: NO_LINKS,
    FlushTellsNoWalkers: Shows::Under("walk-sticky"),
    WalkersReadBeforeBarrier: IN_ORDER,
    WalkInterruptible: Shows::Under("walk-precise"),
    PolicyForgetsOldWalkers: NARROW,
    OnlineKeepsRegistrations: NARROW,
    GracePeriodTooShort: Shows::Under("walk-grace"),
    SwitchInterruptible: NO_TAGS,
    LazyKeepsOldTag: NO_TAGS,
    SendBeforePublish: Shows::Under("ipi"),
    LazyLeavesSet: Shows::Under("ipi"),
    FlushBeforeRootLoad: NO_TAGS,
    DepartsWithoutLooking: Shows::Under("ipi-trim"),
    DescheduledNotAtomic: NO_HOST,
    SkipDescheduledWalker: NO_HOST,
    WaitForCpuThatIsOff: Shows::Under("ipi-trim"),
    TagReadBeforePublish: NARROW,
    EarlyDespiteTables: NO_LINKS,
    EarlyDespiteKernelRange: MASKED,
    RecordedBeforeFlush: MASKED,
    UserAccessBeforeInvalidation: MASKED,
    UserAccessWithoutBarrier: IN_ORDER,
    DeferredWithoutGeneration: NOT_DEFERRED,
    DeferralOverTooSoon: NOT_DEFERRED,
    TickDoesNotFlush: NOT_DEFERRED,
    TicklessNotAsked: NOT_DEFERRED,
    EpochBeforeTickless: NOT_DEFERRED,
    AcknowledgeBeforeLocalSync: COMPLETE,
    UnpinnedBeforeLocalFlush: STAYS,
    NoGenerationUnderTag: NO_TAGS,
    DemotionOnlyBroadcasts: NARROW,
    SecondaryNotToldUnderTag: NO_DEVICE,
    SecondaryNotToldByBatch: NO_DEVICE,
    SecondaryNotToldOfEnd: NO_DEVICE,
    SecondaryNotAwaited: NO_DEVICE,
}
