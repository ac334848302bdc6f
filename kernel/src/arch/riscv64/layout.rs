//! Where things are in the address space: 39 bits of it.

/// First address of the upper half.
pub const DIRECT_MAP: u64 = 0xFFFF_FFC0_0000_0000;
/// Kernel mappings that come and go.
pub const DYNAMIC: u64 = 0xFFFF_FFE0_0000_0000;
/// Physical address 0, where the kernel is linked.
pub const KERNEL_BASE: u64 = 0xFFFF_FFFF_0000_0000;
/// User addresses lie below this power of two.
pub const USER_BITS: u32 = 38;
