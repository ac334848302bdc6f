//! The instructions that invalidate translations and load roots. Operands come from `shootdown-arch`.

use super::cpu::Cpu;
use super::features;
use super::tally::{self, Instruction};
use core::arch::asm;
use core::sync::atomic::Ordering;
use shootdown_arch::x86_64::invlpgb::{Invlpgb, Operands};
use shootdown_arch::x86_64::{AddressWidth, Canonical, Cr3, Invpcid, Pcid};
use x86_64::registers::control::{Cr4, Cr4Flags};

fn canonical(address: u64) -> Canonical {
    Canonical::new(address, AddressWidth::Bits48).expect("the engine passes on addresses that were mapped")
}

fn pcid(tag: u16) -> Pcid {
    Pcid::new(tag).expect("the design's limit is 4096")
}

/// Drops the translation of one page under the loaded tag, or a global one, and the links on the way to it.
#[inline]
pub fn page_here(address: u64) {
    tally::note(Instruction::Invlpg);
    // SAFETY: dropping what is cached is always right.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Drops the translation of one page under `tag`, and the links on the way to it.
#[inline]
pub fn page(cpu: &Cpu, address: u64, tag: u16) {
    if cpu.loaded_tag.get() == tag {
        page_here(address);
    } else {
        page_elsewhere(address, tag);
    }
}

#[inline(never)]
fn page_elsewhere(address: u64, tag: u16) {
    if features::get().tags {
        invpcid(Invpcid::Address {
            pcid: pcid(tag),
            address: canonical(address),
        });
    }
    // Without tags a root load has dropped whatever is not loaded.
}

/// Drops every non-global translation under `tag`.
#[inline]
pub fn tag(cpu: &Cpu, tag: u16) {
    if features::get().tags {
        invpcid(Invpcid::Tag(pcid(tag)));
    } else if cpu.loaded_tag.get() == tag {
        reload_root(cpu);
    }
}

/// Drops every non-global translation under every tag.
pub fn all_non_global(cpu: &Cpu) {
    if features::get().tags {
        invpcid(Invpcid::NonGlobal);
    } else {
        reload_root(cpu);
    }
}

/// Drops everything, global translations included.
pub fn everything() {
    if features::get().tags {
        return invpcid(Invpcid::All);
    }
    // SAFETY: global pages off and on again, which drops everything.
    unsafe {
        let flags = Cr4::read();
        Cr4::write(flags - Cr4Flags::PAGE_GLOBAL);
        Cr4::write(flags);
    }
}

fn invpcid(what: Invpcid) {
    tally::note(match what {
        Invpcid::Address { .. } => Instruction::InvpcidAddress,
        Invpcid::Tag(_) => Instruction::InvpcidTag,
        Invpcid::NonGlobal => Instruction::InvpcidNonGlobal,
        Invpcid::All => Instruction::InvpcidAll,
    });
    let descriptor = what.descriptor();
    // SAFETY: the processor has it, the operands are of the encoder, and dropping what is cached is always right.
    unsafe {
        asm!("invpcid {}, [{}]", in(reg) what.kind(), in(reg) &raw const descriptor, options(nostack, preserves_flags, readonly));
    }
}

fn reload_root(cpu: &Cpu) {
    // SAFETY: the root that is loaded already.
    unsafe { write_cr3(cpu.loaded_root.load(Ordering::Relaxed)) };
}

/// Loads a root under a tag.
///
/// # Safety
/// The tables map the kernel as all others do, and stay until another root is loaded.
#[inline]
pub unsafe fn load_root(cpu: &Cpu, root: u64, tag: u16, keep: bool) {
    tally::note(match (tag, keep) {
        (0, _) => Instruction::RootUntagged,
        (_, true) => Instruction::RootKept,
        (_, false) => Instruction::RootTagged,
    });
    let bits = if features::get().tags {
        let load = Cr3::new(root, pcid(tag)).expect("roots are page-aligned");
        if keep { load.keeping().bits() } else { load.bits() }
    } else {
        root
    };
    // SAFETY: the caller's promise.
    unsafe { write_cr3(bits) };
    cpu.loaded_root.store(root, Ordering::Release);
    cpu.loaded_tag.set(tag);
}

#[inline]
unsafe fn write_cr3(bits: u64) {
    // SAFETY: the caller's promise. No `nomem`: what user addresses mean changes.
    unsafe { asm!("mov cr3, {}", in(reg) bits, options(nostack, preserves_flags)) };
}

/// Issues a broadcast: the real bytes, whether the processor has them or the handler of invalid opcodes carries them
/// out.
#[inline]
pub fn invlpgb(what: Invlpgb) {
    let Operands { rax, ecx, edx } = what.encode();
    // SAFETY: dropping what is cached, anywhere, is always right. Memory is clobbered: the emulation reads and writes
    // it.
    unsafe {
        asm!(".byte 0x0F, 0x01, 0xFE", in("rax") rax, in("ecx") ecx, in("edx") edx, options(nostack, preserves_flags));
    }
}

/// Waits for the broadcasts of this CPU.
#[inline]
pub fn tlbsync() {
    // SAFETY: as for `invlpgb`.
    unsafe { asm!(".byte 0x0F, 0x01, 0xFF", options(nostack, preserves_flags)) };
}
