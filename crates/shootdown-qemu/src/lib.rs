//! The bare-metal kernel in QEMU, for the program and the project's tests: finding QEMU, building the kernel, one run;
//! an image that boots on a real machine; and that image in Bochs, which has PCIDs.
//!
//! Independent of designs and of the kernel's output: a run is a command line, an exit status, and lines of text.

mod arch;
mod bochs;
mod emulator;
mod image;
mod iso;
mod needs;
mod plugin;
mod program;
mod run;
mod version;

pub use arch::Arch;
pub use bochs::{BOCHS_CPU, BOCHS_INSTALL, BOCHS_NEEDS, Bochs};
pub use emulator::{BINARY, Emulator, INSTALL, OLDEST, PACKAGE};
pub use image::{BARE_TARGET, Image};
pub use iso::{ISO_INSTALL, ISO_NEEDS, can_write_iso, write_iso, write_linux_iso};
pub use needs::is_there;
pub use plugin::{CpuCounts, Plugin, SpanCounts, Window};
pub use program::NotDone;
pub use run::{Clock, Ended, Machine, Run};
pub use version::Version;
