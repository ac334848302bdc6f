//! Split tags: user code runs under the user half of a pair; the kernel loads its own half on return.

use super::System;
use crate::machine;
use shootdown::USER_HALF;

impl<const W: usize> System<W> {
    /// Runs `body` under the user half of the loaded pair, with interrupts off: an interrupt would load the kernel's
    /// half.
    pub fn in_user_half(&self, body: impl FnOnce()) {
        let saved = machine::interrupts_off();
        let (root, tag, space) = self.hw.borrow().loaded(machine::cpu());
        self.load_half(root, tag | USER_HALF, space);
        body();
        self.load_half(root, tag, space);
        machine::interrupts_restore(saved);
    }

    fn load_half(&self, root: u32, tag: u16, space: u32) {
        machine::synchronise();
        let (cpu, now) = (machine::cpu(), machine::now());
        let mut hw = self.hw.borrow_mut();
        let cost = hw.load_root(cpu, root, tag, true, space, now);
        hw.caught_up(cpu, now);
        drop(hw);
        machine::charge(u64::from(cost.unwrap_or_else(|fault| panic!("tag {tag}: {fault:?}"))));
    }
}
