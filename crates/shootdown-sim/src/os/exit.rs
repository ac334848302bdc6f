//! The end of a process: its space is retired, its frames and tables are freed.

use super::System;
use super::process::{Process, TABLE_SPAN, USER_BASE};
use crate::hw::{Entry, table_index};
use crate::machine;

impl<const W: usize> System<W> {
    /// Ends a process that no thread will run again; CPUs may still have it loaded lazily. Frees everything that it
    /// mapped. Its regions lie in one gigabyte.
    pub fn exit(&self, process: &Process<W>) {
        let spans = process.table_locks.len() as u64;
        let frames = self.withdraw(process, USER_BASE, spans * TABLE_SPAN / super::PAGE);
        let retired = self.announced_whole(process, || self.engine.retire(&process.space));
        self.quarantine_retired(process, &retired);
        self.free_frames(frames);
        // No CPU has the root loaded any longer, so the tables below it are freed without another flush.
        let tables: Vec<u32> = {
            let hw = self.hw.borrow();
            let upper = [2, 3].map(|level| hw.table_at(process.root, USER_BASE, level));
            let lowest = (0..spans).map(|span| hw.table_at(process.root, USER_BASE + span * TABLE_SPAN, 1));
            lowest.chain(upper).flatten().collect()
        };
        let line = machine::line_of(std::ptr::from_ref(&*process.space));
        self.store_at(line, process.root, table_index(USER_BASE, 4), Entry::NONE);
        machine::drain_stores();
        machine::synchronise();
        let mut hw = self.hw.borrow_mut();
        for table in tables.into_iter().chain([process.root]) {
            hw.free_table(table, machine::cpu(), machine::now());
        }
        hw.end_space(process.number);
        drop(hw);
        self.spare.borrow_mut().push(process.memory());
    }
}
