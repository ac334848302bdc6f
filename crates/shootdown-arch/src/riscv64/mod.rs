//! RISC-V: SFENCE.VMA and Svinval, the root register, and the firmware's interrupts and remote fences.
//!
//! Order on a real hart: `fence rw, rw` between table writes and the message to another hart. SFENCE.VMA itself orders
//! the hart's own earlier table writes before its later walks. With Svinval: SFENCE.W.INVAL; any number of SINVAL.VMA;
//! SFENCE.INVAL.IR. A fence with an address covers only leaf entries: after freeing a page-table page use a form
//! without one.

pub mod fence;
pub mod ipi;
pub mod rfence;
pub mod satp;

pub use fence::Fence;
pub use rfence::{HartMask, RemoteFence};
pub use satp::{Asid, AsidWidth, Mode, Satp};
