//! Sizes for statically reserved memory, and for members of the kernel's own structures.
//!
//! Upper bounds, checked here against the library. shootdown_engine_size and shootdown_space_size are exact.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::kernel::{CEngine, CFacade, CSpace};
use shootdown::PerCpu;

/// Alignment of the memory of an engine or a space, bytes: a cache line.
pub const SHOOTDOWN_ALIGNMENT: usize = 64;

/// Bytes of a space.
pub const SHOOTDOWN_SPACE_SIZE: usize = 704 + 16 * SHOOTDOWN_CPU_WORDS;

/// Bytes of an engine without its CPUs and tags.
pub const SHOOTDOWN_ENGINE_FIXED: usize = 1664 + 24 * SHOOTDOWN_CPU_WORDS;

/// Bytes of each CPU of an engine.
pub const SHOOTDOWN_CPU_SIZE: usize = 1600;

// The size reserved by C suffices.
const _: () = {
    assert!(size_of::<CSpace>() <= SHOOTDOWN_SPACE_SIZE);
    assert!(size_of::<CEngine>() <= SHOOTDOWN_ENGINE_FIXED);
    assert!(size_of::<PerCpu<CFacade>>() <= SHOOTDOWN_CPU_SIZE);
    assert!(crate::memory::ALIGNMENT <= SHOOTDOWN_ALIGNMENT);
};
