//! How an invalidation reaches other CPUs and other TLBs.
//!
//! ```text
//!   ipi.rs        interrupts, and the local part before or after   broadcast.rs  instructions to all CPUs
//!   post.rs       a bit for each target; they catch up by the log  rar.rs        remote actions by microcode
//!   send.rs       one descriptor, queued at each target            secondary.rs  TLBs that belong to no CPU
//!   request.rs    the descriptor, and the queue of each CPU
//!   room.rs       where a descriptor lies while it is sent
//!   handler.rs    the target: takes, does, acknowledges            early_ack.rs  acknowledges first
//!   leaf.rs       the same for the common request, of one leaf
//! ```
//!
//! # Invariants
//! * **C1** A target acknowledges after it has invalidated, or early where it uses no translation in between
//!   (`early_ack.rs`).
//! * **C3** A CPU in a lockless walk has interrupts off and does not answer. Nothing else here proves anything about
//!   walks.
//! * **C5** Handlers take no lock and wait for no CPU. A waiter serves its own requests. A requester sends its
//!   outstanding interrupts before it waits. A descriptor is released only when every target has acknowledged or is
//!   offline.
//! * **C7** Waits are those of `cpu/wait.rs`; `Rar` reports by its own hook.
//!
//! # Barriers
//! ```text
//!   requester, post.rs post                     target, handler.rs on_ipi and take_posts
//!     generation += 1       (full barrier)        after_ipi
//!     post |= POSTED        (full barrier)        post += 1, which clears POSTED   (full barrier)
//!       or found set: no write, see below         read generation and log; invalidate
//!     before_ipi; send_ipi                        served := take + 1               (release)
//!     read served           (acquire)
//!   ─ POSTED found set: the target takes it later, so its full barrier comes after this CPU's increment
//!
//!   requester, send.rs request                  target, request.rs take and handler.rs serve_queue
//!     write the descriptor                        ready := 0        (swap, full barrier)
//!     slot := pointer       (full barrier)        slot := 0         (swap, full barrier)
//!     ready += bit          (full barrier)        read the descriptor; invalidate
//!     before_ipi; send_ipi                        unacknowledged -= 1 (full barrier)
//!     read unacknowledged   (acquire)
//!   ─ the ready bit implies the descriptor; zero implies every invalidation
//!
//!   requester, send.rs queued                   CPU that goes offline, cpu/hotplug.rs cpu_offline
//!     ready += bit          (full barrier)        publish "off"
//!     read state: off? cancel                     full barrier; drain
//!   ─ sees it off, or is drained
//!
//!   requester, broadcast.rs publish_tables      any table walker
//!     write entries                               walks after the invalidation
//!     publish_tables_before_full, then a *_full
//!     broadcast; broadcast_sync                 ─ finds the new entries
//!
//!   requester, rar.rs post_entry                 microcode
//!     entry words; mark     (full barrier)        finds the mark, reads the words, invalidates
//!     before_ipi; signal                          takes the mark away
//!     read the mark         (acquire)           ─ no mark implies the invalidation
//! ```

pub(crate) mod broadcast;
pub(crate) mod early_ack;
pub(crate) mod handler;
pub(crate) mod ipi;
pub(crate) mod leaf;
pub(crate) mod post;
#[cfg(feature = "rar")]
pub(crate) mod rar;
pub(crate) mod request;
pub(crate) mod room;
pub(crate) mod secondary;
pub(crate) mod send;
