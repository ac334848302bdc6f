//! The operations of the current CPU, and the oracle, which checks every CPU after each. The caller has let other CPUs
//! run first where that matters.

use crate::machine::{Cpu, Interrupted, Machine, View};
use crate::sharing::Touch;
use crate::tlb::{Frame, Table, What};
use crate::views::Time;
use crate::violation::Violation;
use crate::word::{Address, mix};

impl Machine {
    pub(crate) fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpus[self.current]
    }

    /// The current CPU has read `value`, or done something if that is 0.
    #[inline]
    pub(crate) fn learns(&mut self, value: u64) {
        let cpu = &mut self.cpus[self.current];
        cpu.history = mix(cpu.history, value);
    }

    /// The same, for something that other CPUs can see.
    #[inline]
    pub(crate) fn acts(&mut self, value: u64) {
        self.learns(value);
        self.cpu().effects += 1;
    }

    /// Whether other CPUs must run first: the operation on the word depends on them, or an interrupt might arrive.
    #[inline]
    pub(crate) fn is_point(&mut self, address: Address, touch: Touch) -> bool {
        let cpu = self.current;
        let depends = self.memory.depends(address, cpu, touch);
        if self.architecture.is_weak() && !self.setting_up {
            let state = &mut self.cpus[cpu];
            let at = match state.interrupted {
                Some(_) => None,
                None => {
                    state.place = state.place.saturating_add(1);
                    Some(state.place)
                }
            };
            self.memory.sharing.reaches(address, cpu, at);
        }
        let interruptible = !self.cpus[cpu].masked && self.memory.sharing.is_interrupted(cpu);
        self.cpus[cpu].next = depends.then_some(address);
        self.cpus[cpu].loads = touch == Touch::Read;
        !self.setting_up && (depends || interruptible)
    }

    /// Whether other CPUs must run first before an operation without a word.
    pub(crate) fn is_point_elsewhere(&mut self) -> bool {
        self.cpu().next = None;
        !self.setting_up
    }

    fn must_exist(&mut self, address: Address) {
        if !self.memory.exists(address) {
            let cpu = self.current;
            self.break_rule(Violation::Gone { cpu });
        }
    }

    pub(crate) fn load(&mut self, address: Address, acquire: bool) -> u64 {
        self.must_exist(address);
        let back = usize::from(std::mem::take(&mut self.cpu().back));
        let value = self.memory.load(self.current, address, back, acquire);
        if let Some(reads) = &mut self.cpus[self.current].reads {
            reads.push((address, value));
        }
        self.learns(value);
        self.detail(|| {
            let old = if back > 0 { ", which was replaced before" } else { "" };
            format!("reads word {address}: {value:#x}{old}")
        });
        value
    }

    pub(crate) fn store(&mut self, address: Address, value: u64, release: bool) {
        self.must_exist(address);
        self.acts(1);
        self.detail(|| format!("writes word {address}: {value:#x}"));
        self.put(address, value, release);
    }

    /// A word on the stack of the current CPU begins. Under weak memory its first value is an ordinary store.
    pub(crate) fn begin_word(&mut self, value: u64) -> Address {
        let cpu = (!self.setting_up).then_some(self.current);
        if cpu.is_none() || !self.architecture.is_weak() {
            return self.memory.allocate(cpu, value);
        }
        let address = self.memory.allocate(cpu, 0);
        self.put(address, value, false);
        address
    }

    fn put(&mut self, address: Address, value: u64, release: bool) {
        // Walkers of other CPUs do not access words themselves, but what they read is buffered too.
        let shared = self.memory.depends(address, self.current, Touch::Write) || self.words.contains(address);
        if self.setting_up || !shared {
            self.memory.commit(address, value);
            self.refill();
        } else {
            self.memory.buffer(self.current, address, value, release);
        }
    }

    /// A read-modify-write. A full barrier, except under weak memory if it is not `full`, or if nothing is written.
    pub(crate) fn update(&mut self, address: Address, full: bool, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        self.must_exist(address);
        let cpu = self.current;
        if !self.architecture.is_weak() {
            self.drain_all();
        }
        let found = self.memory.read(cpu, address);
        let new = change(found);
        let old = match new {
            Some(new) => {
                let full = full || !self.architecture.is_weak();
                match full {
                    true => self.full_barrier(),
                    false => self.drain_word(address),
                }
                let old = self.memory.load(cpu, address, 0, full);
                let walked = self.words.contains(address);
                match self.setting_up {
                    true => self.memory.commit(address, new),
                    false => self.memory.replace(cpu, address, new, walked),
                }
                if full {
                    self.full_barrier();
                }
                self.refill();
                old
            }
            None => self.memory.load(cpu, address, 0, false),
        };
        self.acts(old);
        self.detail(|| format!("updates word {address}: {old:#x} to {:#x}", new.unwrap_or(old)));
        old
    }

    /// Makes everything in the buffer of the current CPU visible.
    pub(crate) fn drain_all(&mut self) {
        while self.drain(self.current, 1) {}
    }

    /// Makes the stores of the current CPU to the word visible.
    fn drain_word(&mut self, address: Address) {
        let cpu = self.current;
        let places: Vec<usize> = self.memory.waiting(cpu, |other, _| other == address).collect();
        if let Some(&newest) = places.last() {
            self.drain(cpu, newest);
        }
    }

    /// Makes the store in that place of the buffer of `cpu` visible, after those that must precede it. Returns false if
    /// there is none.
    pub(crate) fn drain(&mut self, cpu: usize, place: usize) -> bool {
        if place > self.memory.buffered(cpu) {
            return false;
        }
        for (gone, place) in self.memory.before(cpu, place).into_iter().enumerate() {
            let Some((address, value)) = self.memory.take(cpu, place - gone) else {
                return false;
            };
            self.memory.replace(cpu, address, value, self.words.contains(address));
            self.trace_on(cpu, true, || format!("word {address} becomes visible: {value:#x}"));
            self.refill();
        }
        true
    }

    /// Whether the current CPU has buffered stores.
    pub(crate) fn has_buffered(&self) -> bool {
        self.memory.buffered(self.current) > 0
    }

    /// Walkers fill what memory holds now; then the oracle checks.
    pub(crate) fn refill(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.fill(cpu, None);
        }
        self.judge();
    }

    /// The walker of the current CPU fills what memory holds now and what it has held since then.
    pub(crate) fn fill_since(&mut self, since: Time) {
        self.fill(self.current, Some(since));
    }

    fn fill(&mut self, cpu: usize, early: Option<Time>) {
        let view = View {
            memory: &self.memory,
            words: &self.words,
            cpu,
            early,
        };
        self.cpus[cpu].tlb.fill(&view);
    }

    /// The oracle: no CPU can use what is free, or what belongs to another space.
    pub(crate) fn judge(&mut self) {
        let mut broken = None;
        for (number, cpu) in self.cpus.iter().enumerate() {
            // A handler accesses no user address.
            let in_user = cpu.user && cpu.interrupted.is_none();
            for entry in cpu.tlb.usable() {
                let found = match entry.what {
                    _ if cpu.tlb.root != 0 && entry.owner != cpu.tlb.root => Some(Violation::ForeignTag {
                        cpu: number,
                        owner: entry.owner,
                        tag: entry.tag,
                    }),
                    What::Link(table) if self.freed_tables >> table & 1 == 1 => {
                        Some(Violation::TableWalked { cpu: number, table })
                    }
                    What::Page(page, frame) if in_user && self.freed_frames >> frame & 1 == 1 => {
                        Some(Violation::Stale {
                            cpu: number,
                            page,
                            frame,
                        })
                    }
                    _ => None,
                };
                broken = broken.or(found);
            }
            if !cpu.off
                && let Some(frame) = cpu.tlb.kernel().find(|frame| self.freed_frames >> frame & 1 == 1)
            {
                broken = broken.or(Some(Violation::KernelStale { cpu: number, frame }));
            }
            if let Some(table) = cpu.holds
                && self.freed_tables >> table & 1 == 1
            {
                broken = broken.or(Some(Violation::TableRead { cpu: number, table }));
            }
        }
        if let Some(violation) = broken {
            self.break_rule(violation);
        }
    }

    /// The current CPU takes its interrupt: masked from here on. An interrupted wait continues afterwards.
    pub(crate) fn take_interrupt(&mut self) {
        let cpu = self.cpu();
        (cpu.pending, cpu.masked) = (false, true);
        let interrupted = Interrupted {
            history: cpu.history,
            reads: cpu.reads.take(),
            blocked: cpu.blocked.take(),
            next: cpu.next,
            loads: cpu.loads,
        };
        if self.architecture.is_weak() {
            self.memory.views.take_interrupt(self.current);
        }
        self.acts(7);
        // Its wait is not in the history of a waiting CPU, and from here on it exists only on its stack.
        for &(address, seen) in interrupted.blocked.iter().flatten() {
            self.learns(u64::from(address));
            self.learns(seen);
        }
        self.cpu().interrupted = Some(interrupted);
        self.trace(|| "takes its interrupt".into());
    }

    /// The handler ends. It returns nothing, so what it has read does not affect the interrupted code: the CPU is at
    /// its previous position.
    pub(crate) fn end_interrupt(&mut self) {
        self.acts(10);
        let cpu = self.cpu();
        let interrupted = cpu.interrupted.take().expect("it was interrupted");
        cpu.history = interrupted.history;
        cpu.masked = false;
        (cpu.reads, cpu.blocked) = (interrupted.reads, interrupted.blocked);
        (cpu.next, cpu.loads) = (interrupted.next, interrupted.loads);
        self.trace(|| "goes on after its interrupt".into());
        self.judge();
    }

    pub(crate) fn free_frame(&mut self, frame: Frame) {
        self.acts(8);
        self.freed_frames |= 1 << frame;
        self.trace(|| format!("frees frame {frame}"));
        self.judge();
    }

    pub(crate) fn free_table(&mut self, table: Table) {
        self.acts(9);
        self.freed_tables |= 1 << table;
        self.trace(|| format!("frees table {table}"));
        self.judge();
    }

    /// Software on the current CPU holds a link to this table from here on, or to none.
    pub(crate) fn hold(&mut self, table: Option<Table>) {
        self.cpu().holds = table;
        self.judge();
    }

    /// Whether the current CPU may access user addresses from here on.
    pub(crate) fn in_user(&mut self, user: bool) {
        self.cpu().user = user;
        self.judge();
    }
}
