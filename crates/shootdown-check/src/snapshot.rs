//! A snapshot of a run, so that other continuations can be tried without repeating the steps before it.
//!
//! A coroutine cannot be cloned, but the bytes of its stack can be put back where they lay, and the same bytes at the
//! same addresses go on in the same way. That is right as long as a script's stack owns nothing outside of itself and
//! of the machine: no memory of the heap, no guard of a lock. The engine allocates nothing; what this crate has to
//! remember of a script stands in the machine ([`Kept`]).

use crate::machine::Kept;
use crate::stage::Cpus;
use crate::world::{Resume, is_suspended_at, suspended_at};
use corosensei::Coroutine;
use corosensei::stack::{DefaultStack, Stack};
use std::mem::MaybeUninit;

/// Bytes that may lie below the frame that [`suspended_at`] names: the frame that suspends, and saved registers.
const BELOW: usize = 512;

type Body = Coroutine<Resume, (), (), DefaultStack>;

/// A script under way.
pub(crate) struct Script {
    pub(crate) coroutine: Body,
    /// Where its stack begins: the highest address.
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

    /// Gives the script up, wherever it is. Returns its stack.
    pub(crate) fn give_up(mut self) -> DefaultStack {
        // SAFETY: what a script leaves on its stack owns nothing but words of a machine that will be set back.
        unsafe { self.coroutine.force_reset() };
        self.coroutine.into_stack()
    }
}

/// A script, kept.
struct KeptScript {
    /// The bytes of the coroutine's own variables. Never dropped: who owns the stack is the [`Script`].
    coroutine: MaybeUninit<Body>,
    suspended_at: usize,
    /// From the lowest address that is in use.
    stack: Vec<MaybeUninit<u8>>,
}

/// Everything, at some time.
pub(crate) struct Moment {
    pub(crate) machine: Kept,
    /// The engine's per-CPU state: words, and two marks that are none.
    pub(crate) cpus: Cpus,
    scripts: Vec<KeptScript>,
}

impl Moment {
    /// One for `scripts`, in which nothing is kept yet.
    pub(crate) fn new(cpus: Cpus, scripts: &[Option<Script>]) -> Self {
        let nothing = || KeptScript {
            coroutine: MaybeUninit::uninit(),
            suspended_at: 0,
            stack: Vec::new(),
        };
        Moment {
            machine: Kept::default(),
            cpus,
            scripts: scripts.iter().map(|_| nothing()).collect(),
        }
    }

    /// Keeps where the scripts are; each has given up its turn.
    pub(crate) fn keep_scripts(&mut self, scripts: &[Option<Script>]) {
        for (cpu, (kept, script)) in self.scripts.iter_mut().zip(scripts.iter().flatten()).enumerate() {
            kept.suspended_at = suspended_at(cpu);
            let length = script.base - kept.from();
            kept.stack.clear();
            kept.stack.reserve(length);
            // SAFETY: the script is suspended, so nobody writes to its stack, which is mapped from its base down to
            // below its last frame. Bytes of any kind, padding too, may be copied as `MaybeUninit`. There is room for
            // them.
            unsafe {
                let from = std::ptr::with_exposed_provenance(kept.from());
                std::ptr::copy_nonoverlapping(from, kept.stack.as_mut_ptr(), length);
                kept.stack.set_len(length);
                std::ptr::copy_nonoverlapping(&raw const script.coroutine, kept.coroutine.as_mut_ptr(), 1);
            }
        }
    }

    /// Puts the scripts, which are those that were kept, back to where they were.
    pub(crate) fn put_scripts_back(&self, scripts: &mut [Option<Script>]) {
        for (cpu, (kept, script)) in self.scripts.iter().zip(scripts.iter_mut().flatten()).enumerate() {
            is_suspended_at(cpu, kept.suspended_at);
            // SAFETY: as above: nothing runs on the stack. What lay on it, and what the coroutine's variables were,
            // owned nothing that would have to be dropped, but for the stack itself, which is the same then and now.
            unsafe {
                let to = std::ptr::with_exposed_provenance_mut(kept.from());
                std::ptr::copy_nonoverlapping(kept.stack.as_ptr(), to, kept.stack.len());
                std::ptr::copy_nonoverlapping(kept.coroutine.as_ptr(), &raw mut script.coroutine, 1);
            }
        }
    }
}

impl KeptScript {
    /// The lowest address of the stack that is in use.
    fn from(&self) -> usize {
        self.suspended_at - BELOW
    }
}

#[cfg(test)]
mod tests {
    use crate::play::Play;
    use crate::random::at_random;
    use crate::{scenario, subject};

    /// The steps of a run that takes now the first, now the last of those that there are; and the states between.
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
    fn what_follows_a_moment_follows_it_again() {
        for race in [&scenario::RACES[1], &scenario::OF_THREE[2]] {
            let mut play = Play::new(subject::under(race, subject::subjects().next().expect("a preset")));
            // What words are shared by must be known: it says where others may come between.
            (0..100).for_each(|seed| drop(at_random(&mut play, seed)));
            for before in 1..40 {
                play.restart(false);
                go_on(&mut play, before);
                let mut moment = play.moment();
                play.keep(&mut moment);
                let at = play.hash();
                let first = go_on(&mut play, 60);
                play.go_back(&moment);
                assert_eq!(play.hash(), at);
                assert_eq!(go_on(&mut play, 60), first, "{}, {before} steps", race.name);
            }
        }
    }
}
