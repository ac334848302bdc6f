//! The instructions, one function each.

instructions! { "x86_64":
    /// Orders earlier loads and stores before everything that follows, including a write to a model-specific register.
    run mfence_lfence = "mfence; lfence";
    run pause = "pause";
    write invlpg = "invlpg [{}]";
    read read_cr3 = "mov {}, cr3";
    write write_cr3 = "mov cr3, {}";
    read read_cr4 = "mov {}, cr4";
    write write_cr4 = "mov cr4, {}";
    /// RFLAGS; leaves interrupts masked.
    pop flags_and_cli = "pushfq; pop {}; cli";
    pop flags = "pushfq; pop {}";
    run sti = "sti";
    run tlbsync = ".byte 0x0F, 0x01, 0xFF";
}

use shootdown_arch::x86_64::invlpgb::Operands;
use shootdown_arch::x86_64::invpcid::Descriptor;

/// INVPCID.
#[inline(always)]
pub fn invpcid(kind: u64, descriptor: Descriptor) {
    #[cfg(all(target_arch = "x86_64", target_os = "none"))]
    // SAFETY: dropping cached translations is always correct. Memory is clobbered, as for every invalidation.
    unsafe {
        core::arch::asm!(
            "invpcid {}, [{}]",
            in(reg) kind, in(reg) &raw const descriptor,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "none")))]
    crate::instructions::on_host::pair("invpcid {}, {}", kind, descriptor.0[0] | descriptor.0[1]);
}

/// INVLPGB as bytes, because assemblers do not know it. The processor executes it, or an invalid-opcode handler
/// emulates it.
#[inline(always)]
pub fn invlpgb(Operands { rax, ecx, edx }: Operands) {
    #[cfg(all(target_arch = "x86_64", target_os = "none"))]
    // SAFETY: as for `invpcid`; an emulating handler also reads and writes memory.
    unsafe {
        core::arch::asm!(
            ".byte 0x0F, 0x01, 0xFE",
            in("rax") rax, in("ecx") ecx, in("edx") edx,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "none")))]
    crate::instructions::on_host::pair("invlpgb {}, {}", rax, u64::from(edx) << 32 | u64::from(ecx));
}

/// CPUID: EAX, EBX, ECX, EDX of a leaf.
pub fn cpuid(leaf: u32) -> [u32; 4] {
    #[cfg(all(target_arch = "x86_64", target_os = "none"))]
    {
        let (eax, ebx, ecx, edx): (u32, u64, u32, u32);
        // SAFETY: every processor has it; RBX, which the compiler reserves, is restored.
        unsafe {
            core::arch::asm!(
                "mov {saved}, rbx", "cpuid", "xchg {saved}, rbx",
                saved = out(reg) ebx, inout("eax") leaf => eax, inout("ecx") 0 => ecx, out("edx") edx,
                options(nostack, preserves_flags, nomem)
            );
        }
        [eax, ebx as u32, ecx, edx]
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "none")))]
    ["eax", "ebx", "ecx", "edx"].map(|register| {
        let name = match register {
            "eax" => [(0, "0.eax"), (0x8000_0000, "80000000.eax"), (1, "1.eax")].as_slice(),
            "ebx" => &[(7, "7.ebx"), (0x8000_0008, "80000008.ebx")],
            "ecx" => &[(1, "1.ecx"), (0x8000_0001, "80000001.ecx")],
            _ => &[(0x8000_0008, "80000008.edx")],
        };
        let name = name.iter().find(|(known, _)| *known == leaf);
        name.map_or(0, |(_, name)| crate::instructions::on_host::read(name) as u32)
    })
}

/// WRMSR.
#[inline(always)]
pub fn write_msr(register: u32, value: u64) {
    #[cfg(all(target_arch = "x86_64", target_os = "none"))]
    // SAFETY: called only with registers of the local APIC and of extended features, and with valid values.
    unsafe {
        core::arch::asm!(
            "wrmsr",
            in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "none")))]
    crate::instructions::on_host::pair("wrmsr {}, {}", u64::from(register), value);
}

/// RDMSR.
#[inline(always)]
pub fn read_msr(register: u32) -> u64 {
    #[cfg(all(target_arch = "x86_64", target_os = "none"))]
    {
        let (low, high): (u32, u32);
        // SAFETY: as for `write_msr`.
        unsafe {
            core::arch::asm!(
                "rdmsr",
                in("ecx") register, out("eax") low, out("edx") high,
                options(nostack, preserves_flags),
            );
        }
        u64::from(high) << 32 | u64::from(low)
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "none")))]
    {
        let _ = register;
        crate::instructions::on_host::read("rdmsr")
    }
}
