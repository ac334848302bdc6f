//! AArch64: operands of TLBI and of its range form, ASIDs, the root register, software-generated interrupts, and
//! feature identification.
//!
//! Order on a real processor, which no operand can express: `dsb ishst`; TLBI; `dsb ish`; `isb` where kernel mappings
//! changed. The local form is `dsb nshst`; TLBI; `dsb nsh`.

pub mod asid;
pub mod identification;
pub mod range;
pub mod sgi;
pub mod tlbi;
pub mod ttbr;

pub use asid::{Asid, AsidPair, AsidWidth};
pub use identification::{Midr, Workarounds};
pub use range::{Cover, RangeOperand, Step};
pub use tlbi::{Granule, Level, Operand};
pub use ttbr::Ttbr;
