//! The elements of a scenario: the engine, its spaces and page tables on a machine, and the actions of a script.

use crate::architecture::Architecture;
use crate::kernel::{CheckKernel, KERNEL, PAGE};
use crate::machine::{self, PAGES, SPACES, TableWords, with};
use crate::tlb::{Frame, Table};
use crate::word::MAX_CPUS;
use crate::world::{CheckWord, CheckWorld, point_in_script};
use shootdown::facade::Word;
use shootdown::{Design, Engine, Machine, PerCpu, Policy, Range, Root, Space, Storage, Stride, Unmapped, tag_words};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

/// Most tags of the hardware, of which the first is not for spaces.
pub(crate) const TAGS: u32 = 12;

/// The frame of the kernel's page, after those of spaces.
const KERNEL_FRAME: Frame = (SPACES * PAGES) as Frame + 1;

/// A scenario: a machine, a design, an initial history, and a script for each CPU.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// A line that describes the race.
    pub about: &'static str,
    /// The design; tag limits and timings are replaced by those of the machine.
    pub design: Design,
    /// Whether there are broadcast instructions.
    pub broadcasts: bool,
    /// The memory model.
    pub memory: Architecture,
    /// Tags of the hardware, at most 12, of which the first is not for spaces.
    pub tags: u32,
    /// The actions of each CPU before the race begins, one after the other. All CPUs are online.
    pub before: fn(&Stage),
    /// The script of each CPU: as many as there are CPUs.
    pub scripts: &'static [fn(&Stage)],
}

pub(crate) type CheckEngine = Engine<'static, CheckKernel, 1>;
type CheckSpace = Space<CheckWorld, 1>;

pub(crate) type Cpus = [MaybeUninit<PerCpu<CheckWorld>>; MAX_CPUS];

/// What scripts act on. Table *s* + 1 maps the pages of space *s* (from 0), page *p* to frame 2 *s* + *p* + 1. The
/// kernel's page is mapped by [`map_kernel`](Self::map_kernel).
pub struct Stage {
    engine: MaybeUninit<CheckEngine>,
    cpus: Cpus,
    spaces: [MaybeUninit<CheckSpace>; SPACES],
    tags: [MaybeUninit<CheckWord>; tag_words(TAGS)],
    links: [MaybeUninit<CheckWord>; SPACES],
    entries: [[MaybeUninit<CheckWord>; PAGES]; SPACES],
    kernel: MaybeUninit<CheckWord>,
}

impl Stage {
    /// A stage at a fixed address, not yet set up.
    pub(crate) fn new() -> Box<Self> {
        // SAFETY: every field is an array of, or is, `MaybeUninit`, for which any bytes are valid.
        unsafe { Box::new_uninit().assume_init() }
    }

