//! The features of a processor, from its ID registers, and its errata, by its MIDR.
//!
//! Every function takes register values and executes nothing. The list of parts errs towards more invalidation and
//! towards interrupts, which are always correct (C6). A part whose fixed revision is uncertain is listed in all
//! revisions.

/// TLBI by range exists (ID_AA64ISAR0_EL1.TLB \[59:56\] is 2 or more).
pub const fn has_range(id_aa64isar0: u64) -> bool {
    id_aa64isar0 >> 56 & 0xF >= 2
}

/// The level hint is supported (ID_AA64MMFR2_EL1.TTL \[51:48\]). Without it those bits of the operand must be 0.
pub const fn has_level_hint(id_aa64mmfr2: u64) -> bool {
    id_aa64mmfr2 >> 48 & 0xF >= 1
}

/// How much of break-before-make may be omitted for a change of only the size (ID_AA64MMFR2_EL1.BBM \[55:52\]): 0
/// nothing, 1 with the nT bit, 2 all of it, at the price of conflict aborts. A change of output address always needs
/// it.
pub const fn break_before_make_level(id_aa64mmfr2: u64) -> u8 {
    (id_aa64mmfr2 >> 52 & 0xF) as u8
}

/// Main ID register: implementer, part, revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Midr(pub u32);

impl Midr {
    /// Implementer, such as 41h for Arm.
    pub const fn implementer(self) -> u32 {
        self.0 >> 24
    }

    /// Part number within the implementer.
    pub const fn part(self) -> u32 {
        self.0 >> 4 & 0xFFF
    }

    /// Variant and revision, `r1p2` as 12h.
    pub const fn revision(self) -> u32 {
        (self.0 >> 20 & 0xF) << 4 | self.0 & 0xF
    }
}

/// What must be done differently. The first three correspond to the engine's errata settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Workarounds {
    /// Interrupt instead of broadcasting.
    pub never_broadcast: bool,
    /// Interrupt in addition to every broadcast.
    pub interrupt_too: bool,
    /// Invalidate and synchronise twice.
    pub repeat: bool,
    /// Break before make where a user page loses execute permission: clear the entry, flush, then store the new one.
    /// The kernel does that; the engine changes no entries.
    pub break_to_lose_execution: bool,
}

const ARM: u32 = 0x41;
const CAVIUM: u32 = 0x43;
const NVIDIA: u32 = 0x4E;
const QUALCOMM: u32 = 0x51;
const MICROSOFT: u32 = 0x6D;

impl Workarounds {
    /// None.
    pub const NONE: Workarounds = Workarounds {
        never_broadcast: false,
        interrupt_too: false,
        repeat: false,
        break_to_lose_execution: false,
    };

    /// Workarounds that the processor needs. Part numbers: Linux `arch/arm64/include/asm/cputype.h`. Affected parts:
    /// Linux `kernel/cpu_errata.c` and `Documentation/arch/arm64/silicon-errata.rst`.
    /// - repeat, in all revisions, for CVE-2025-10263 (4118414 in Linux): a DSB may complete before stores are observed
    ///   that were translated by the invalidated entries. Cortex-A76 to A78C, A710, X1 to X4 and X925, Neoverse N1, N2,
    ///   V1 to V3AE, C1-Ultra and C1-Premium, NVIDIA Olympus, Microsoft Azure Cobalt 100;
    /// - repeat, for older errata: Falkor and Kryo 1009; Kryo 4xx Gold 1286807 (Cortex-A76 had it too); Cortex-A55
    ///   2441007; Cortex-A510 2441009, fixed in r1p2;
    /// - interrupt too: C1-Pro 4193714;
    /// - break to lose execution, in all revisions: Cortex-A715 2645198. At the next permission fault of an instruction
    ///   fetch, ESR and FAR may be wrong;
    /// - never broadcast: ThunderX (CN88xx) pass 1, and 27456 up to pass 2.1, and on CN81xx pass 1.0. Kernels that
    ///   flush the instruction cache at each switch may broadcast on pass 2.
    pub const fn of(midr: Midr) -> Workarounds {
        let revision = midr.revision();
        let never_broadcast = Workarounds {
            never_broadcast: true,
            ..Workarounds::NONE
        };
        match (midr.implementer(), midr.part()) {
            // Cortex-A76, A76AE, A77, A78, A78AE, A78C, A710.
            (ARM, 0xD0B | 0xD0E | 0xD0D | 0xD41 | 0xD42 | 0xD4B | 0xD47) => Workarounds::REPEAT,
            // Cortex-X1, X1C, X2, X3, X4, X925; C1-Ultra, C1-Premium.
            (ARM, 0xD44 | 0xD4C | 0xD48 | 0xD4E | 0xD82 | 0xD85 | 0xD8C | 0xD90) => Workarounds::REPEAT,
            // Neoverse N1, N2, V1, V2, V3AE, V3.
            (ARM, 0xD0C | 0xD49 | 0xD40 | 0xD4F | 0xD83 | 0xD84) => Workarounds::REPEAT,
            // Olympus; Azure Cobalt 100, which is a Neoverse N2.
            (NVIDIA, 0x010) | (MICROSOFT, 0xD49) => Workarounds::REPEAT,
            // Falkor in its first and last stepping; every Kryo; Kryo 4xx Gold, whose later revisions are fixed.
            (QUALCOMM, 0x800 | 0xC00 | 0x200..=0x2FF | 0x804) => Workarounds::REPEAT,
            (ARM, 0xD05) => Workarounds::REPEAT,
            (ARM, 0xD46) if revision <= 0x11 => Workarounds::REPEAT,
            (ARM, 0xD4D) => Workarounds {
                break_to_lose_execution: true,
                ..Workarounds::NONE
            },
            (ARM, 0xD8B) => Workarounds {
                interrupt_too: true,
                ..Workarounds::NONE
            },
            (CAVIUM, 0x0A1) if revision <= 0x11 => never_broadcast,
            (CAVIUM, 0x0A2) if revision == 0 => never_broadcast,
            _ => Workarounds::NONE,
        }
    }

