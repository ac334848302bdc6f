//! The loader's device tree: the command line, memory, CPUs, and the addresses of devices.

use crate::memory::{self, DIRECT_BYTES};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

/// Most bytes of a tree.
const MOST: usize = 2 << 20;

/// A tree.
#[derive(Clone, Copy)]
pub struct Tree(Fdt<'static>);

/// The loader's information.
pub struct BootInfo {
    /// The command line.
    pub line: &'static str,
    /// End of the memory into which the kernel was loaded; the kernel's own data are all above its image there.
    pub memory_end: u64,
    /// The hardware of the board.
    pub tree: Tree,
    /// The number of the running CPU in the tree.
    pub running: u64,
}

impl BootInfo {
    /// What the tree says.
    pub fn read(tree: Tree, running: u64) -> BootInfo {
        let archive = tree.keep_archive();
        BootInfo {
            line: tree.command_line(),
            memory_end: tree.end_of_memory(memory::image_end()).min(archive),
            tree,
            running,
        }
    }
}

/// First byte and length.
pub type MemoryRange = (u64, u64);

impl Tree {
    /// The tree at a physical address in the direct map; `None` without one.
    pub fn at(address: u64) -> Option<Tree> {
        if address.checked_add(40)? > DIRECT_BYTES {
            return None;
        }
        let header = memory::direct::<[u8; 8]>(address);
        // SAFETY: the loader's memory, in the direct map, which is never written.
        let [m0, m1, m2, m3, l0, l1, l2, l3] = unsafe { header.read() };
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if [m0, m1, m2, m3] != 0xD00D_FEED_u32.to_be_bytes() || length > MOST {
            return None;
        }
        // SAFETY: as above, with the length from its header.
        let bytes = unsafe { core::slice::from_raw_parts(header.cast_const().cast::<u8>(), length) };
        // A copy: the memory may be allocated.
        Fdt::new(Vec::leak(bytes.to_vec())).ok().map(Tree)
    }

    /// The kernel's command line.
    pub fn command_line(self) -> &'static str {
        let chosen = self.0.find_node("/chosen");
        let line = chosen.and_then(|node| text(&node, "bootargs"));
        Box::leak(line.unwrap_or_default().into_boxed_str())
    }

    /// Keeps the archive that the loader has put in memory above the kernel: by `-initrd`, which QEMU ignores for an
    /// ELF kernel on Arm, or by `-device guest-loader`. Returns its address: memory from there on is not allocated.
    pub fn keep_archive(self) -> u64 {
        let ends = self.0.find_node("/chosen").and_then(|chosen| {
            let [start, end] = ["linux,initrd-start", "linux,initrd-end"].map(|name| number(&chosen, name));
            Some((start?, end?))
        });
        let ends = ends.or_else(|| self.module());
        let Some((start, end)) = ends.filter(|&(start, end)| start < end && end <= DIRECT_BYTES) else {
            return DIRECT_BYTES;
        };
        // SAFETY: the loader's memory, in the direct map, which is never written.
        let bytes = unsafe { core::slice::from_raw_parts(memory::direct(start), (end - start) as usize) };
        crate::linux::archive::keep(bytes);
        start
    }

    /// First byte and end of what `guest-loader` has loaded.
    fn module(self) -> Option<MemoryRange> {
        let mut nodes = Vec::new();
        collect(
            self.0.root(),
            &|node| node.is_compatible("multiboot,ramdisk"),
            &mut nodes,
        );
        // QEMU writes 64 bits of each, whatever its parent says.
        let property = nodes.first()?.property("reg")?;
        let (start, length) = property.value().split_first_chunk::<8>()?;
        let start = u64::from_be_bytes(*start);
        Some((start, start.checked_add(u64::from_be_bytes(*length.first_chunk()?))?))
    }

    /// End of the memory that contains `address`, limited to the direct map.
    pub fn end_of_memory(self, address: u64) -> u64 {
        let mut nodes = Vec::new();
        collect(
            self.0.root(),
            &|node| node.name_without_address() == "memory",
            &mut nodes,
        );
        let memory_ranges = nodes.into_iter().flat_map(memory_ranges);
        let found = memory_ranges
            .into_iter()
            .find(|&(start, length)| (start..start + length).contains(&address));
        let (start, length) = found.unwrap_or_else(|| lacks("no memory node with the address of the kernel"));
        (start + length).min(DIRECT_BYTES)
    }

    /// The `reg` of every usable CPU, `running` first.
    pub fn cpus(self, running: u64) -> Vec<u64> {
        let mut all = Vec::from([running]);
        let cpus = self.0.find_node("/cpus").unwrap_or_else(|| lacks("no /cpus"));
        for node in cpus.children().filter(|node| node.name_without_address() == "cpu") {
            let usable = text(&node, "status").is_none_or(|status| status == "okay");
            let id = number(&node, "reg").unwrap_or_else(|| lacks("a CPU has no reg"));
            if usable && id != running {
                all.push(id);
            }
        }
        all.truncate(crate::cpu::MOST_CPUS);
        all
    }

    /// The address ranges of the first device that is compatible with one of `names`.
    pub fn device(self, names: &[&str]) -> Option<Vec<MemoryRange>> {
        let mut nodes = Vec::new();
        collect(
            self.0.root(),
            &|node| names.iter().any(|name| node.is_compatible(name)),
            &mut nodes,
        );
        nodes.first().map(|&node| memory_ranges(node))
    }

    /// A string property of the node at `path`.
    pub fn text(self, path: &str, name: &str) -> Option<String> {
        text(&self.0.find_node(path)?, name)
    }

    /// A property of one or two cells, of the node at `path`.
    pub fn number(self, path: &str, name: &str) -> Option<u64> {
        number(&self.0.find_node(path)?, name)
    }

    /// A string property of each CPU.
    pub fn text_of_cpus(self, name: &str) -> Vec<String> {
        let cpus = self.0.find_node("/cpus").unwrap_or_else(|| lacks("no /cpus"));
        let nodes = cpus.children().filter(|node| node.name_without_address() == "cpu");
        nodes.map(|node| text(&node, name).unwrap_or_default()).collect()
    }
}

fn lacks(what: &str) -> ! {
    crate::serial::give_up(format_args!("device tree: {what}; use another device tree"))
}

fn collect(node: FdtNode<'static>, matches: &dyn Fn(&FdtNode<'static>) -> bool, found: &mut Vec<FdtNode<'static>>) {
    if matches(&node) {
        found.push(node);
    }
    for child in node.children() {
        collect(child, matches, found);
    }
}

fn memory_ranges(node: FdtNode<'static>) -> Vec<MemoryRange> {
    let all = node.reg().ok().flatten().into_iter().flatten();
    all.filter_map(|reg| Some((reg.address::<u64>().ok()?, reg.size::<u64>().ok()?)))
        .collect()
}

/// The first of a list of strings.
fn text(node: &FdtNode<'static>, name: &str) -> Option<String> {
    let property = node.property(name)?;
    let first = property.value().split(|&byte| byte == 0).next()?;
    core::str::from_utf8(first).ok().map(String::from)
}

fn number(node: &FdtNode<'static>, name: &str) -> Option<u64> {
    let property = node.property(name)?;
    let cells = property.value().iter().take(8);
    (!property.value().is_empty()).then(|| cells.fold(0, |number, &byte| number << 8 | u64::from(byte)))
}
