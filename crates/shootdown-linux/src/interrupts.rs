//! Interrupts that the kernel has counted since boot.

use std::fs;

/// Counts over all CPUs; `None` where this kernel has no such line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interrupts {
    /// TLB shootdowns. Arm has none: its invalidations are broadcast by the hardware.
    pub shootdowns: Option<u64>,
    /// Function calls to other CPUs, shootdowns included or not: x86 counts them in both lines.
    pub calls: Option<u64>,
}

impl Interrupts {
    /// The counts now.
    pub fn now() -> Interrupts {
        Interrupts::parse(&fs::read_to_string("/proc/interrupts").unwrap_or_default())
    }

    /// Selected by the words at the end of a line, because its start differs between processors.
    fn parse(text: &str) -> Interrupts {
        let count = |words: &str| {
            let line = text.lines().find(|line| line.trim_end().ends_with(words))?;
            let numbers = line.split_ascii_whitespace().skip(1);
            Some(numbers.map_while(|number| number.parse::<u64>().ok()).sum())
        };
        Interrupts {
            shootdowns: count("TLB shootdowns"),
            calls: count("Function call interrupts"),
        }
    }

    /// Interrupts since `before`.
    pub fn since(&self, earlier: &Interrupts) -> Interrupts {
        let less = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Interrupts {
            shootdowns: less(self.shootdowns, earlier.shootdowns),
            calls: less(self.calls, earlier.calls),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Interrupts;

    #[test]
    fn interrupt_lines_of_x86_and_arm_are_parsed() {
        let x86 = "           CPU0       CPU1\n  1:  9  0  IO-APIC  1-edge  i8042\n\
                   CAL:     242876     250946   Function call interrupts\nTLB:     1       2   TLB shootdowns\n";
        let now = Interrupts::parse(x86);
        assert_eq!((now.shootdowns, now.calls), (Some(3), Some(493_822)));
        let arm = Interrupts::parse("IPI0:  5  6  Rescheduling interrupts\nIPI1:  7  8  Function call interrupts\n");
        assert_eq!((arm.shootdowns, arm.calls), (None, Some(15)));
        assert_eq!(arm.since(&now).shootdowns, None);
        assert_eq!(now.since(&now).shootdowns, Some(0));
    }
}
