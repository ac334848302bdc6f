//! Checks what each invalidating instruction does to the TLB, without the engine.
//!
//! Every CPU reads some adjacent pages and a canary on either side. Then all entries are cleared, and one form of
//! invalidation names the pages but not the canaries. The pages must be gone. The canaries may still be readable. On an
//! emulator whose form is exact they must be, otherwise a wrong operand that drops everything would pass.

use crate::arch::format::{self, Entry};
use crate::arch::interrupts::without_interrupts;
use crate::cpu::{self, Cpu, MOST_CPUS};
use crate::memory::{DYNAMIC, Frame, LARGE_PAGE, PAGE};
use crate::options::Options;
use crate::region::Access;
use crate::serial::{self, Status};
use crate::{arch, engine, frames, invalidate, paging, println, probe, smp};
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::{Broadcast, Kernel, Local, Root, Stride, Tag};

/// Pages of a broadcast, as far as the limits allow.
const COUNTS: [u32; 13] = [1, 2, 3, 5, 8, 16, 31, 32, 33, 64, 100, 511, 512];
/// QEMU drops everything for longer ranges than its TLB has entries for; [`warm`] makes it large enough for this many.
const EXACT: u32 = 8;
/// Pages that [`warm`] reads, from this address on.
const WARM: (u64, u64) = (5 << 30, 1500);
/// User address of the first small page and of the first large one; kernel page.
const SMALL: u64 = 1 << 30;
const LARGE: u64 = 3 << 30;
const KERNEL: u64 = DYNAMIC + (64 << 20);
/// Content of a mapped frame, and of the frame that another root maps.
const CONTENT: [u64; 2] = [0x0A0A_0A0A, 0x0B0B_0B0B];
/// For a page that faults.
const GONE: u64 = 0;

/// The root that [`load`] loads, and the pages that [`look`] reads.
static ROOT: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicU64 = AtomicU64::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// What each CPU has read: a canary, the first, middle and last page, a canary.
static SEEN: [[AtomicU64; 5]; MOST_CPUS] = [const { [const { AtomicU64::new(0) }; 5] }; MOST_CPUS];

/// Adjacent pages.
#[derive(Debug, Clone, Copy)]
struct Pages {
    first: u64,
    count: u32,
    stride: Stride,
}

/// What has been checked so far.
#[derive(Default)]
struct Checked {
    forms: u32,
    canaries: u32,
    kept: u32,
}

fn tag() -> Tag {
    Tag(if arch::features::has_tags() { 5 } else { 0 })
}

/// Loads the root on this CPU, without entries under its tag.
fn load(cpu: &'static Cpu) {
    let root = Root(ROOT.load(Ordering::Acquire));
    // SAFETY: the root maps the kernel as all others do, and is never freed.
    without_interrupts(|| unsafe { invalidate::load_root(cpu, root, tag(), false) });
}

/// Reads the pages on this CPU.
fn look(cpu: &'static Cpu) {
    let [first, count, bytes] = [&FIRST, &COUNT, &BYTES].map(|word| word.load(Ordering::Acquire));
    let read = |address| match address < crate::memory::USER_END {
        true => probe::read(address),
        false => probe::read_dynamic(address),
    };
    let pages = [0, 1, 1 + count / 2, count, count + 1];
    for (place, page) in SEEN[cpu.id].iter().zip(pages) {
        // Pages are counted from the canary before the first.
        let value = read(first + page * bytes - bytes);
        place.store(value.unwrap_or(GONE), Ordering::Release);
    }
}

/// Reads many pages, so that QEMU enlarges its TLB at the next flush; then drops everything on this CPU.
fn warm(cpu: &'static Cpu) {
    let (first, count) = WARM;
    for page in 0..count {
        let _filled = probe::read(first + page * PAGE);
    }
    invalidate::here(cpu, Local::All);
    invalidate::sync();
}

impl Pages {
    /// Stores `entry` for all pages and canaries.
    fn map(self, root: Frame, entry: u64) {
        let (level, bytes) = match self.stride {
            Stride::Size2M => (2, LARGE_PAGE),
            _ => (1, PAGE),
        };
        for page in 0..u64::from(self.count) + 2 {
            let address = self.first + page * bytes - bytes;
            let root = if address < crate::memory::USER_END {
                root
            } else {
                paging::kernel_table()
            };
            let table = paging::table_or_new(root, address, level).expect("there is memory");
            paging::place(table, address, level).store(entry, Ordering::Release);
        }
        format::publish();
        FIRST.store(self.first, Ordering::Release);
        COUNT.store(u64::from(self.count), Ordering::Release);
        BYTES.store(bytes, Ordering::Release);
    }

    /// The entry that maps each of them.
    fn entry(self, frame: Frame, large: Frame) -> u64 {
        match (self.stride, self.first < crate::memory::USER_END) {
            (Stride::Size2M, _) => Entry::large_page(large).0,
            (_, true) => Entry::page(frame, Access::data(true)).0,
            (_, false) => Entry::kernel_page(frame).0,
        }
    }
}

