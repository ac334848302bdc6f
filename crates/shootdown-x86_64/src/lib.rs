//! The flush promises of the crate `x86_64`, kept on every CPU by the engine of Shootdown.
//!
//! A change of a page table by [`Mapper`](x86_64::structures::paging::Mapper) returns [`MapperFlush`], or
//! [`MapperFlushAll`] if an upper level changed. Their own `flush` and `flush_all` invalidate only on the current CPU,
//! which is enough on a machine with one CPU. [`Shootdown`] adds `shootdown` for user pages and `shootdown_kernel` for
//! pages of the upper half. Both return [`Flushed`], the proof that the frame may be freed.
//!
//! ```
//! use shootdown::{Engine, Machine, PerCpu, Policy, Root, Storage};
//! use shootdown_host::{Cpu, Threads, Tlb};
//! use shootdown_x86_64::Shootdown;
//! use x86_64::structures::paging::mapper::MapperFlush;
//! use x86_64::structures::paging::{Page, Size4KiB};
//! use x86_64::VirtAddr;
//!
//! // Threads of this host stand in for CPUs.
//! let mut cpus: Vec<_> = (0..1).map(|_| PerCpu::new()).collect();
//! let threads = Threads::new(1, |_cpu| Tlb::<u64, u64>::new());
//! let storage = Storage { cpus: &mut cpus, tags: &mut [] };
//! let engine: Engine<'_, _, 1> = Engine::new(threads, Policy::IPI.on(Machine::PCID), Root(0), storage);
//! let space = engine.space(Root(1));
//! let cpu = Cpu::attach(&engine, 0);
//! // SAFETY: the space outlives this CPU's use of it.
//! unsafe { engine.switch_to(&space) };
//! cpu.mmu().fill(0x5000, 7, false); // a guest access that missed
//!
//! // In a kernel: let (frame, flush) = mapper.unmap(page)?;
//! let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x5000));
//! let flush = MapperFlush::new(page);
//! let flushed = flush.shootdown(&engine, &space);
//! assert_eq!(cpu.mmu().lookup(0x5000), None);
//! drop(flushed); // and the frame may be freed
//! ```
//!
//! # Page-table pages
//! No promise of the crate `x86_64` covers the page-table pages that its
//! [`CleanUp`](x86_64::structures::paging::mapper::CleanUp) frees: it frees them at once, while another CPU may still
//! walk them. Give it a deallocator that keeps the frames, call `Engine::flush_tables` for the range, and free the
//! frames with the proof that it returns.
//!
//! # New mappings
//! `map_to` returns a promise too. No x86-64 CPU caches an entry that was not present: `ignore` is correct there,
//! unless the page was mapped before and its flush is not complete.
#![cfg_attr(not(test), no_std)]

use shootdown::{Engine, Flushed, Freed, Gather, Kernel, Range, Room, Space, Stride};
use x86_64::structures::paging::mapper::{MapperFlush, MapperFlushAll};
use x86_64::structures::paging::{Page, PageSize};

/// A promise to flush, kept on every CPU.
pub trait Shootdown: Sized {
    /// After this no CPU uses the translations of `space` from before the change. For pages of the lower half.
    ///
    /// # Calling context
    /// As for [`Engine::flush`]: it waits for other CPUs. So the caller must not hold a lock that another CPU may spin
    /// for with interrupts off, unless that CPU polls.
    ///
    /// # Panics
    /// In debug builds, inside a lockless walk of this CPU.
    fn shootdown<K: Kernel<W>, const W: usize>(self, engine: &Engine<'_, K, W>, space: &Space<K::Facade, W>)
    -> Flushed;

    /// The same for the upper half, which every root maps.
    ///
    /// # Calling context
    /// As for [`Engine::flush_kernel`].
    fn shootdown_kernel<K: Kernel<W>, const W: usize>(self, engine: &Engine<'_, K, W>) -> Flushed;
}

/// One page, of its size. Operations that return this free no page-table pages.
impl<S: PageSize> Shootdown for MapperFlush<S> {
    #[inline]
    fn shootdown<K: Kernel<W>, const W: usize>(
        self,
        engine: &Engine<'_, K, W>,
        space: &Space<K::Facade, W>,
    ) -> Flushed {
        engine.flush(space, range(self.page()))
    }

    #[inline]
    fn shootdown_kernel<K: Kernel<W>, const W: usize>(self, engine: &Engine<'_, K, W>) -> Flushed {
        engine.flush_kernel(range(self.page()))
    }
}

/// Everything of the space, or of the kernel: an upper-level entry changed, so paging-structure caches hold stale
/// entries as well.
impl Shootdown for MapperFlushAll {
    fn shootdown<K: Kernel<W>, const W: usize>(
        self,
        engine: &Engine<'_, K, W>,
        space: &Space<K::Facade, W>,
    ) -> Flushed {
        self.ignore();
        engine.flush(space, Range::WHOLE)
    }

    fn shootdown_kernel<K: Kernel<W>, const W: usize>(self, engine: &Engine<'_, K, W>) -> Flushed {
        self.ignore();
        engine.flush_kernel(Range::WHOLE)
    }
}

/// An unmap of many pages: each promise is added to a [`Gather`] with its frame.
pub trait GatherFlush<F> {
    /// Adds the page and its frame. The page is flushed with the others of the gather, and the frame is freed after
    /// that.
    fn gather<K: Kernel<W>, const W: usize, R: FnMut(Freed<'_, F>)>(
        self,
        gather: &mut Gather<'_, '_, K, F, R, W>,
        frame: F,
    ) -> Room
    where
        F: Copy;
}

impl<S: PageSize, F> GatherFlush<F> for MapperFlush<S> {
    #[inline]
    fn gather<K: Kernel<W>, const W: usize, R: FnMut(Freed<'_, F>)>(
        self,
        gather: &mut Gather<'_, '_, K, F, R, W>,
        frame: F,
    ) -> Room
    where
        F: Copy,
    {
        gather.page(self.page().start_address().as_u64(), stride::<S>(), frame)
    }
}

fn stride<S: PageSize>() -> Stride {
    match S::SIZE {
        0x1000 => Stride::Size4K,
        0x20_0000 => Stride::Size2M,
        _ => Stride::Size1G,
    }
}

fn range<S: PageSize>(page: Page<S>) -> Range {
    let start = page.start_address().as_u64();
    Range::pages(start, start | (S::SIZE - 1), stride::<S>())
}

#[cfg(test)]
mod tests;
