//! The engine with one function for each of its calls, and nothing else. Its hooks are external functions, its barriers
//! one instruction each. `cargo xtask size` measures the object; nothing here is ever run.
#![no_std]
// The hooks have no implementation.
#![expect(improper_ctypes)]

mod facade;

use core::mem::MaybeUninit;
use facade::{Bare, Cell};
use shootdown::*;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

unsafe extern "C" {
    fn kernel_cpu() -> usize;
    fn kernel_interrupts_off() -> u64;
    fn kernel_interrupts_restore(saved: u64);
    fn kernel_interrupts_are_off() -> bool;
    fn kernel_send_ipi(targets: *const CpuMask<1>);
    fn kernel_invalidate_page(address: u64, tag: u16, leaf_only: bool);
    fn kernel_invalidate_tag(tag: u16);
    fn kernel_invalidate_kernel(address: u64);
    fn kernel_invalidate_all();
    fn kernel_load_root(root: u64, tag: u16, keep: bool);
    fn kernel_broadcast(what: *const Broadcast);
    fn kernel_broadcast_sync();
    fn kernel_pages() -> u32;
    fn kernel_pin();
    fn kernel_unpin();
    fn kernel_now() -> u64;
    fn kernel_stuck(report: *const Stuck);
}

struct Hooks;

// SAFETY: never run.
unsafe impl Kernel<1> for Hooks {
    const PREEMPTIBLE: bool = true;
    #[cfg(not(feature = "adaptive"))]
    const POLICY: Option<Policy> = Some(Policy::IPI);
    #[cfg(feature = "adaptive")]
    const POLICY: Option<Policy> = Some(Policy::ADAPTIVE);

    type Facade = Bare;

    fn cpu(&self) -> CpuId {
        unsafe { kernel_cpu() }
    }
    fn interrupts_off(&self) -> u64 {
        unsafe { kernel_interrupts_off() }
    }
    fn interrupts_restore(&self, saved: u64) {
        unsafe { kernel_interrupts_restore(saved) }
    }
    fn interrupts_are_off(&self) -> bool {
        unsafe { kernel_interrupts_are_off() }
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        unsafe { kernel_send_ipi(targets) }
    }
    #[inline(always)]
    fn invalidate(&self, what: Local) {
        match what {
            Local::Page {
                address,
                tag,
                leaf_only,
                ..
            } => unsafe { kernel_invalidate_page(address, tag.0, leaf_only) },
            Local::Tag(tag) => unsafe { kernel_invalidate_tag(tag.0) },
            Local::Kernel { address, .. } => unsafe { kernel_invalidate_kernel(address) },
            Local::All => unsafe { kernel_invalidate_all() },
        }
    }
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        unsafe { kernel_load_root(root.0, tag.0, keep) }
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        let max_pages = unsafe { kernel_pages() };
        (max_pages != 0).then_some(BroadcastLimits {
            max_pages,
            max_large_pages: max_pages,
        })
    }
    fn broadcast(&self, what: Broadcast) {
        unsafe { kernel_broadcast(&what) }
    }
    fn broadcast_sync(&self) {
        unsafe { kernel_broadcast_sync() }
    }
    fn pin(&self) {
        unsafe { kernel_pin() }
    }
    fn unpin(&self) {
        unsafe { kernel_unpin() }
    }
    fn now_ns(&self) -> u64 {
        unsafe { kernel_now() }
    }
    fn stuck(&self, report: Stuck) {
        unsafe { kernel_stuck(&report) }
    }
}

type Sys = Engine<'static, Hooks, 1>;
type Mm = Space<Bare, 1>;

static mut CPUS: MaybeUninit<[PerCpu<Bare>; 64]> = MaybeUninit::uninit();
static mut TAGS: MaybeUninit<[Cell; tag_words(4096)]> = MaybeUninit::uninit();

#[unsafe(no_mangle)]
fn engine_new(design: &Design, root: u64, engine: &mut MaybeUninit<Sys>) {
    // SAFETY: never run.
    let (cpus, tags) = unsafe {
        (
            (*&raw mut CPUS).write(core::array::from_fn(|_| PerCpu::new())),
            (*&raw mut TAGS).write(core::array::from_fn(|_| Word::new(0))),
        )
    };
    engine.write(Engine::new(Hooks, *design, Root(root), Storage { cpus, tags }));
}

