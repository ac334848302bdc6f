//! The shootdown program.
fn main() {}
