//! Which invalidation instructions a processor has, read from CPUID register values.
//!
//! Every function takes the registers of the leaf that its parameter names (`ebx_8000_0008`: EBX of leaf 8000_0008) and
//! executes nothing. Sources: AMD APM vol. 3 appendix E, Intel SDM vol. 2 CPUID. A set bit is not enough: some parts
//! report features that they must not use, see [`must_not_broadcast`] and [`must_not_tag`].

use super::invlpgb::InvlpgbLimits;
pub use super::invlpgb::NestedForm;

const fn bit(register: u32, number: u32) -> bool {
    register >> number & 1 == 1
}

/// INVLPGB and TLBSYNC exist (EBX bit 3).
pub const fn has_invlpgb(ebx_8000_0008: u32) -> bool {
    bit(ebx_8000_0008, 3)
}

/// A guest may be allowed to execute INVLPGB and TLBSYNC (EDX bit 24). Without its host's permission they raise #UD
/// there.
pub const fn guest_may_have_invlpgb(edx_8000_000a: u32) -> bool {
    bit(edx_8000_000a, 24)
}

/// Translation cache extension (ECX bit 17), enabled by EFER bit 15: INVLPG, INVLPGB and INVPCID then drop only the
/// upper-level entries for the address, not all of them.
pub const fn has_translation_cache_extension(ecx_8000_0001: u32) -> bool {
    bit(ecx_8000_0001, 17)
}

/// The EFER bit that enables the translation cache extension.
pub const EFER_TCE: u64 = 1 << 15;

/// Process-context identifiers (ECX bit 17), enabled by CR4.PCIDE.
pub const fn has_pcid(ecx_1: u32) -> bool {
    bit(ecx_1, 17)
}

/// INVPCID (EBX bit 10).
pub const fn has_invpcid(ebx_7: u32) -> bool {
    bit(ebx_7, 10)
}

/// The vendor, by the vendor string of leaf 0 (EBX, EDX, ECX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// `AuthenticAMD`.
    Amd,
    /// `GenuineIntel`.
    Intel,
    /// Any other vendor.
    Other,
}

impl Vendor {
    /// From the registers of leaf 0.
    pub const fn from_cpuid(ebx_0: u32, ecx_0: u32, edx_0: u32) -> Vendor {
        const fn word(text: &[u8; 4]) -> u32 {
            u32::from_le_bytes(*text)
        }
        if ebx_0 == word(b"Auth") && edx_0 == word(b"enti") && ecx_0 == word(b"cAMD") {
            Vendor::Amd
        } else if ebx_0 == word(b"Genu") && edx_0 == word(b"ineI") && ecx_0 == word(b"ntel") {
            Vendor::Intel
        } else {
            Vendor::Other
        }
    }
}

/// Family, model and stepping, with the extended fields added as both vendors specify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Family, such as 19h for Zen 3.
    pub family: u32,
    /// Model within the family.
    pub model: u32,
    /// Stepping within the model.
    pub stepping: u32,
}

impl Signature {
    /// From EAX of leaf 1.
    pub const fn from_cpuid(eax_1: u32) -> Signature {
        let base = eax_1 >> 8 & 0xF;
        let family = if base == 0xF { base + (eax_1 >> 20 & 0xFF) } else { base };
        let low = eax_1 >> 4 & 0xF;
        let model = if base == 0xF || base == 6 {
            low | (eax_1 >> 16 & 0xF) << 4
        } else {
            low
        };
        Signature {
            family,
            model,
            stepping: eax_1 & 0xF,
        }
    }
}

/// Why a processor must not use INVLPGB even if CPUID reports it; `None` if it may.
///
/// - AMD family 17h (Zen, Zen+, Zen 2): no part is documented to have the instruction, and some Zen 2 client parts
///   (seen on family 17h model 47h) set the bit and then fault (Linux change "x86/CPU/AMD: Disable INVLPGB on Zen2",
///   2025).
///
/// The list errs towards interrupts, which are always correct (C6).
pub const fn must_not_broadcast(vendor: Vendor, signature: Signature) -> Option<&'static str> {
    match (vendor, signature.family) {
        (Vendor::Amd, 0x17) => Some("family 17h announces INVLPGB by mistake on some Zen 2 parts"),
        _ => None,
    }
}

