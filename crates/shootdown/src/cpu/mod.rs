//! A CPU: what it has loaded, its switches between address spaces, how it comes online and goes offline, and how it
//! catches up with flushes that skipped it.

pub(crate) mod catch_up;
pub(crate) mod hotplug;
pub(crate) mod local_flag;
pub(crate) mod state;
pub(crate) mod switch;
