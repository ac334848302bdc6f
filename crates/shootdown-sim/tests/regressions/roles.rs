//! Parts that many scenarios have in common. Each is the part of one CPU in every round; the point of a scenario stays
//! with the scenario.

use super::scene::*;
use shootdown_sim::machine;
use shootdown_sim::os::PAGE;

/// A moment of each round, cycles from its start.
#[derive(Clone, Copy)]
pub struct RoundTime {
    after: u64,
    /// Random added delay, at most.
    spread: u64,
}

/// `after` cycles into the round.
pub fn at(after: u64) -> RoundTime {
    about(after, 0)
}

/// `after` cycles into the round, or up to `spread` later, at random each time.
pub fn about(after: u64, spread: u64) -> RoundTime {
    RoundTime { after, spread }
}

impl RoundTime {
    /// Lets time pass until that moment of the round that began at `start`.
    pub fn come(self, start: u64) {
        until(start + self.after);
        if self.spread > 0 {
            dawdle(self.spread);
        }
    }
}

impl Stage {
    /// `cpu` runs `process`, writes its first pages, and at `moment` drops them.
    pub fn withdraws_pages(&self, cpu: usize, process: &Proc, pages: u64, moment: RoundTime) {
        self.writes_and(cpu, process, pages, moment, move |system, process| {
            system.drop_pages(process, P, pages);
        });
    }

    /// `cpu` runs `process`, writes its first pages, and at `moment` acts on them.
    pub fn writes_and(
        &self,
        cpu: usize,
        process: &Proc,
        pages: u64,
        moment: RoundTime,
        then: impl Fn(&Sys, &Proc) + 'static,
    ) {
        let process = process.clone();
        self.cpu(cpu, move |system| {
            system.load(&process);
            rounds(|start| {
                write(system, &process, pages);
                moment.come(start);
                then(system, &process);
            });
        });
    }

    /// `cpu` runs `process` and in each round [takes a table away](take_a_table).
    pub fn withdraws_tables(&self, cpu: usize, process: &Proc, moment: RoundTime) {
        let process = process.clone();
        self.cpu(cpu, move |system| {
            system.load(&process);
            rounds(|start| take_a_table(system, &process, start, moment));
        });
    }

    /// `cpu` runs `process` and at `moment` reads its first pages.
    pub fn reads_pages(&self, cpu: usize, process: &Proc, pages: u64, moment: RoundTime) {
        let process = process.clone();
        self.cpu(cpu, move |system| {
            system.load(&process);
            rounds(|start| {
                moment.come(start);
                look_at_pages(system, pages);
            });
        });
    }

    /// `cpu` runs `process`, reads a page and enters lazy TLB mode at `leaving`, and is back at `returning`: then it
    /// runs `back`, with the start of the round.
    pub fn goes_lazy_and_returns(
        &self,
        cpu: usize,
        process: &Proc,
        (leaving, returning): (RoundTime, RoundTime),
        back: impl Fn(&Sys, u64) + 'static,
    ) {
        let process = process.clone();
        self.cpu(cpu, move |system| {
            rounds(|start| {
                system.load(&process);
                leaving.come(start);
                look(system, P);
                system.go_lazy();
                returning.come(start);
                system.resume(&process);
                back(system, start);
            });
        });
    }
}

/// Maps a region of four pages, writes them, and at `moment` unmaps it, which frees their table.
pub fn take_a_table(system: &Sys, process: &Proc, start: u64, moment: RoundTime) {
    map_and_write(system, process);
    moment.come(start);
    system.unmap(process, P, 4 * PAGE);
}

/// Maps a region of four pages, and writes them.
pub fn map_and_write(system: &Sys, process: &Proc) {
    system.map(process, P, 4 * PAGE);
    write(system, process, 4);
}

/// Reads the first `pages` pages, those that are mapped.
pub fn look_at_pages(system: &Sys, pages: u64) {
    for page in 0..pages {
        look(system, P + page * PAGE);
    }
}

/// Goes offline with interrupts masked, as a CPU must, and comes back when `meanwhile` is over.
pub fn be_off_for(system: &Sys, meanwhile: impl FnOnce()) {
    let masked = machine::interrupts_off();
    system.offline();
    meanwhile();
    system.online();
    machine::interrupts_restore(masked);
}