fn fail(form: &str, what: core::fmt::Arguments<'_>) -> ! {
    serial::print_last(format_args!("violation: operands: {form}: {what}"));
    serial::exit(Status::Violation)
}

/// The machine, while it is checked.
struct Bench {
    root: Frame,
    frame: Frame,
    large: Frame,
    checked: Checked,
}

impl Bench {
    /// Maps the pages, lets every CPU read them, clears the entries, and invalidates.
    fn prepare(&self, form: &str, pages: Pages, invalidate: impl FnOnce()) {
        let all = cpu::all().len();
        pages.map(self.root, pages.entry(self.frame, self.large));
        smp::on_all(all, warm);
        smp::on_all(all, look);
        for (cpu, seen) in SEEN[..all].iter().enumerate() {
            if seen.iter().any(|value| value.load(Ordering::Acquire) != CONTENT[0]) {
                fail(form, format_args!("CPU {cpu} cannot read the pages: {seen:x?}"));
            }
        }
        pages.map(self.root, 0);
        invalidate();
        smp::on_all(all, look);
    }

    /// Checks a form that concerns the first CPU, or all. `exact`: it must leave the canaries.
    fn check(&mut self, form: &str, pages: Pages, everywhere: bool, exact: bool, invalidate: impl FnOnce()) {
        self.prepare(form, pages, invalidate);
        self.checked.forms += 1;
        let cpus = if everywhere { cpu::all().len() } else { 1 };
        for (cpu, seen) in SEEN[..cpus].iter().enumerate() {
            let [before, first, middle, last, after] = seen.each_ref().map(|place| place.load(Ordering::Acquire));
            if [first, middle, last] != [GONE; 3] {
                let what = format_args!("CPU {cpu} still reads {first:x} {middle:x} {last:x} in {pages:x?}");
                fail(form, what);
            }
            let kept = u32::from(before != GONE) + u32::from(after != GONE);
            self.checked.canaries += 2;
            self.checked.kept += kept;
            if exact && kept != 2 {
                fail(form, format_args!("CPU {cpu} has lost a page beside {pages:x?}"));
            }
        }
    }

    fn local(&mut self) {
        // QEMU drops everything at SFENCE.VMA.
        let exact = cfg!(not(target_arch = "riscv64"));
        let here = |what| {
            move || {
                invalidate::here(cpu::cpu(), what);
                invalidate::sync();
            }
        };
        for (first, stride) in [(SMALL, Stride::Size4K), (LARGE, Stride::Size2M)] {
            let pages = Pages {
                first,
                count: 1,
                stride,
            };
            for leaf_only in [true, false] {
                let what = Local::Page {
                    address: first,
                    stride,
                    tag: tag(),
                    leaf_only,
                };
                // Large pages share one place in QEMU's TLB.
                let exact = exact && stride == Stride::Size4K;
                self.check("local page", pages, false, exact, here(what));
            }
            self.check("local tag", pages, false, false, here(Local::Tag(tag())));
            self.check("local all", pages, false, false, here(Local::All));
        }
        let (address, stride) = (KERNEL, Stride::Size4K);
        let pages = Pages {
            first: address,
            count: 1,
            stride,
        };
        let what = Local::Kernel { address, stride };
        // QEMU drops everything where the kernel's large pages may be.
        self.check("local kernel page", pages, false, false, here(what));
    }

    fn broadcasts(&mut self) {
        let Some(limits) = engine().kernel().broadcast_limits() else {
            return;
        };
        let send = |what| {
            move || {
                engine().kernel().broadcast(what);
                engine().kernel().broadcast_sync();
            }
        };
        let sizes = COUNTS.map(|count| (SMALL, count, Stride::Size4K));
        let large = [1, 2, 3].map(|count| (LARGE, count, Stride::Size2M));
        for (first, count, stride) in sizes.into_iter().chain(large) {
            let most = match stride {
                Stride::Size2M => limits.max_large_pages,
                _ => limits.max_pages,
            };
            if count > most {
                continue;
            }
            let exact = cfg!(not(target_arch = "riscv64")) && stride == Stride::Size4K && count <= EXACT;
            for leaf_only in [true, false] {
                let pages = Pages { first, count, stride };
                let what = Broadcast::Pages {
                    address: first,
                    stride,
                    count,
                    tag: tag(),
                    leaf_only,
                };
                self.check("broadcast pages", pages, true, exact, send(what));
                if stride == Stride::Size4K {
                    let pages = Pages { first: KERNEL, ..pages };
                    let what = Broadcast::Kernel {
                        address: KERNEL,
                        stride,
                        count,
                        leaf_only,
                    };
                    self.check("broadcast kernel pages", pages, true, false, send(what));
                }
            }
        }
        let pages = Pages {
            first: SMALL,
            count: 3,
            stride: Stride::Size4K,
        };
        self.check("broadcast tag", pages, true, false, send(Broadcast::Tag(tag())));
        self.check("broadcast non-global", pages, true, false, send(Broadcast::NonGlobal));
        self.check("broadcast all", pages, true, false, send(Broadcast::All));
    }

