//! One folder for each command. A command reads its options, starts its runs through [`crate::runs`], and prints.

#[cfg(target_os = "linux")]
pub mod calibrate;
pub mod check;
pub mod compare;
pub mod evidence;
pub mod explain;
#[cfg(target_os = "linux")]
pub mod host;
pub mod import;
pub mod list;
pub mod qemu;
#[cfg(target_os = "linux")]
pub mod record;
pub mod replay;
pub mod schema;
pub mod scoreboard;
pub mod sweep;
pub mod timeline;
pub mod walkers;
