//! How an invalidation reaches other CPUs and other TLBs: requests and IPIs with their handler, broadcast, RAR,
//! secondary TLBs.

pub(crate) mod broadcast;
pub(crate) mod early_ack;
pub(crate) mod handler;
pub(crate) mod ipi;
pub(crate) mod rar;
pub(crate) mod request;
pub(crate) mod secondary;
