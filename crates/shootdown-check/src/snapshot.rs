//! A snapshot of a run, so that other continuations can be tried without repeating the earlier steps.
//!
//! A coroutine cannot be cloned, but the bytes of its stack can be restored in place, and the same bytes at the same
//! addresses continue in the same way. That is correct if a script's stack owns nothing outside of itself and of the
//! machine: no heap memory, no lock guard. The engine allocates nothing. State of a script that this crate must keep is
//! in the machine ([`Kept`]).

use crate::machine::Kept;
use crate::stage::Cpus;
use crate::world::{Resume, is_suspended_at, suspended_at};
use corosensei::Coroutine;
use corosensei::stack::{DefaultStack, Stack};
use std::mem::MaybeUninit;

/// Most bytes below the frame of [`suspended_at`]: the frame that suspends, and saved registers.
const BELOW: usize = 512;

type Body = Coroutine<Resume, (), (), DefaultStack>;

/// A running script.
pub(crate) struct Script {
    pub(crate) coroutine: Body,
    /// The highest address of its stack.
    base: usize,
}

impl Script {
    /// A script that has not begun, on `stack`.
    pub(crate) fn new(
        stack: DefaultStack,
        body: impl FnOnce(&corosensei::Yielder<Resume, ()>, Resume) + 'static,
    ) -> Self {
        let base = stack.base().get();
        Script {
            coroutine: Coroutine::with_stack(stack, body),
            base,
        }
    }

    /// Ends the script at any point. Returns its stack.
    pub(crate) fn give_up(mut self) -> DefaultStack {
        // SAFETY: a script's stack owns nothing but words of a machine that will be restored.
        unsafe { self.coroutine.force_reset() };
        self.coroutine.into_stack()
    }
}

/// A saved script.
struct KeptScript {
    /// The bytes of the coroutine's own variables. Never dropped: the [`Script`] owns the stack.
    coroutine: MaybeUninit<Body>,
    suspended_at: usize,
    /// From the lowest address in use.
    stack: Vec<MaybeUninit<u8>>,
}

/// A complete saved state.
pub(crate) struct Snapshot {
    pub(crate) machine: Kept,
    /// The engine's per-CPU state: words, and two flags that are not words.
    pub(crate) cpus: Cpus,
    scripts: Vec<KeptScript>,
}

impl Snapshot {
    /// An empty snapshot for `scripts`.
    pub(crate) fn new(cpus: Cpus, scripts: &[Option<Script>]) -> Self {
        let nothing = || KeptScript {
            coroutine: MaybeUninit::uninit(),
            suspended_at: 0,
            stack: Vec::new(),
        };
        Snapshot {
            machine: Kept::default(),
            cpus,
            scripts: scripts.iter().map(|_| nothing()).collect(),
        }
    }

    /// Saves the positions of the scripts, which are all suspended.
    pub(crate) fn keep_scripts(&mut self, scripts: &[Option<Script>]) {
        for (cpu, (kept, script)) in self.scripts.iter_mut().zip(scripts.iter().flatten()).enumerate() {
            kept.suspended_at = suspended_at(cpu);
            let length = script.base - kept.from();
            kept.stack.clear();
            kept.stack.reserve(length);
            // SAFETY: the script is suspended, so its stack is not written. It is mapped from its base down to below
            // its last frame. Bytes of any kind, padding too, may be copied as `MaybeUninit`. The vector has room for
            // them.
            unsafe {
                let from = std::ptr::with_exposed_provenance(kept.from());
                std::ptr::copy_nonoverlapping(from, kept.stack.as_mut_ptr(), length);
                kept.stack.set_len(length);
                std::ptr::copy_nonoverlapping(&raw const script.coroutine, kept.coroutine.as_mut_ptr(), 1);
            }
        }
    }

    /// Restores the scripts, which must be the saved ones, to their positions.
    pub(crate) fn put_scripts_back(&self, scripts: &mut [Option<Script>]) {
        for (cpu, (kept, script)) in self.scripts.iter().zip(scripts.iter_mut().flatten()).enumerate() {
            is_suspended_at(cpu, kept.suspended_at);
            // SAFETY: as above: nothing runs on the stack. Neither the stack's contents nor the coroutine's variables
            // own anything that must be dropped, except for the stack itself, which is the same in both states.
            unsafe {
                let to = std::ptr::with_exposed_provenance_mut(kept.from());
                std::ptr::copy_nonoverlapping(kept.stack.as_ptr(), to, kept.stack.len());
                std::ptr::copy_nonoverlapping(kept.coroutine.as_ptr(), &raw mut script.coroutine, 1);
            }
        }
    }
}

impl KeptScript {
    /// The lowest stack address in use.
    fn from(&self) -> usize {
        self.suspended_at - BELOW
    }
}

#[cfg(test)]
mod tests {
    use crate::play::Play;
    use crate::random::at_random;
    use crate::{configuration, scenario};

    /// The steps of a run that takes the first and the last possible step in turn, and the states in between.
    fn go_on(play: &mut Play, steps: usize) -> Vec<u64> {
        (0..steps)
            .map_while(|number| {
                let possible = play.steps();
                let step = if number % 3 == 0 {
                    possible.first()
                } else {
                    possible.last()
                };
                play.take(*step?);
                Some(play.hash())
            })
            .collect()
    }

    #[test]
    fn restored_snapshot_continues_identically() {
        for race in [&scenario::RACES[1], &scenario::OF_THREE[2]] {
            let mut play = Play::new(configuration::under(
                race,
                configuration::configurations().next().expect("a preset"),
            ));
            // The sharing of words must be known: it determines where other CPUs may run.
            (0..100).for_each(|seed| drop(at_random(&mut play, seed)));
            for before in 1..40 {
                play.restart(false);
                go_on(&mut play, before);
                let mut snapshot = play.snapshot();
                play.keep(&mut snapshot);
                let at = play.hash();
                let first = go_on(&mut play, 60);
                play.go_back(&snapshot);
                assert_eq!(play.hash(), at);
                assert_eq!(go_on(&mut play, 60), first, "{}, {before} steps", race.name);
            }
        }
    }
}
