//! One block of memory for an engine, its CPUs and its tags.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::kernel::{CEngine, CFacade, CSpace, Hooks};
use crate::settings::{shootdown_settings, shootdown_status};
use core::alloc::Layout;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use shootdown::{Design, Engine, Facade, PerCpu, Root, Storage, Tags, tag_words};

type TagWord = <CFacade as Facade>::U64;

/// Alignment in bytes: that of the strictest part.
pub const ALIGNMENT: usize = {
    let parts = [
        align_of::<CEngine>(),
        align_of::<CSpace>(),
        align_of::<PerCpu<CFacade>>(),
        align_of::<TagWord>(),
    ];
    let (mut most, mut part) = (1, 0);
    while part < parts.len() {
        most = if parts[part] > most { parts[part] } else { most };
        part += 1;
    }
    most
};

/// Words for the tags of a design: none if each CPU assigns its own.
fn tags_of(design: &Design) -> usize {
    match design.policy.tags {
        Tags::PerCpu => 0,
        _ => tag_words(design.machine.tag_limit),
    }
}

/// Offset of each part.
pub struct Layouts {
    cpus: usize,
    tags: usize,
    /// Words of tags.
    tag_words: usize,
    /// Total bytes.
    pub size: usize,
}

impl Layouts {
    /// For that many CPUs under that design; `None` for zero or too many.
    pub fn of(cpus: usize, design: &Design) -> Option<Layouts> {
        if cpus == 0 || cpus > 64 * SHOOTDOWN_CPU_WORDS {
            return None;
        }
        let (all, first) = Layout::new::<CEngine>()
            .extend(Layout::array::<PerCpu<CFacade>>(cpus).ok()?)
            .ok()?;
        let tag_words = tags_of(design);
        let (all, tags) = all.extend(Layout::array::<TagWord>(tag_words).ok()?).ok()?;
        Some(Layouts {
            cpus: first,
            tags,
            tag_words,
            size: all.size(),
        })
    }
}

/// Bytes for these settings.
///
/// # Safety
/// As `shootdown_engine_size`.
pub unsafe fn size(settings: &shootdown_settings) -> Option<usize> {
    // SAFETY: the caller's.
    let design = unsafe { settings.design() }.ok()?;
    Some(Layouts::of(settings.cpus as usize, &design)?.size)
}

/// # Safety
/// As `shootdown_engine_init`.
pub unsafe fn init(
    memory: *mut c_void,
    size: usize,
    settings: *const shootdown_settings,
) -> Result<*mut CEngine, shootdown_status> {
    if settings.is_null() {
        return Err(shootdown_status::SHOOTDOWN_BAD_MEMORY);
    }
    // SAFETY: not null, so the caller's.
    let settings = unsafe { &*settings };
    let count = settings.cpus as usize;
    // SAFETY: the caller's.
    let design = unsafe { design_of(settings) };
    // By reference, here and below: a copy would lie on the boot stack.
    let design = design.as_ref().map_err(|status| *status)?;
    let layouts = Layouts::of(count, design).ok_or(shootdown_status::SHOOTDOWN_BAD_CPUS)?;
    Hooks::check(settings)?;
    let first = memory.cast::<u8>();
    if first.is_null() || size < layouts.size || first.align_offset(ALIGNMENT) != 0 {
        return Err(shootdown_status::SHOOTDOWN_BAD_MEMORY);
    }
    // SAFETY: the block is large enough for the parts of `Layouts`, aligned, and given up by the caller for ever. All
    // of it is written before any reference to it.
    unsafe {
        let cpus = first.add(layouts.cpus).cast::<PerCpu<CFacade>>();
        (0..count).for_each(|cpu| cpus.add(cpu).write(PerCpu::OFFLINE));
        let tags = first.add(layouts.tags).cast::<TagWord>();
        (0..layouts.tag_words).for_each(|word| tags.add(word).write(TagWord::new(0)));
        let storage = Storage {
            cpus: core::slice::from_raw_parts_mut(cpus, count),
            tags: core::slice::from_raw_parts_mut(tags, layouts.tag_words),
        };
        let engine = memory.cast::<MaybeUninit<CEngine>>();
        make(&mut *engine, settings, design, storage);
        Ok(engine.cast())
    }
}

/// Not inlined: what it takes from the stack is free when the engine is made.
///
/// # Safety
/// As `shootdown_engine_init`.
#[inline(never)]
unsafe fn design_of(settings: &shootdown_settings) -> Result<Design, shootdown_status> {
    // SAFETY: the caller's.
    unsafe { settings.design() }
}

/// Not inlined: the compiler then builds the engine in its place, and not on the stack first.
///
/// # Safety
/// [`Hooks::check`] has found nothing missing.
#[inline(never)]
unsafe fn make(
    engine: &mut MaybeUninit<CEngine>,
    settings: &shootdown_settings,
    design: &Design,
    storage: Storage<'static, CFacade>,
) {
    let root = Root(settings.kernel_root);
    // SAFETY: filled in at once.
    let engine = engine.write(Engine::new(unsafe { Hooks::empty() }, *design, root, storage));
    // SAFETY: the caller's.
    unsafe { engine.kernel_mut().fill_in(settings) };
}