    /// Rebuilds the engine on the machine of this host thread, which was reset. The previous engine owns nothing and is
    /// overwritten.
    pub(crate) fn set_up(&mut self, scenario: &Scenario, kernel: CheckKernel) {
        let cpus = scenario.scripts.len();
        self.cpus[..cpus]
            .iter_mut()
            .for_each(|cpu| *cpu = MaybeUninit::new(PerCpu::new()));
        let word = |word: &mut MaybeUninit<CheckWord>, value| {
            let made = CheckWord::new(value);
            let address = made.address();
            *word = MaybeUninit::new(made);
            address
        };
        self.tags.iter_mut().for_each(|tag| {
            word(tag, 0);
        });
        let (links, entries) = (&mut self.links, &mut self.entries);
        let words = TableWords {
            links: links
                .iter_mut()
                .zip(1..)
                .map(|(link, table)| word(link, table))
                .collect(),
            entries: entries
                .iter_mut()
                .zip(0..)
                .map(|(pages, space)| {
                    let mut frame = space * PAGES as u64;
                    pages.each_mut().map(|entry| {
                        frame += 1;
                        word(entry, frame)
                    })
                })
                .collect(),
            kernel: word(&mut self.kernel, 0),
        };
        with(|machine| machine.words = words);
        let design = Policy {
            slots: 2,
            // The clock stands still: CPU 0's window is always open, and no CPU is reported.
            stuck_ns: 0,
            ..scenario.design.policy
        }
        .on(Machine {
            first_tag: 1,
            tag_limit: scenario.tags.min(scenario.design.machine.tag_limit),
            ..scenario.design.machine
        });
        // SAFETY: the arrays live as long as this stage, which is dropped after the last use of the engine. Tags and
        // the CPUs of this scenario were written above. `MaybeUninit<T>` has the layout of `T`.
        let storage: Storage<'static, CheckWorld> = unsafe {
            Storage {
                cpus: std::slice::from_raw_parts_mut(self.cpus.as_mut_ptr().cast(), cpus),
                tags: std::slice::from_raw_parts_mut(self.tags.as_mut_ptr().cast(), tag_words(scenario.tags)),
            }
        };
        self.engine = MaybeUninit::new(Engine::new(kernel, design, Root(0), storage));
        for space in 0..SPACES {
            let made = self.engine().space(Root(space as u64 + 1));
            self.spaces[space] = MaybeUninit::new(made);
        }
        for cpu in 0..cpus {
            self.on(cpu, |stage| stage.engine().cpu_online());
        }
        (scenario.before)(self);
    }

    pub(crate) fn copy_of_cpus(&self) -> Cpus {
        // SAFETY: `MaybeUninit` may hold any bytes. Nothing is dropped through the copy, so words have one owner.
        unsafe { std::ptr::read(&raw const self.cpus) }
    }

    pub(crate) fn reset_cpus(&mut self, cpus: &Cpus) {
        // SAFETY: both are separate arrays of the same type, and no script is running.
        unsafe { std::ptr::copy_nonoverlapping(cpus, &raw mut self.cpus, 1) };
    }

    pub(crate) fn engine(&self) -> &CheckEngine {
        // SAFETY: `set_up` writes it before the stage is used.
        unsafe { self.engine.assume_init_ref() }
    }

    fn space(&self, space: usize) -> &CheckSpace {
        // SAFETY: as for the engine.
        unsafe { self.spaces[space].assume_init_ref() }
    }

    fn link(&self, space: usize) -> &CheckWord {
        // SAFETY: as for the engine.
        unsafe { self.links[space].assume_init_ref() }
    }

    fn entry(&self, space: usize, page: usize) -> &CheckWord {
        // SAFETY: as for the engine.
        unsafe { self.entries[space][page].assume_init_ref() }
    }

    fn kernel(&self) -> &CheckWord {
        // SAFETY: as for the engine.
        unsafe { self.kernel.assume_init_ref() }
    }

    /// CPUs of the machine.
    pub fn cpus(&self) -> usize {
        with(|machine| machine.cpus.len())
    }

    // Before the race.

    /// Runs an action on CPU `cpu` before the race begins.
    pub fn on(&self, cpu: usize, what: impl FnOnce(&Stage)) {
        with(|machine| machine.current = cpu);
        what(self);
        with(machine::Machine::drain_all);
    }

    /// Maps the kernel's page.
    pub fn map_kernel(&self) {
        self.kernel().store(u64::from(KERNEL_FRAME), Ordering::Relaxed);
    }

    // Actions of scripts.

    /// An action of a script, with a line of text. The script keeps nothing from it except its position.
    fn does(&self, text: impl FnOnce() -> String, what: impl FnOnce()) {
        with(|machine| machine.begins(text));
        what();
        with(machine::Machine::ends);
    }

    /// Loads a space, and continues in user mode.
    pub fn run(&self, space: usize) {
        self.does(
            || format!("switches to space {}", space + 1),
            || {
                with(|machine| machine.in_user(false));
                // SAFETY: spaces live as long as the stage.
                unsafe { self.engine().switch_to(self.space(space)) };
                with(|machine| machine.in_user(true));
            },
        );
    }

    /// Loads the kernel's root.
    pub fn leave(&self) {
        self.does(
            || "leaves its space".into(),
            || {
                with(|machine| machine.in_user(false));
                self.engine().switch_to_kernel();
            },
        );
    }

    /// Enters lazy TLB mode, and runs kernel code from here on.
    pub fn go_lazy(&self) {
        self.does(
            || "goes lazy".into(),
            || {
                with(|machine| machine.in_user(false));
                self.engine().enter_lazy();
            },
        );
    }

    /// Leaves lazy TLB mode, and returns to user mode.
    pub fn resume(&self, space: usize) {
        self.does(
            || "leaves lazy".into(),
            || {
                // SAFETY: as for `run`.
                unsafe { self.engine().leave_lazy(self.space(space)) };
                with(|machine| machine.in_user(true));
            },
        );
    }

    /// Enters the kernel and returns, like a system call.
    pub fn call_kernel(&self, space: usize) {
        self.does(
            || "enters the kernel and returns to user mode".into(),
            || {
                with(|machine| machine.in_user(false));
                if self.engine().enter_kernel(self.space(space)) {
                    // SAFETY: as for `run`.
                    unsafe { self.engine().leave_lazy(self.space(space)) };
                }
                with(|machine| machine.in_user(true));
            },
        );
    }

    /// Clears the entry of a page. Returns the frame that it mapped.
    fn withdraw(&self, space: usize, page: usize) -> Frame {
        let entry = self.entry(space, page);
        let frame = entry.load(Ordering::Relaxed);
        entry.store(0, Ordering::Relaxed);
        frame as Frame
    }

    /// Withdraws a page, flushes it, and frees its frame.
    pub fn unmap(&self, space: usize, page: usize) {
        self.unmap_and_wait_later(space, page, |_| {});
    }

    /// Runs an action with interrupts off, as under a lock that handlers take.
    pub fn masked(&self, what: impl FnOnce(&Stage)) {
        let outer = with(|machine| std::mem::replace(&mut machine.cpus[machine.current].masked, true));
        what(self);
        with(|machine| machine.cpus[machine.current].masked = outer);
    }

    /// Withdraws a page, dispatches the flush, runs another action, and only then waits and frees the frame.
    pub fn unmap_and_wait_later(&self, space: usize, page: usize, meanwhile: impl FnOnce(&Stage)) {
        self.does(
            || format!("withdraws page {page} of space {}", space + 1),
            || {
                let frame = self.withdraw(space, page);
                let token = self.engine().dispatch(self.space(space), page_range(page));
                meanwhile(self);
                let _proof = token.wait();
                with(|machine| machine.free_frame(frame));
            },
        );
    }

    /// Flushes a page that stays mapped.
    pub fn flush(&self, space: usize, page: usize) {
        self.does(
            || format!("flushes page {page} of space {}", space + 1),
            || {
                let _proof = self.engine().flush(self.space(space), page_range(page));
            },
        );
    }

    /// Withdraws a page by a flush that waits in the same call, and frees the frame.
    pub fn unmap_at_once(&self, space: usize, page: usize) {
        self.does(
            || format!("withdraws page {page} of space {} at once", space + 1),
            || {
                let frame = self.withdraw(space, page);
                let _proof = self.engine().flush(self.space(space), page_range(page));
                with(|machine| machine.free_frame(frame));
            },
        );
    }

    /// Withdraws a page whose frame may wait for ticks. Ticks, checks whether the others have ticked, and frees the
    /// frame if so.
    pub fn unmap_later(&self, space: usize, page: usize) {
        self.does(
            || format!("withdraws page {page} of space {}, to be freed later", space + 1),
            || {
                let frame = self.withdraw(space, page);
                let engine = self.engine();
                let mut unmapped = engine.flush_later(self.space(space), page_range(page), 1);
                for _ in 0..LOOKS {
                    unmapped = match unmapped {
                        Unmapped::Later(deferral) => {
                            engine.tick();
                            let released = engine.release(deferral, &engine.deferrals_over());
                            released.map_or_else(Unmapped::Later, Unmapped::Now)
                        }
                        now => now,
                    };
                }
                // Otherwise it waits for a tick that never comes.
                if let Unmapped::Now(_proof) = unmapped {
                    with(|machine| machine.free_frame(frame));
                }
            },
        );
    }

    /// The timer's tick.
    pub fn tick(&self) {
        self.does(|| "ticks".into(), || self.engine().tick());
    }

    /// Stops its ticks.
    pub fn stop_ticks(&self) {
        self.does(|| "takes no more ticks".into(), || self.engine().tick_stops());
    }

    /// Checks which deferrals are over, as a kernel does occasionally, and resumes its ticks.
    pub fn look_and_resume_ticks(&self) {
        self.does(
            || "looks which deferrals are over, and takes ticks again".into(),
            || {
                self.engine().deferrals_over();
                self.engine().tick_resumes();
            },
        );
    }

    /// Withdraws the kernel's page, flushes it, and frees its frame.
    pub fn unmap_kernel(&self) {
        self.does(
            || "withdraws the kernel's page".into(),
            || {
                self.kernel().store(0, Ordering::Relaxed);
                let _proof = self.engine().flush_kernel(Range::page(KERNEL));
                with(|machine| machine.free_frame(KERNEL_FRAME));
            },
        );
    }

    /// Withdraws a page of each of the first two spaces, flushes them in one batch, and frees their frames.
    pub fn reclaim(&self, page: usize) {
        self.does(
            || format!("withdraws page {page} of two spaces"),
            || {
                let mut batch = self.engine().batch();
                let mut frames = [0; 2];
                for (space, frame) in frames.iter_mut().enumerate() {
                    *frame = self.withdraw(space, page);
                    batch.add(self.space(space), page_range(page));
                }
                let _proof = batch.finish();
                for frame in frames {
                    with(|machine| machine.free_frame(frame));
                }
            },
        );
    }

    /// Unlinks the table of a space, flushes, and frees the table and its frames.
    pub fn free_table(&self, space: usize) {
        self.does(
            || format!("unlinks the table of space {}", space + 1),
            || {
                self.link(space).store(0, Ordering::Relaxed);
                let range = Range::pages(0, PAGES as u64 * PAGE, Stride::Size4K);
                let _proof = self.engine().flush_tables(self.space(space), range);
                with(|machine| machine.free_table(space as Table + 1));
                for page in 0..PAGES {
                    let frame = self.entry(space, page).load(Ordering::Relaxed) as Frame;
                    with(|machine| machine.free_frame(frame));
                }
            },
        );
    }

    /// Reads the table of a space without a lock.
    pub fn walk(&self, space: usize) {
        self.does(
            || format!("walks space {} without a lock", space + 1),
            || {
                let guard = self.engine().walk(self.space(space));
                let table = self.link(space).load(Ordering::Acquire);
                if table != 0 {
                    with(|machine| machine.hold(Some(table as Table)));
                    self.entry(space, 0).load(Ordering::Acquire);
                    // It still reads there while other CPUs run.
                    point_in_script();
                    with(|machine| machine.hold(None));
                }
                drop(guard);
            },
        );
    }

    /// The space ends; its table is freed.
    pub fn end(&self, space: usize) {
        self.does(
            || format!("ends space {}", space + 1),
            || {
                let _proof = self.engine().retire(self.space(space));
                with(|machine| machine.free_table(space as Table + 1));
            },
        );
    }

    /// Goes offline; no interrupt arrives from then on.
    pub fn go_off(&self) {
        self.does(
            || "goes off".into(),
            || {
                with(|machine| {
                    machine.in_user(false);
                    let cpu = &mut machine.cpus[machine.current];
                    (cpu.masked, cpu.off) = (true, true);
                });
                self.engine().cpu_offline();
            },
        );
    }

    /// Comes back online.
    pub fn come_on(&self) {
        self.does(
            || "comes on".into(),
            || {
                self.engine().cpu_online();
                with(|machine| {
                    let cpu = &mut machine.cpus[machine.current];
                    (cpu.masked, cpu.off) = (false, false);
                    machine.judge();
                });
            },
        );
    }
}

/// Times that a CPU checks whether its unmapped page is free: the first check begins an epoch, which a second may find
/// over.
const LOOKS: u32 = 3;

fn page_range(page: usize) -> Range {
    Range::page(page as u64 * PAGE)
}
