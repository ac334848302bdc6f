//! Operands bit by bit, and operands that must not be expressible.

use super::*;
use proptest::prelude::*;

const WIDTH: AddressWidth = AddressWidth::Bits48;
const EIGHT: InvlpgbLimits = InvlpgbLimits::from_cpuid(7);

fn pcid(tag: u16) -> Pcid {
    Pcid::new(tag).expect("12 bits")
}

fn registers(operation: impl Into<Invlpgb>) -> (u64, u32, u32) {
    let Operands { rax, ecx, edx } = operation.into().encode();
    (rax, ecx, edx)
}

#[test]
fn every_form_has_its_literal_operands() {
    let three = EIGHT.pages(0x7F00_1234_5000, 3, Stride::Size4K, WIDTH).expect("fits");
    assert_eq!(
        registers(Invlpgb::pages(three, pcid(0xABC))),
        (0x7F00_1234_5007, 2, 0x0ABC_0000)
    );
    assert_eq!(
        registers(Invlpgb::pages(three, pcid(0xABC)).leaf_only()),
        (0x7F00_1234_5017, 2, 0x0ABC_0000)
    );
    assert_eq!(
        registers(Invlpgb::pages(three, pcid(0)).with_global()),
        (0x7F00_1234_500F, 2, 0)
    );
    let large = EIGHT
        .pages(0xFFFF_8000_0020_0000, 8, Stride::Size2M, WIDTH)
        .expect("fits");
    assert_eq!(
        registers(Invlpgb::kernel_pages(large)),
        (0xFFFF_8000_0020_000D, 0x8000_0007, 0)
    );
    assert_eq!(registers(Invlpgb::whole_tag(pcid(1))), (0x6, 0, 0x0001_0000));
    assert_eq!(registers(Invlpgb::all_non_global()), (0x4, 0, 0));
    assert_eq!(registers(Invlpgb::all()), (0xC, 0, 0));
    let nested = NestedForm::from_cpuid(1 << 21).expect("announced");
    assert_eq!(registers(Invlpgb::all().with_nested(nested)), (0x2C, 0, 0));
    assert_eq!(
        (INVLPGB_OPCODE, TLBSYNC_OPCODE),
        ([0x0F, 0x01, 0xFE], [0x0F, 0x01, 0xFF])
    );
}

#[test]
fn page_count_is_encoded_minus_one() {
    // Regression 26: passing the count instead of count - 1 flushes one page too many.
    let one = EIGHT.pages(0x1000, 1, Stride::Size4K, WIDTH).expect("fits");
    assert_eq!(registers(Invlpgb::kernel_pages(one)).1, 0);
    let eight = EIGHT.pages(0x1000, 8, Stride::Size4K, WIDTH).expect("fits");
    assert_eq!(registers(Invlpgb::kernel_pages(eight)).1, 7);
}

#[test]
fn invlpgb_limit_does_not_wrap_and_is_at_least_1() {
    assert_eq!(InvlpgbLimits::from_cpuid(7).max_pages().get(), 8);
    assert_eq!(InvlpgbLimits::from_cpuid(0).max_pages().get(), 1);
    assert_eq!(InvlpgbLimits::from_cpuid(0xFFFF).max_pages().get(), 65_536);
    assert_eq!(
        InvlpgbLimits::from_cpuid(0xABCD_0007).max_pages().get(),
        8,
        "the upper half is something else"
    );
    assert_eq!(InvlpgbLimits::default().max_pages().get(), 1, "before CPUID is read");
    let most = InvlpgbLimits::from_cpuid(0xFFFF)
        .pages(0, 65_536, Stride::Size4K, WIDTH)
        .expect("fits");
    assert_eq!(registers(Invlpgb::kernel_pages(most)).1, 0xFFFF);
}

#[test]
fn flush_before_cpuid_is_read_terminates() {
    // Regression 4: a limit of 0 looped forever.
    let chunks = InvlpgbLimits::UNREAD
        .split(0xFFFF_8000_0000_0000, 5, Stride::Size4K, WIDTH)
        .expect("valid");
    assert_eq!(
        chunks.take(100).map(|pages| pages.count().get()).collect::<Vec<_>>(),
        [1; 5]
    );
}

