//! One function for each call of the engine.

use super::*;
use facade::Cell;

type Sys = Engine<'static, Hooks<0>, WORDS>;

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
    engine.write(Engine::new(Hooks::<0>, *design, Root(root), Storage { cpus, tags }));
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
    engine_switch_to_interrupts_off(engine, space: &Mm) { unsafe { engine.switch_to_interrupts_off(space) } }
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
