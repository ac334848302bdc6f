//! The clock of a recording: no event is earlier than the one before.
//!
//! Where a clock restarts (two recordings in one file, a rebooted machine) its first line counts as out of order, and
//! later lines continue from there.

/// How far back a line must be for the clock to have restarted. Assumed: merged lines of different CPUs differ by far
/// less.
const RESTART_NS: u64 = 1_000_000_000;

/// The time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// In order, at this time.
    At(u64),
    /// At this time, the second line of a restarted clock.
    Restarted(u64),
    /// Earlier than the line before.
    OutOfOrder,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Clock {
    latest_ns: u64,
    /// What is added to the times of the text.
    shift_ns: u64,
    /// The time of the previous line, if that was far back.
    earlier_ns: Option<u64>,
}

impl Clock {
    /// The time of the next line's event, given its printed time.
    pub(super) fn order(&mut self, time_ns: u64) -> When {
        let at = time_ns.saturating_add(self.shift_ns);
        let earlier = self.earlier_ns.take();
        if at >= self.latest_ns {
            self.latest_ns = at;
            return When::At(at);
        }
        if self.latest_ns - at < RESTART_NS {
            return When::OutOfOrder;
        }
        // One line may be garbled; two consecutive ones are a clock.
        match earlier.filter(|&earlier| earlier <= time_ns) {
            Some(earlier) => {
                self.shift_ns = self.latest_ns - earlier;
                self.latest_ns = time_ns.saturating_add(self.shift_ns);
                When::Restarted(self.latest_ns)
            }
            None => {
                self.earlier_ns = Some(time_ns);
                When::OutOfOrder
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn ordered(times: &[u64]) -> Vec<When> {
        let mut clock = Clock::default();
        times.iter().map(|&time| clock.order(time)).collect()
    }

    #[test]
    fn late_lines_are_out_of_order_and_the_clock_continues() {
        let found = ordered(&[5 * S, 5 * S - 3, 5 * S - 2, 5 * S]);
        assert_eq!(
            found,
            [When::At(5 * S), When::OutOfOrder, When::OutOfOrder, When::At(5 * S)]
        );
    }

    #[test]
    fn one_garbled_time_is_out_of_order() {
        let found = ordered(&[785 * S, 0, 786 * S, 785 * S + 1, 787 * S]);
        let expected = [
            When::At(785 * S),
            When::OutOfOrder,
            When::At(786 * S),
            When::OutOfOrder,
            When::At(787 * S),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn restarted_clock_continues_from_the_last_time() {
        let found = ordered(&[785 * S, 10 * S, 10 * S + 7, 11 * S, 3 * S, 3 * S + 1]);
        let expected = [
            When::At(785 * S),
            When::OutOfOrder,
            When::Restarted(785 * S + 7),
            When::At(786 * S),
            When::OutOfOrder,
            When::Restarted(786 * S + 1),
        ];
        assert_eq!(found, expected);
    }
}
