//! The layout of the address space.

/// First address of the upper half.
pub const DIRECT_MAP: u64 = 0xFFFF_8000_0000_0000;
/// Dynamic kernel mappings.
pub const DYNAMIC: u64 = 0xFFFF_C000_0000_0000;
/// Physical address 0, where the kernel is linked.
pub const KERNEL_BASE: u64 = 0xFFFF_FFFF_8000_0000;
/// User addresses are below this power of two.
pub const USER_BITS: u32 = 47;