#[test]
fn invalid_invlpgb_ranges_are_refused() {
    let refused = |start, count, stride| EIGHT.pages(start, count, stride, WIDTH).expect_err("refused");
    assert_eq!(refused(0x1000, 0, Stride::Size4K), RangeError::Empty);
    assert_eq!(
        refused(0x1000, 9, Stride::Size4K),
        RangeError::TooMany { max: EIGHT.max_pages() }
    );
    assert_eq!(refused(0x1001, 1, Stride::Size4K), RangeError::Misaligned);
    assert_eq!(refused(0x10_0000, 1, Stride::Size2M), RangeError::Misaligned);
    assert_eq!(
        refused(0x0000_8000_0000_0000, 1, Stride::Size4K),
        RangeError::NotCanonical
    );
    assert_eq!(
        refused(0xFFFF_7FFF_FFFF_F000, 1, Stride::Size4K),
        RangeError::NotCanonical
    );
    assert_eq!(
        refused(0x0000_7FFF_FFFF_F000, 2, Stride::Size4K),
        RangeError::LeavesHalf
    );
    assert_eq!(
        refused(0xFFFF_FFFF_FFFF_F000, 2, Stride::Size4K),
        RangeError::LeavesHalf
    );
    let huge = EIGHT.split(0, u64::MAX, Stride::Size2M, WIDTH).expect_err("overflows");
    assert_eq!(huge, RangeError::LeavesHalf);
    let five_levels = EIGHT.pages(0x0000_8000_0000_0000, 1, Stride::Size4K, AddressWidth::Bits57);
    assert!(five_levels.is_ok(), "canonical with 57 bits");
}

#[test]
fn chunks_reach_the_last_page_without_wrapping() {
    let chunks = EIGHT
        .split(0xFFFF_FFFF_FFFF_7000, 9, Stride::Size4K, WIDTH)
        .expect("valid");
    let got: Vec<_> = chunks
        .map(|pages| (pages.address().get(), pages.count().get()))
        .collect();
    assert_eq!(got, [(0xFFFF_FFFF_FFFF_7000, 8), (0xFFFF_FFFF_FFFF_F000, 1)]);
    assert_eq!(EIGHT.split(0x1000, 0, Stride::Size4K, WIDTH).expect("valid").count(), 0);
}

#[test]
fn decoder_refuses_guest_and_reserved_operands() {
    let refused = |rax, ecx, edx| Invlpgb::decode(Operands { rax, ecx, edx }, EIGHT, WIDTH).expect_err("refused");
    assert_eq!(refused(0x1003, 0, 0x0001_0000), DecodeError::EveryGuest);
    assert_eq!(refused(0x1007, 0, 0x0001_0002), DecodeError::GuestAsid(2));
    assert_eq!(refused(0x1045, 0, 0), DecodeError::ReservedBits);
    assert_eq!(refused(0x1805, 0, 0), DecodeError::ReservedBits);
    assert_eq!(refused(0x1005, 1 << 16, 0), DecodeError::ReservedBits);
    assert_eq!(refused(0x1005, 0, 1 << 28), DecodeError::ReservedBits);
    assert_eq!(
        refused(0x1005, 8, 0),
        DecodeError::Range(RangeError::TooMany { max: EIGHT.max_pages() })
    );
    assert_eq!(
        refused(0x0000_8000_0000_0005, 0, 0),
        DecodeError::Range(RangeError::NotCanonical)
    );
}

#[test]
fn decoder_ignores_fields_that_the_processor_ignores() {
    let decode = |rax, ecx, edx| Invlpgb::decode(Operands { rax, ecx, edx }, EIGHT, WIDTH).expect("valid");
    assert_eq!(decode(0xC, 0xFFFF, 0x0FFF_0000), Invlpgb::all());
    assert_eq!(
        decode(0x14, 0, 0),
        Invlpgb::all_non_global(),
        "leaf-only means nothing without pages"
    );
    assert_eq!(
        decode(0x0000_8000_0000_0006, 0, 0x0005_0000),
        Invlpgb::whole_tag(pcid(5))
    );
}

