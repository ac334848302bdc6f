//! x86-64: INVLPGB and TLBSYNC, INVPCID, CR3, the interrupt command register, and their CPUID bits.

pub mod address;
pub mod cpuid;
pub mod cr3;
pub mod icr;
pub mod invlpgb;
pub mod invpcid;
pub mod rar;

pub use address::{AddressWidth, Canonical};
pub use cr3::{Cr3, Pcid, PcidPair};
pub use invlpgb::{Invlpgb, InvlpgbLimits};
pub use invpcid::Invpcid;
