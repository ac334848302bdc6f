//! System-wide tags: the pool, roll-over, promotion and demotion.
//!
//! ```text
//!   pool.rs       which tags are free, dirty, being flushed     promotion.rs  a space gets a tag; the end of a space
//!   rollover.rs   one tag per space, all renewed at once        demotion.rs   a space gives its tag back
//!   state.rs      what the roll-over keeps
//! ```
//!
//! # Invariants
//! * **C4** `pool.rs`: a tag is allocated only after a complete invalidation that began when no CPU could load it any
//!   more. `rollover.rs`: a CPU flushes itself before it uses any tag of a new epoch; tags that CPUs run on stay
//!   reserved.
//! * **C1** `promotion.rs`, `demotion.rs`: while a space changes its kind of tag, each flush broadcasts *and*
//!   interrupts.
//! * **C5** The lock of the roll-over is held with interrupts off, and its holder waits for no CPU.
//! * **C7** A wait for that lock, and the waits of `retire`, are reported.
//!
//! # Barriers
//! ```text
//!   promote, change to Demoting                  requester, flush/mod.rs publish_and_count
//!     mode := ...  (compare-exchange, full)        generation += 1   (full barrier)
//!     CPUs read the mode, then load the tag        read mode
//!
//!   flush_in_transition, flush_in_demotion       CPU that switches, cpu/switch.rs
//!     read or change the mode                      join   (full barrier)
//!     stragglers: full barrier                     read mode; load the root
//!     read set and states                        ─ found as a straggler, or it reads the new mode
//!
//!   rolled_tag, fast path                        roll_over, under the lock
//!     active: old -> new (compare-exchange, full)  active := 0   (swap, full barrier)
//!     load the root                                reserve what was found; mark "flush pending"
//!   ─ reserved by the roll-over, or the exchange fails and the slow path flushes
//!
//!   rolled_tag_slowly                            requester, flush/mod.rs publish_and_count
//!     mode := new tag  (swap, full barrier)        generation += 1   (full barrier)
//!     load the root; fill                          read mode
//!
//!   TagPool::free_dirty (full)                   TagPool::reclaim
//!                                                  dirty -> flushing (swap, full barrier)
//!                                                  publish_tables; broadcast; broadcast_sync
//!                                                  used &= !flushing (full barrier)
//!                                                TagPool::allocate: used |= bit (full barrier)
//! ```

pub(crate) mod demotion;
pub(crate) mod pool;
pub(crate) mod promotion;
pub(crate) mod rollover;
pub(crate) mod state;
