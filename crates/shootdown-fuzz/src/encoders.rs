//! Operands of invalidation instructions.

use crate::input::Input;
use shootdown_arch::aarch64::{self, Cover, Granule, Level, Operand, RangeOperand, Step};
use shootdown_arch::riscv64::{HartMask, fence::Register};
use shootdown_arch::x86_64::invlpgb::{Operands, Stride};
use shootdown_arch::x86_64::{AddressWidth, Cr3, Invlpgb, InvlpgbLimits, Invpcid, invpcid::Descriptor};
use shootdown_arch::{riscv64, x86_64};

pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() % 6 {
        0 => invlpgb_operands(&mut input),
        1 => invlpgb_pieces(&mut input),
        2 => cr3_and_invpcid(&mut input),
        3 => tlbi(&mut input),
        4 => tlbi_range(&mut input),
        _ => riscv(&mut input),
    }
}

fn width(input: &mut Input<'_>) -> AddressWidth {
    input.of(&[AddressWidth::Bits48, AddressWidth::Bits57])
}

/// What is decoded asks for the same when it is encoded.
fn invlpgb_operands(input: &mut Input<'_>) {
    let (width, limits) = (width(input), InvlpgbLimits::from_cpuid(input.word()));
    let operands = Operands {
        rax: input.long(),
        ecx: input.word(),
        edx: input.word(),
    };
    if let Ok(decoded) = Invlpgb::decode(operands, limits, width) {
        assert_eq!(Invlpgb::decode(decoded.encode(), limits, width), Ok(decoded));
        if let Some(pages) = decoded.page_range() {
            assert!(pages.count() <= limits.max_pages() && width.is_canonical(pages.address().get()));
        }
    }
}

/// Pieces cover exactly what was asked, each within the limits.
fn invlpgb_pieces(input: &mut Input<'_>) {
    let (width, limits) = (width(input), InvlpgbLimits::from_cpuid(input.word()));
    let stride = input.of(&[Stride::Size4K, Stride::Size2M]);
    let start = input.long() & !(stride.bytes() - 1);
    let pages = u64::from(input.word() >> (input.byte() % 32));
    let Ok(pieces) = limits.split(start, pages, stride, width) else {
        return;
    };
    let (mut next, mut left) = (start, pages);
    for piece in pieces.take(5000) {
        assert_eq!((piece.address().get(), piece.stride()), (next, stride));
        assert!(piece.count() <= limits.max_pages() && u64::from(piece.count().get()) <= left);
        left -= u64::from(piece.count().get());
        next = next.wrapping_add(u64::from(piece.count().get()) * stride.bytes());
        let whole = Invlpgb::pages(piece, x86_64::Pcid::new(1).expect("12 bits")).build();
        assert_eq!(Invlpgb::decode(whole.encode(), limits, width), Ok(whole));
    }
    assert!(left == 0 || pages / u64::from(limits.max_pages().get()) >= 4999);
}

fn cr3_and_invpcid(input: &mut Input<'_>) {
    let bits = input.long();
    if let Some(load) = Cr3::decode(bits) {
        assert_eq!(load.bits(), bits);
    }
    let width = width(input);
    let (kind, descriptor) = (u64::from(input.byte() % 5), Descriptor([input.long(), input.long()]));
    if let Ok(decoded) = Invpcid::decode(kind, descriptor, width) {
        assert_eq!(decoded.kind(), kind);
        assert_eq!(Invpcid::decode(kind, decoded.descriptor(), width), Ok(decoded));
    }
}

fn granule(input: &mut Input<'_>) -> Granule {
    input.of(&[Granule::Size4K, Granule::Size16K, Granule::Size64K])
}

fn asid(input: &mut Input<'_>) -> aarch64::Asid {
    aarch64::Asid::new(input.short(), aarch64::AsidWidth::Bits16).expect("16 bits")
}

fn level(input: &mut Input<'_>) -> Level {
    input.of(&[Level::Unknown, Level::One, Level::Two, Level::Three])
}

/// An operand survives its bits.
fn tlbi(input: &mut Input<'_>) {
    let (asid, level, granule) = (asid(input), level(input), granule(input));
    // 55 significant bits, on a page; the highest repeats upwards.
    let address = ((input.long() << 8) as i64 >> 8) as u64 & !0xFFF;
    let forms = [
        Operand::All,
        Operand::Tag(asid),
        Operand::Page(asid, address, level, granule),
        Operand::Leaf(asid, address, level, granule),
        Operand::PageOfAnyTag(address, level, granule),
        Operand::LeafOfAnyTag(address, level, granule),
    ];
    let form = input.of(&forms);
    if let Some(bits) = form.bits() {
        assert_eq!(form.with_bits(bits), Some(form), "{bits:#x}");
    }
    let any = input.long();
    if let Some(operand) = form.with_bits(any)
        && let Some(bits) = operand.bits()
    {
        assert_eq!(operand.with_bits(bits), Some(operand), "{any:#x}");
    }
}

/// A sequence covers exactly what was asked, in order.
fn tlbi_range(input: &mut Input<'_>) {
    let (asid, level, granule, tcr_ds) = (asid(input), level(input), granule(input), input.byte() & 1 == 1);
    let size = 1_u64 << granule.shift();
    // Within one half of 48 bits.
    let address = input.long() >> 17 & !(size - 1);
    let count = u64::from(input.word() >> (input.byte() % 32));
    let Some(cover) = Cover::new(asid, address, count, granule, level, tcr_ds) else {
        assert!(count > aarch64::range::MOST_GRANULES);
        return;
    };
    let (mut next, mut left) = (address, count);
    for step in cover {
        let covered = match step {
            Step::Page(page) => {
                assert_eq!(page, next);
                1
            }
            Step::Range(bits) => {
                let operand = RangeOperand::decode(bits, tcr_ds).expect("a granule");
                assert_eq!((operand.asid, operand.address), (asid, next));
                assert_eq!((operand.level, operand.granule), (level, granule));
                operand.granules
            }
        };
        assert!(covered >= 1 && covered <= left, "never more than was asked");
        left -= covered;
        next += covered * size;
    }
    assert_eq!(left, 0);
}

/// Masks name exactly the harts asked for; a fence never names `x0` for an operand that it has.
fn riscv(input: &mut Input<'_>) {
    let mut harts: Vec<u64> = (0..input.byte() % 32).map(|_| u64::from(input.short()) % 300).collect();
    harts.sort_unstable();
    harts.dedup();
    let masks: Vec<_> = HartMask::covering(harts.iter().copied()).collect();
    for hart in 0..300 {
        let named = masks.iter().filter(|mask| mask.names(hart)).count();
        assert_eq!(named, usize::from(harts.contains(&hart)), "hart {hart}");
    }
    let registers = (Register::new(1).expect("x1"), Register::new(2).expect("x2"));
    let asid = riscv64::Asid::new(input.short(), riscv64::AsidWidth::from_read_back(u64::MAX)).expect("16 bits");
    let address = input.long();
    let fence = input.of(&[
        riscv64::Fence::All,
        riscv64::Fence::Tag(asid),
        riscv64::Fence::Leaf(address),
        riscv64::Fence::LeafOfTag(address, asid),
    ]);
    let word = fence.sfence_vma(registers.0, registers.1);
    let (rs1, rs2) = fence.operands();
    assert_eq!(
        (word >> 15 & 31, word >> 20 & 31),
        (u32::from(rs1.is_some()), 2 * u32::from(rs2.is_some()))
    );
}