    const REPEAT: Workarounds = Workarounds {
        repeat: true,
        ..Workarounds::NONE
    };

    /// The workarounds of a machine with both kinds of processor.
    pub const fn or(self, other: Workarounds) -> Workarounds {
        Workarounds {
            never_broadcast: self.never_broadcast || other.never_broadcast,
            interrupt_too: self.interrupt_too || other.interrupt_too,
            repeat: self.repeat || other.repeat,
            break_to_lose_execution: self.break_to_lose_execution || other.break_to_lose_execution,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn midr(implementer: u32, part: u32, variant: u32, revision: u32) -> Midr {
        Midr(implementer << 24 | variant << 20 | 0xF << 16 | part << 4 | revision)
    }

    #[test]
    fn id_register_features_read_only_their_fields() {
        assert!(has_range(2 << 56) && has_range(3 << 56));
        assert!(!has_range(1 << 56) && !has_range(!(0xF << 56)));
        assert!(has_level_hint(1 << 48) && !has_level_hint(!(0xF << 48)));
        assert_eq!(break_before_make_level(2 << 52 | 1 << 48), 2);
    }

    #[test]
    fn midr_fields_are_decoded() {
        let a76 = Midr(0x413F_D0B1);
        assert_eq!((a76.implementer(), a76.part(), a76.revision()), (0x41, 0xD0B, 0x31));
    }

    #[test]
    fn affected_revisions_get_workarounds_and_fixed_revisions_none() {
        let repeat = |m| Workarounds::of(m) == Workarounds::REPEAT;
        assert!(repeat(midr(0x41, 0xD0B, 3, 0)) && repeat(midr(0x41, 0xD0B, 4, 1)));
        assert!(repeat(midr(0x41, 0xD46, 1, 1)) && !repeat(midr(0x41, 0xD46, 1, 2)));
        assert!(repeat(midr(0x41, 0xD05, 2, 0)) && repeat(midr(0x51, 0x800, 0, 0)));
        assert!(Workarounds::of(midr(0x41, 0xD8B, 0, 0)).interrupt_too);
        let a715 = Workarounds {
            break_to_lose_execution: true,
            ..Workarounds::NONE
        };
        assert_eq!(Workarounds::of(midr(0x41, 0xD4D, 1, 0)), a715);
        assert_eq!(Workarounds::NONE.or(a715), a715);
        assert!(Workarounds::of(midr(0x43, 0x0A1, 0, 0)).never_broadcast);
        assert!(Workarounds::of(midr(0x43, 0x0A1, 1, 1)).never_broadcast);
        assert_eq!(Workarounds::of(midr(0x43, 0x0A1, 1, 2)), Workarounds::NONE);
        assert!(Workarounds::of(midr(0x43, 0x0A2, 0, 0)).never_broadcast);
        assert_eq!(Workarounds::of(midr(0x43, 0x0A2, 0, 1)), Workarounds::NONE);
        assert!(repeat(midr(0x51, 0x205, 1, 1)) && repeat(midr(0x51, 0x804, 0xC, 0xE)));
        assert!(!repeat(midr(0x51, 0x300, 0, 0)) && !repeat(midr(0x51, 0x1FF, 0, 0)));
    }

    #[test]
    fn repeat_workaround_applies_to_listed_cores_only() {
        let repeat = |implementer, part| (0..16).all(|r| Workarounds::of(midr(implementer, part, r, r)).repeat);
        // Cortex-A76 to X925, Neoverse N1 to V3AE, C1-Ultra and C1-Premium, by number.
        let arm = [
            0xD0B, 0xD0C, 0xD0D, 0xD0E, 0xD40, 0xD41, 0xD42, 0xD44, 0xD47, 0xD48, 0xD49, 0xD4B, 0xD4C, 0xD4E, 0xD4F,
            0xD82, 0xD83, 0xD84, 0xD85, 0xD8C, 0xD90,
        ];
        for part in arm {
            assert!(repeat(0x41, part), "{part:#x}");
        }
        assert!(repeat(0x4E, 0x010) && repeat(0x6D, 0xD49));
        // Cortex-A53, A72, A520, A720; Neoverse E1, N3; Carmel; the same number from another implementer.
        for (implementer, part) in [
            (0x41, 0xD03),
            (0x41, 0xD08),
            (0x41, 0xD80),
            (0x41, 0xD81),
            (0x41, 0xD4A),
            (0x41, 0xD8E),
            (0x4E, 0x004),
            (0xC0, 0xD49),
        ] {
            assert_eq!(
                Workarounds::of(midr(implementer, part, 0, 0)),
                Workarounds::NONE,
                "{part:#x}"
            );
        }
    }

    #[test]
    fn workarounds_of_a_mixed_machine_are_the_union() {
        let mixed = Workarounds::of(midr(0x41, 0xD05, 0, 0)).or(Workarounds::of(midr(0x41, 0xD8B, 0, 0)));
        assert_eq!(
            (mixed.never_broadcast, mixed.interrupt_too, mixed.repeat),
            (false, true, true)
        );
    }
}
