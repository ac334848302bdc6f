//! A CPU: what it has loaded, its switches between address spaces, how it comes online and goes offline, how it catches
//! up with flushes that skipped it, and how it waits for others.
//!
//! ```text
//!   state.rs      the words of a CPU, and which CPU writes which     switch.rs   switch_to, lazy TLB mode
//!   catch_up.rs   from a slot that is behind to the generation       hotplug.rs  online, offline
//!   local_flag.rs flags that no other CPU reads                      wait.rs     waits, and their reports
//!   mask_seen.rs  whether interrupts were off, for reports
//! ```
//!
//! # Invariants
//! * **C1** A slot never records a generation that it has not flushed. The generation is read before the flush, never
//!   after.
//! * **C3** `unload`, `switch_to_masked`: a CPU leaves a set after the new root is loaded. Entries for freed tables are
//!   dropped by the load.
//! * **C4** `load_slot`: a slot that gets a new owner is flushed by the load of the root, in one step. Without tags
//!   (`load_untagged`) every load drops everything.
//! * **C5** `cpu_offline` answers pending requests; `cpu_online` flushes everything. In between no CPU waits for this
//!   one.
//! * **C7** `wait_and`: a wait that takes too long is reported, and continues.
//!
//! # Barriers
//! ```text
//!   CPU that switches, switch_to_masked          requester, flush/mod.rs publish_and_count
//!     1 publish "switching"  (release)             generation += 1   (full barrier)
//!     2 join the set         (full barrier)        read mode, set    (acquire)
//!     3 read mode, generation; load the root       read states       (acquire)
//!     4 leave the old set; publish "loaded"      ─ see flush/mod.rs for the outcomes
//!
//!   CPU that ends lazy TLB mode, leave_lazy_here requester, flush/mod.rs publish_and_count
//!     clear "lazy"                                 generation += 1   (full barrier)
//!     full barrier                                 read state
//!     read generation; catch up
//!
//!   CPU that goes offline, cpu_offline           requester, transport/send.rs and post.rs
//!     leave the online set; publish "off"          queue or post     (full barrier)
//!     forget_running         (full barrier)        read state: off? take the request back
//!     drain: answer what is queued or posted     ─ drained here, or taken back there
//!
//!   CPU that comes online, come_online           requester, flush/kernel_range.rs flush_kernel
//!     publish "on"; join     (full barrier)        kernel generation += 1 (full barrier)
//!     publish_tables; flush everything             read the online set
//!
//!   any root load                                tags/rollover.rs, tags/promotion.rs
//!     before_root_load: earlier reads of mode      swap or compare-exchange of the mode (full barrier)
//!     and epoch come before fills from the root
//! ```

pub(crate) mod catch_up;
pub(crate) mod hotplug;
pub(crate) mod local_flag;
pub(crate) mod mask_seen;
pub(crate) mod state;
pub(crate) mod switch;
pub(crate) mod wait;