/// Why a processor must not use PCIDs; `None` if it may. `microcode` is the loaded revision.
///
/// - Intel Alder Lake, Raptor Lake and Gracemont: INVLPG may leave global entries while PCIDs are on, until a microcode
///   update (Intel errata ADL063, RPL042; revisions as in Linux `arch/x86/mm/init.c`, `invlpg_miss_ids`). Only bare
///   metal is affected: pass `guest` if CPUID reports a hypervisor.
pub const fn must_not_tag(vendor: Vendor, signature: Signature, microcode: u32, guest: bool) -> Option<&'static str> {
    let fixed_in = match (vendor, signature.family, signature.model) {
        (Vendor::Intel, 6, 0x97) => 0x2E,
        (Vendor::Intel, 6, 0x9A) => 0x42C,
        (Vendor::Intel, 6, 0xBE) => 0x11,
        (Vendor::Intel, 6, 0xB7) => 0x118,
        (Vendor::Intel, 6, 0xBA) => 0x4117,
        (Vendor::Intel, 6, 0xBF) => 0x2E,
        _ => return None,
    };
    if guest || microcode >= fixed_in {
        None
    } else {
        Some("INVLPG may leave global entries while PCIDs are on; load newer microcode")
    }
}

/// The limits for INVLPGB; `None` if it must not or cannot be used. Call once CPUID can be read. Earlier kernel code
/// uses [`InvlpgbLimits::UNREAD`].
pub const fn broadcast_limits(
    vendor: Vendor,
    signature: Signature,
    ebx_8000_0008: u32,
    edx_8000_0008: u32,
) -> Option<InvlpgbLimits> {
    if has_invlpgb(ebx_8000_0008) && must_not_broadcast(vendor, signature).is_none() {
        Some(InvlpgbLimits::from_cpuid(edx_8000_0008))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEN2: Signature = Signature {
        family: 0x17,
        model: 0x47,
        stepping: 0,
    };
    const MILAN: Signature = Signature {
        family: 0x19,
        model: 1,
        stepping: 1,
    };

    #[test]
    fn each_cpuid_feature_reads_one_bit() {
        let alone = |test: fn(u32) -> bool, number: u32| (0..32).all(|i| test(1 << i) == (i == number));
        assert!(alone(has_invlpgb, 3));
        assert!(alone(guest_may_have_invlpgb, 24));
        assert!(alone(has_translation_cache_extension, 17));
        assert!(alone(has_pcid, 17));
        assert!(alone(has_invpcid, 10));
        assert!(alone(|ebx| NestedForm::from_cpuid(ebx).is_some(), 21));
    }

    #[test]
    fn signatures_add_the_extended_fields() {
        assert_eq!(Signature::from_cpuid(0x00A0_0F11), MILAN);
        assert_eq!(Signature::from_cpuid(0x0084_0F70), ZEN2);
        assert_eq!(
            Signature::from_cpuid(0x0009_0672),
            Signature {
                family: 6,
                model: 0x97,
                stepping: 2
            }
        );
    }

    #[test]
    fn vendors_are_distinguished() {
        assert_eq!(Vendor::from_cpuid(0x6874_7541, 0x444D_4163, 0x6974_6E65), Vendor::Amd);
        assert_eq!(Vendor::from_cpuid(0x756E_6547, 0x6C65_746E, 0x4965_6E69), Vendor::Intel);
        assert_eq!(Vendor::from_cpuid(0x756E_6547, 0x444D_4163, 0x6974_6E65), Vendor::Other);
    }

    #[test]
    fn zen_2_does_not_broadcast_even_if_cpuid_reports_invlpgb() {
        assert!(must_not_broadcast(Vendor::Amd, ZEN2).is_some());
        assert_eq!(broadcast_limits(Vendor::Amd, ZEN2, 1 << 3, 7), None);
        let milan = broadcast_limits(Vendor::Amd, MILAN, 1 << 3, 7).expect("allowed");
        assert_eq!(milan.max_pages().get(), 8);
        assert_eq!(broadcast_limits(Vendor::Amd, MILAN, 0, 7), None, "not announced");
    }

    #[test]
    fn alder_lake_uses_pcid_only_with_new_microcode_or_in_a_guest() {
        let alder_lake = Signature {
            family: 6,
            model: 0x97,
            stepping: 2,
        };
        assert!(must_not_tag(Vendor::Intel, alder_lake, 0x2D, false).is_some());
        assert!(must_not_tag(Vendor::Intel, alder_lake, 0x2E, false).is_none());
        assert!(must_not_tag(Vendor::Intel, alder_lake, 0x2D, true).is_none());
        assert!(must_not_tag(Vendor::Amd, MILAN, 0, false).is_none());
    }
}