/// One function for each call.
macro_rules! calls {
    ($($name:ident($engine:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)? $body:block)*) => {
        $(#[unsafe(no_mangle)] fn $name($engine: &'static Sys $(, $argument: $type)*) $(-> $result)? $body)*
    };
}

calls! {
    engine_space(engine, root: u64, space: &mut MaybeUninit<Mm>) { space.write(engine.space(Root(root))); }
    engine_cpu_online(engine) { engine.cpu_online() }
    engine_cpu_offline(engine) { engine.cpu_offline() }
    engine_enter_kernel(engine, space: &Mm) -> bool { engine.enter_kernel(space) }
    engine_switch_to(engine, space: &Mm) { unsafe { engine.switch_to(space) } }
    engine_enter_lazy(engine) { engine.enter_lazy() }
    engine_leave_lazy(engine, space: &Mm) { unsafe { engine.leave_lazy(space) } }
    engine_switch_to_kernel(engine) { engine.switch_to_kernel() }
    engine_user_access_ok(engine, space: &Mm) -> bool { engine.user_access_ok(space) }
    engine_on_ipi(engine) { unsafe { engine.on_ipi() } }
    engine_flush(engine, space: &Mm, range: Range) { let _ = engine.flush(space, range); }
    engine_dispatch(engine, space: &Mm, range: Range) { let _ = engine.dispatch(space, range).wait(); }
    engine_flush_while(engine, space: &Mm, range: Range, meanwhile: fn()) {
        let _ = engine.flush_while(space, range, meanwhile);
    }
    engine_batch(engine, spaces: &[&Mm], range: Range) {
        let mut batch = engine.batch();
        for space in spaces {
            batch.add(space, range);
        }
        let _ = batch.finish();
    }
    engine_flush_pending(engine, space: &Mm) { engine.flush_pending(space) }
    engine_flush_later(engine, space: &Mm, range: Range) -> bool {
        matches!(engine.flush_later(space, range, 1), Unmapped::Now(_))
    }
    engine_tick(engine) { engine.tick() }
    engine_flush_kernel(engine, range: Range) { let _ = engine.flush_kernel(range); }
    engine_dispatch_kernel(engine, range: Range) { let _ = engine.dispatch_kernel(range).wait(); }
    engine_poll(engine) -> bool { engine.poll() }
    engine_tick_stops(engine) { engine.tick_stops() }
    engine_tick_resumes(engine) { engine.tick_resumes() }
    engine_walk(engine, space: &Mm, body: fn()) { let _walk = engine.walk(space); body() }
    engine_walk_from_nmi(engine, space: &Mm, body: fn()) { let _walk = engine.walk_from_nmi(space); body() }
    engine_flush_tables(engine, space: &Mm, range: Range) { let _ = engine.flush_tables(space, range); }
    engine_retire_tables(engine, space: &Mm, flushed: &Flushed) { let _ = engine.retire_tables(space, flushed); }
    engine_flush_tables_later(engine, space: &Mm, range: Range) -> bool {
        matches!(engine.flush_tables_later(space, range), Retired::Now(_))
    }
    engine_quiescent(engine) { engine.quiescent() }
    engine_graces_over(engine, grace: Grace) -> bool { engine.graces_over().proof(grace).is_some() }
    engine_retire(engine, space: &Mm) { let _ = engine.retire(space); }
}

#[cfg(feature = "adaptive")]
calls! {
    engine_calibrate(engine) -> u64 { engine.calibrate().broadcast_from }
}

#[cfg(feature = "gather")]
calls! {
    engine_gather(engine, space: &Mm, pages: &[(u64, u64)], table: Range, release: fn(&[u64])) {
        let mut buffer = [0; 16];
        let mut gather = engine.gather(space, &mut buffer, |freed| {
            release(freed.pages);
            release(freed.tables);
        });
        for &(address, frame) in pages {
            let _ = gather.page(address, Stride::Size4K, frame);
        }
        let _ = gather.table(table, 0);
        gather.finish();
    }
}
