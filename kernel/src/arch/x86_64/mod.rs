//! x86-64: PVH or multiboot2, ACPI, local APICs, four levels of tables.

mod acpi;
pub mod boot;
pub mod console;
pub mod controller;
pub mod cpu;
mod descriptors;
mod emulate;
pub mod features;
pub mod format;
pub mod interrupts;
pub mod invalidate;
pub mod layout;
mod loader;
pub mod marks;
pub mod probe;
mod screen;
pub mod timer;
pub mod traps;
pub mod user;
