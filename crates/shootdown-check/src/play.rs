//! Runs a scenario: its scripts are coroutines on the machine of a host thread, run step by step, any number of times.

use crate::architecture::Architecture;
use crate::kernel::CheckKernel;
use crate::machine::{self, Kept, Line, Machine, Step, with};
use crate::snapshot::{Script, Snapshot};
use crate::stage::{Cpus, Scenario, Stage};
use crate::violation::Violation;
use crate::world::{Resume, handles_by, point, yields_through};
use corosensei::CoroutineResult;
use corosensei::stack::DefaultStack;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of stack for a script and its nested handlers.
const STACK: usize = 64 << 10;

thread_local! {
    /// The stage of this host thread.
    static STAGE: Cell<*const Stage> = const { Cell::new(std::ptr::null()) };
}

fn handler() {
    // SAFETY: the stage outlives the scripts, and only scripts receive interrupts; each is a CPU, with interrupts
    // masked here.
    unsafe { (*STAGE.get()).engine().on_ipi() };
}

/// A scenario on a machine, run step by step, any number of times. One for each host thread.
pub struct Play {
    scenario: Scenario,
    stage: Box<Stage>,
    start: Kept,
    /// The engine's per-CPU state after the set-up.
    cpus: Cpus,
    scripts: Vec<Option<Script>>,
}

impl Play {
    /// # Panics
    /// If memory for the stacks is refused, or there are more scripts than a machine has CPUs.
    pub fn new(scenario: Scenario) -> Self {
        Self::on(
            scenario,
            CheckKernel {
                broadcasts: scenario.broadcasts,
            },
        )
    }

    fn on(scenario: Scenario, kernel: CheckKernel) -> Self {
        let cpus = scenario.scripts.len();
        machine::install(Machine::new(cpus, scenario.memory));
        let mut stage = Stage::new();
        STAGE.set(&raw const *stage);
        handles_by(handler);
        stage.set_up(&scenario, kernel);
        let mut start = Kept::default();
        with(|machine| {
            machine.begin();
            machine.keep(&mut start);
        });
        let mut play = Play {
            scenario,
            start,
            cpus: stage.copy_of_cpus(),
            stage,
            scripts: (0..cpus).map(|_| None).collect(),
        };
        play.restart(false);
        play
    }

    /// The memory model.
    pub(crate) fn memory(&self) -> Architecture {
        self.scenario.memory
    }

    /// Restarts: set-up done, and every CPU before its first operation. With `traced` the run is recorded.
    pub fn restart(&mut self, traced: bool) {
        // The engine consists of words, which are restored. In debug builds each CPU also has a flag.
        with(|machine| machine.go_back(&self.start, traced));
        self.stage.reset_cpus(&self.cpus);
        let stage: *const Stage = &raw const *self.stage;
        for (cpu, slot) in self.scripts.iter_mut().enumerate() {
            let stack = match slot.take() {
                Some(script) => script.give_up(),
                None => DefaultStack::new(STACK).expect("memory for a stack"),
            };
            let body = self.scenario.scripts[cpu];
            *slot = Some(Script::new(stack, move |yielder, _| {
                yields_through(cpu, yielder);
                point();
                with(|machine| machine.learns(12));
                // SAFETY: the stage outlives the scripts.
                body(unsafe { &*stage });
                with(machine::Machine::is_done);
                // Interrupts are still taken. It is never resumed otherwise.
                point();
            }));
            with(|machine| machine.current = cpu);
            let _yielded = slot.as_mut().expect("made above").coroutine.resume(Resume::Run);
        }
    }

    /// An empty snapshot for [`keep`](Self::keep).
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.stage.copy_of_cpus(), &self.scripts)
    }

    /// Copies the present state to `snapshot`.
    pub(crate) fn keep(&self, snapshot: &mut Snapshot) {
        with(|machine| machine.keep(&mut snapshot.machine));
        snapshot.cpus = self.stage.copy_of_cpus();
        snapshot.keep_scripts(&self.scripts);
    }

    /// Restores a state, except what is known about sharing. Invalid after an earlier state was restored.
    pub(crate) fn go_back(&mut self, snapshot: &Snapshot) {
        with(|machine| machine.go_back(&snapshot.machine, false));
        self.stage.reset_cpus(&snapshot.cpus);
        snapshot.put_scripts_back(&mut self.scripts);
    }

    /// The possible steps.
    pub fn steps(&self) -> Vec<Step> {
        with(|machine| machine.steps())
    }

    /// Identifies the state.
    pub fn hash(&self) -> u64 {
        with(|machine| machine.hash())
    }

    /// Takes one of [`steps`](Self::steps).
    ///
    /// # Panics
    /// If it is not one of them.
    pub fn take(&mut self, step: Step) {
        let cpu = step.cpu();
        with(|machine| machine.current = cpu);
        let how = match step {
            Step::Drain(_, place) => {
                assert!(
                    with(|machine| machine.drain(cpu, usize::from(place))),
                    "nothing to drain"
                );
                return with(Machine::forget);
            }
            Step::Run(_) => Resume::Run,
            Step::Old(_, back) => {
                with(|machine| machine.cpus[cpu].back = back);
                Resume::Run
            }
            Step::Interrupt(_) => Resume::Interrupt,
        };
        let script = self.scripts[cpu].as_mut().expect("running");
        match catch_unwind(AssertUnwindSafe(|| script.coroutine.resume(how))) {
            Ok(CoroutineResult::Yield(()) | CoroutineResult::Return(())) => with(Machine::forget),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                with(|machine| machine.break_rule(Violation::Panic(text.unwrap_or_default())));
            }
        }
    }

    /// Whether a rule is broken.
    pub fn is_broken(&self) -> bool {
        with(|machine| machine.is_broken())
    }

    /// The rule that was broken, once.
    pub fn take_violation(&mut self) -> Option<Violation> {
        with(Machine::take_violation)
    }

    /// CPUs that have not reached the end of their script.
    pub fn waiting(&self) -> Vec<usize> {
        with(|machine| machine.waiting())
    }

    /// Whether this run has shown that a word is shared that was assumed to be private.
    pub fn has_learnt(&self) -> bool {
        with(|machine| machine.memory.sharing.learnt)
    }

    /// The textual run, if it was recorded.
    pub fn take_story(&mut self) -> Vec<Line> {
        with(Machine::take_story)
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        for script in self.scripts.drain(..).flatten() {
            drop(script.give_up());
        }
        STAGE.set(std::ptr::null());
    }
}