fn any_operation() -> impl Strategy<Value = (Invlpgb, InvlpgbLimits)> {
    let range = (
        0u64..1 << 36,
        any::<bool>(),
        any::<bool>(),
        1u32..=65_536,
        0u32..=0xFFFF,
    );
    let flags = (0u8..5, 0u16..1 << 12, any::<bool>(), any::<bool>(), any::<bool>());
    (range, flags).prop_filter_map("beyond the half", |((page, upper, large, count, extra), flags)| {
        let limits = InvlpgbLimits::from_cpuid(extra);
        let stride = if large { Stride::Size2M } else { Stride::Size4K };
        let low = (page << 12) & !(stride.bytes() - 1) & ((1 << 47) - 1);
        let start = if upper { low | WIDTH.upper_half() } else { low };
        let pages = limits.pages(start, count.min(extra + 1), stride, WIDTH).ok()?;
        let (form, tag, leaf, global, nested) = flags;
        let page_form = |form: PageInvlpgb| {
            let form = if leaf { form.leaf_only() } else { form };
            if global { form.with_global() } else { form }.build()
        };
        let operation = match form {
            0 => page_form(Invlpgb::pages(pages, pcid(tag))),
            1 => page_form(Invlpgb::kernel_pages(pages)),
            2 => Invlpgb::whole_tag(pcid(tag)),
            3 => Invlpgb::all_non_global(),
            _ => Invlpgb::all(),
        };
        let proof = NestedForm::from_cpuid(1 << 21).expect("announced");
        Some((
            if nested {
                operation.with_nested(proof)
            } else {
                operation
            },
            limits,
        ))
    })
}

proptest! {
    #[test]
    fn decoding_inverts_encoding((operation, limits) in any_operation()) {
        let operands = operation.encode();
        prop_assert!(operands.rax & ASID_VALID != 0 && operands.edx & 0xFFFF == 0, "never reaches guests");
        prop_assert_eq!(Invlpgb::decode(operands, limits, WIDTH), Ok(operation));
    }

    #[test]
    fn decoder_does_not_panic_on_any_operands(rax: u64, ecx: u32, edx: u32, extra in 0u32..=0xFFFF) {
        let _ = Invlpgb::decode(Operands { rax, ecx, edx }, InvlpgbLimits::from_cpuid(extra), WIDTH);
    }

    #[test]
    fn decoding_keeps_start_and_size_of_a_range(
        page in 0u64..1 << 34,
        more in 0u32..16,
        flags in 0u64..64,
        large: bool,
    ) {
        let stride = if large { Stride::Size2M } else { Stride::Size4K };
        let start = (page << 12) & !(stride.bytes() - 1);
        let ecx = more | if large { LARGE_STRIDE } else { 0 };
        let operands = Operands { rax: start | flags | ADDRESS_VALID | ASID_VALID, ecx, edx: 0 };
        match Invlpgb::decode(operands, EIGHT, WIDTH) {
            Ok(operation) => {
                let pages = operation.page_range().expect("address valid");
                let decoded = (pages.address().get(), pages.count().get(), pages.stride());
                prop_assert_eq!(decoded, (start, more + 1, stride));
                prop_assert_eq!(operation.is_leaf_only(), flags & FINAL_ONLY != 0);
                prop_assert_eq!(operation.encode(), operands);
            }
            Err(error) => {
                prop_assert!(more > 7, "{error:?}");
                prop_assert_eq!(error, DecodeError::Range(RangeError::TooMany { max: EIGHT.max_pages() }));
            }
        }
    }

    #[test]
    fn chunks_cover_the_range_exactly_and_in_order(
        page in 0u64..1 << 34, pages in 0u64..5_000, extra in 0u32..64, large: bool,
    ) {
        let stride = if large { Stride::Size2M } else { Stride::Size4K };
        let start = (page << 12) & !(stride.bytes() - 1);
        let limits = InvlpgbLimits::from_cpuid(extra);
        let chunks = limits.split(start, pages, stride, WIDTH).expect("low half");
        prop_assert_eq!(chunks.size_hint().0 as u64, pages.div_ceil(u64::from(extra) + 1));
        let mut next = start;
        for chunk in chunks {
            prop_assert_eq!(chunk.address().get(), next);
            prop_assert!(chunk.count().get() <= extra + 1);
            next += u64::from(chunk.count().get()) * stride.bytes();
        }
        prop_assert_eq!(next, start + pages * stride.bytes());
    }
}