    /// Whether entries outlive the load of another root under the same tag, if that load does not flush them. A load
    /// that does must.
    fn same_tag(&self) -> bool {
        let (me, root) = (cpu::cpu(), paging::new_root().expect("there is memory"));
        let other = frames::allocate().expect("there is memory");
        other.fill(CONTENT[1]);
        let pages = Pages {
            first: SMALL,
            count: 1,
            stride: Stride::Size4K,
        };
        pages.map(root, pages.entry(other, self.large));
        pages.map(self.root, pages.entry(self.frame, self.large));
        let read_after = |keep| {
            without_interrupts(|| {
                load(me);
                let _filled = probe::read(SMALL);
                // SAFETY: as in `load`. With `keep` it is the mistake whose effect is looked for.
                unsafe { invalidate::load_root(me, Root(root.address()), tag(), keep) };
            });
            probe::read(SMALL)
        };
        let kept = read_after(true) == Some(CONTENT[0]);
        if read_after(false) != Some(CONTENT[1]) {
            fail(
                "root load with a flush",
                format_args!("entries of the other root are left"),
            );
        }
        load(me);
        kept
    }

    /// Remote fences that name some harts, and harts that there are not.
    #[cfg(target_arch = "riscv64")]
    fn some_harts(&mut self) {
        use arch::controller::fence_pages;
        let pages = Pages {
            first: SMALL,
            count: 1,
            stride: Stride::Size4K,
        };
        let harts =
            |cpus: &[usize]| -> alloc::vec::Vec<u64> { cpus.iter().map(|&cpu| cpu::controller_id(cpu)).collect() };
        let gone = |cpu: usize| SEEN[cpu][1].load(Ordering::Acquire) == GONE;
        let all = cpu::all().len();
        // Every second one.
        let sparse: alloc::vec::Vec<usize> = (1..all).step_by(2).collect();
        let fence = || fence_pages(harts(&sparse), SMALL, PAGE).expect("the firmware knows these harts");
        self.prepare("fence of some harts", pages, fence);
        if let Some(cpu) = sparse.iter().find(|&&cpu| !gone(cpu)) {
            fail("fence of some harts", format_args!("CPU {cpu} still reads the page"));
        }
        let unknown = 5000;
        let refused = || {
            if fence_pages([unknown], SMALL, PAGE).is_ok() {
                fail(
                    "fence of an unknown hart",
                    format_args!("the firmware accepts hart {unknown}"),
                );
            }
        };
        self.prepare("fence of an unknown hart", pages, refused);
        if (0..all).any(gone) {
            fail(
                "fence of an unknown hart",
                format_args!("a refused fence has flushed something"),
            );
        }
        let instead = || engine().kernel().flush_everywhere();
        self.prepare("interrupts instead of a refused fence", pages, instead);
        if !(0..all).all(gone) {
            fail(
                "interrupts instead of a refused fence",
                format_args!("a CPU still reads the page"),
            );
        }
        self.checked.forms += 3;
    }
}

/// Runs it, prints the counts, and ends.
pub fn run(options: &Options) -> ! {
    let take = |frame: Option<Frame>| {
        let frame = frame.expect("there is memory at the beginning");
        frame.fill(CONTENT[0]);
        frame
    };
    let mut bench = Bench {
        root: paging::new_root().expect("there is memory at the beginning"),
        frame: take(frames::allocate()),
        large: take(frames::allocate_large()),
        checked: Checked::default(),
    };
    let (first, count) = WARM;
    for address in (first..first + count * PAGE).step_by(PAGE as usize) {
        let table = paging::table_or_new(bench.root, address, 1).expect("there is memory at the beginning");
        let entry = Entry::page(bench.frame, Access::data(false));
        paging::place(table, address, 1).store(entry.0, Ordering::Release);
    }
    ROOT.store(bench.root.address(), Ordering::Release);
    smp::on_all(cpu::all().len(), load);
    // More than once: each flush doubles QEMU's TLB at most.
    (0..3).for_each(|_| smp::on_all(cpu::all().len(), warm));
    bench.local();
    bench.broadcasts();
    #[cfg(target_arch = "riscv64")]
    bench.some_harts();
    let same_tag = bench.same_tag();
    let Checked { forms, canaries, kept } = bench.checked;
    println!(
        "{{\"workload\":\"operands\",\"target\":\"{}\",\"forms\":{forms},\"canaries\":{canaries},\"kept\":{kept},\
         \"kept_over_a_root_load_without_flush\":{same_tag}}}",
        options.target(),
    );
    serial::exit(Status::Success)
}
