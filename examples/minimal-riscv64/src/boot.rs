//! The first instructions of each CPU, which the kernel in C shares: `boot.S`, with the names that it expects.

core::arch::global_asm!(
    ".set first_cpu, {first}",
    ".set second_cpu, {second}",
    ".set interrupt, {interrupt}",
    ".set kernel_tables, {tables}",
    include_str!("../boot.S"),
    first = sym crate::first_cpu,
    second = sym crate::second_cpu,
    interrupt = sym crate::interrupt,
    tables = sym crate::KERNEL,
);

unsafe extern "C" {
    /// Entry of the second hart.
    pub fn start_second();
}
