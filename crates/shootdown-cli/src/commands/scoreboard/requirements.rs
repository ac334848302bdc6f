//! The requirements on `adaptive`, and whether the cells meet them.

use schemars::JsonSchema;
use serde::Serialize;

use super::cell::Cell;
use crate::catalog::{FLAGSHIP_MACHINE, FLAGSHIP_WORKLOAD};
use crate::print::number;

/// Least share of the best preset, everywhere.
const OF_BEST: f64 = 0.98;
/// Least share of the limit on the main workload and machine, with broadcast.
const OF_LIMIT: f64 = 0.95;
/// To be reached somewhere on each machine of several sockets.
const AHEAD: f64 = 1.10;
/// Least multiple of `ipi` without broadcast, from [`MANY`] threads on.
const OF_IPI: f64 = 1.5;
const MANY: usize = 16;

/// A requirement and its result.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct Requirement {
    /// The requirement.
    pub what: String,
    /// Whether it is met.
    pub met: bool,
    /// The result.
    pub found: String,
}

/// One requirement: the least `value` over the cells that it concerns is at least `least`; without a cell it is
/// undecided.
fn least(
    cells: &[Cell],
    what: String,
    least: f64,
    concerns: impl Fn(&Cell) -> bool,
    value: impl Fn(&Cell) -> Option<f64>,
) -> Option<Requirement> {
    let found: Vec<(f64, &Cell)> = cells
        .iter()
        .filter(|cell| concerns(cell))
        .filter_map(|cell| Some((value(cell)?, cell)))
        .collect();
    let below = found.iter().filter(|(value, _)| *value < least).count();
    let (worst, cell) = found.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Requirement {
        what,
        met: below == 0,
        found: format!(
            "{below} of {} below; least {worst:.3}, {}",
            number::counted(found.len(), "cell"),
            cell.place
        ),
    })
}

/// Never worse than any preset; how much of the deficit could be noise, and where flushes do not decide the rate.
fn of_best(cells: &[Cell]) -> Option<Requirement> {
    let what = format!("at least {OF_BEST} of the best preset everywhere");
    let mut found = least(cells, what, OF_BEST, |_| true, |cell| Some(cell.of_best))?;
    let certain = cells
        .iter()
        .filter(|cell| cell.of_best + cell.noise.unwrap_or(0.0) < OF_BEST);
    // The limit as a share of the best.
    let limit = |cell: &Cell| Some(cell.of_best / cell.of_ideal?);
    let unreachable = cells
        .iter()
        .filter(|cell| cell.of_best < OF_BEST && limit(cell).is_some_and(|limit| limit < OF_BEST));
    if !found.met {
        found.found.push_str(&format!(
            "; {} of them by more than two standard errors; in {} of them ideal is not {OF_BEST} of the best either",
            certain.count(),
            unreachable.count()
        ));
    }
    Some(found)
}

/// Well ahead of interrupts without broadcast; and the cells where no design could be.
fn of_ipi(cells: &[Cell]) -> Option<Requirement> {
    let concerns = is_without_broadcast_and_many;
    let what = format!("{FLAGSHIP_WORKLOAD} without broadcast: at least {OF_IPI} times ipi from {MANY} threads on");
    let mut found = least(cells, what, OF_IPI, concerns, |cell| cell.of_ipi)?;
    let below = |share: Option<f64>| share.is_some_and(|share| share < OF_IPI);
    let unreachable = cells
        .iter()
        .filter(|cell| concerns(cell) && below(cell.of_ipi) && below(cell.ideal_of_ipi));
    if !found.met {
        found.found.push_str(&format!(
            "; in {} of them ideal is not {OF_IPI} times ipi either",
            unreachable.count()
        ));
    }
    Some(found)
}

fn is_flagship(cell: &Cell) -> bool {
    cell.place.workload == FLAGSHIP_WORKLOAD && cell.place.machine == FLAGSHIP_MACHINE
}

/// Whether this cell, as measured, misses its requirement, or has a preset ahead of it.
pub(super) fn is_doubtful(cell: &Cell) -> bool {
    let below = |share: Option<f64>, least: f64| share.is_some_and(|share| share < least);
    cell.of_best < 1.0
        || cell.place.broadcast && is_flagship(cell) && below(cell.of_ideal, OF_LIMIT)
        || is_without_broadcast_and_many(cell) && below(cell.of_ipi, OF_IPI)
}

/// Whether this cell, measured several times, misses or reaches the required share of the best preset by less than its
/// error. Both directions count; otherwise repetition would favour success.
pub(super) fn is_undecided(cell: &Cell) -> bool {
    cell.noise.is_some_and(|noise| (cell.of_best - OF_BEST).abs() <= noise)
}

fn is_without_broadcast_and_many(cell: &Cell) -> bool {
    !cell.place.broadcast && cell.place.threads >= MANY && cell.place.workload == FLAGSHIP_WORKLOAD
}

/// How far below the limit the main workload is, and the costs in between: a line for each cell below [`OF_LIMIT`].
pub(super) fn below_limit(cells: &[Cell]) -> Vec<String> {
    let mut below: Vec<(&Cell, f64)> = cells
        .iter()
        .filter(|cell| is_flagship(cell))
        .filter_map(|cell| Some((cell, cell.of_ideal.filter(|share| *share < OF_LIMIT)?)))
        .collect();
    below.sort_by_key(|(cell, _)| (!cell.place.broadcast, cell.place.threads));
    let line = |(cell, share): (&Cell, f64)| {
        let beyond: Vec<String> = cell
            .beyond_ideal
            .iter()
            .map(|part| format!("{} {}", part.category, number::time(part.time_ns)))
            .collect();
        let waiting = cell.of_waited_for.map_or(String::new(), |waited| {
            format!(
                "; waiting idly for its broadcast would leave at most {:.3}",
                share / waited
            )
        });
        format!(
            "{}: {share:.3} of ideal{waiting}; of {} of CPU time per loop, more than ideal's: {}",
            cell.place,
            number::time(cell.cpu_time_per_op_ns),
            beyond.join(", ")
        )
    };
    below.into_iter().map(line).collect()
}

/// The requirements, over all cells that were run.
pub(super) fn requirements(cells: &[Cell]) -> Vec<Requirement> {
    let mut all: Vec<Requirement> = [
        of_best(cells),
        least(
            cells,
            "at 2 threads no worse than ipi or broadcast".to_string(),
            1.0,
            |cell| cell.place.threads == 2,
            |cell| cell.of_either,
        ),
        of_ipi(cells),
        least(
            cells,
            format!(
                "{} with broadcast on {}: at least {OF_LIMIT} of ideal",
                FLAGSHIP_WORKLOAD, FLAGSHIP_MACHINE
            ),
            OF_LIMIT,
            |cell| cell.place.broadcast && is_flagship(cell),
            |cell| cell.of_ideal,
        ),
        least(
            cells,
            format!(
                "the same: at least {OF_LIMIT} of what is left of ideal when \
                 each loop waits idly for one broadcast to be complete everywhere"
            ),
            OF_LIMIT,
            |cell| cell.place.broadcast && is_flagship(cell),
            |cell| cell.of_waited_for.or(cell.of_ideal),
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut machines: Vec<&str> = cells
        .iter()
        .filter(|cell| cell.sockets > 1)
        .map(|cell| &*cell.place.machine)
        .collect();
    machines.sort_unstable();
    machines.dedup();
    for machine in machines {
        let of_machine = cells.iter().filter(|cell| cell.place.machine == machine);
        let Some(top) = of_machine.max_by(|a, b| a.of_best.total_cmp(&b.of_best)) else {
            continue;
        };
        all.push(Requirement {
            what: format!("above {AHEAD:.2} of the best preset somewhere on {machine}"),
            met: top.of_best > AHEAD,
            found: format!("{:.3}, {}", top.of_best, top.place),
        });
    }
    all
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::commands::scoreboard::cell::Beyond;
    use crate::commands::scoreboard::location::Place;

    pub(in crate::commands::scoreboard) fn cell(
        machine: &str,
        sockets: usize,
        broadcast: bool,
        threads: usize,
        of_best: f64,
    ) -> Cell {
        Cell {
            place: Place {
                machine: machine.to_string(),
                broadcast,
                workload: FLAGSHIP_WORKLOAD.to_string(),
                threads,
                set: Vec::new(),
                lru_drain: false,
            },
            sockets,
            adaptive: of_best * 1e5,
            best: "ipi".to_string(),
            best_ops_per_s: 1e5,
            of_best,
            noise: Some(0.01),
            of_ideal: Some(of_best / 2.0),
            of_waited_for: Some(of_best / 1.9),
            ideal_of_ipi: Some(2.0 * of_best),
            of_ipi: Some(of_best),
            of_either: Some(of_best),
            cpu_time_per_op_ns: 2e4,
            beyond_ideal: vec![Beyond {
                category: "invalidation, requester".to_string(),
                time_ns: 500.0,
            }],
        }
    }

    #[test]
    fn requirement_names_its_worst_cell_and_verdict() {
        let cells = [cell("one", 1, true, 2, 0.99), cell("two", 2, false, 16, 1.6)];
        let found = requirements(&cells);
        let met: Vec<bool> = found.iter().map(|requirement| requirement.met).collect();
        assert_eq!(met, [true, false, true, true], "{found:?}");
        assert!(
            found[1]
                .found
                .contains("1 of 1 cell below; least 0.990, tlb_flush2 on one at 2 threads")
        );
        assert!(
            found[3]
                .found
                .contains("1.600, tlb_flush2 on two without broadcast at 16 threads")
        );
    }

    #[test]
    fn requirement_without_cells_has_no_verdict() {
        assert_eq!(requirements(&[]), []);
        let found = requirements(&[cell("one", 1, true, 4, 0.5)]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn requirement_reports_chance_and_unreachable_cells() {
        let mut far = cell("two", 1, false, 16, 0.9);
        far.ideal_of_ipi = Some(1.2);
        let found = requirements(&[cell("one", 1, true, 4, 0.975), far]);
        assert!(
            found[0].found.starts_with("2 of 2 cells below; least 0.900"),
            "{found:?}"
        );
        assert!(
            found[0].found.ends_with(
                "1 of them by more than two standard errors; in 0 of them ideal is not 0.98 of the best either"
            ),
            "{found:?}"
        );
        assert!(
            found[1]
                .found
                .ends_with("in 1 of them ideal is not 1.5 times ipi either"),
            "{found:?}"
        );
        // Its share of the limit is larger than that of the best: the limit is behind the best.
        let mut behind = cell("one", 1, true, 4, 0.9);
        behind.of_ideal = Some(0.95);
        let found = requirements(&[behind]);
        assert!(
            found[0]
                .found
                .ends_with("in 1 of them ideal is not 0.98 of the best either"),
            "{found:?}"
        );
    }

    #[test]
    fn cell_below_a_demand_is_measured_again() {
        assert!(!is_doubtful(&cell("one", 1, true, 2, 1.6)));
        assert!(is_doubtful(&cell("one", 1, true, 2, 0.99)));
        // Its share of `ideal` is half of its share of the best.
        assert!(is_doubtful(&cell(FLAGSHIP_MACHINE, 1, true, 2, 1.6)));
        assert!(is_doubtful(&cell("one", 1, false, 16, 1.4)) && !is_doubtful(&cell("one", 1, false, 8, 1.4)));
    }

    #[test]
    fn cell_within_its_error_of_the_demand_is_undecided() {
        let with_noise = |of_best, noise| Cell {
            noise,
            ..cell("one", 1, true, 2, of_best)
        };
        assert!(is_undecided(&with_noise(0.97, Some(0.02))));
        assert!(!is_undecided(&with_noise(0.97, Some(0.005))));
        assert!(!is_undecided(&with_noise(0.97, None)));
        assert!(is_undecided(&with_noise(0.99, Some(0.02))));
        assert!(!is_undecided(&with_noise(0.99, Some(0.005))));
    }

    #[test]
    fn gap_to_the_limit_is_explained() {
        let mut near = cell(FLAGSHIP_MACHINE, 1, true, 2, 1.6);
        near.of_waited_for = Some(1.0);
        let lines = below_limit(&[cell("one", 1, true, 2, 1.6), near]);
        assert_eq!(
            lines,
            ["tlb_flush2 on milan-72 at 2 threads: 0.800 of ideal; \
              waiting idly for its broadcast would leave at most 0.800; \
              of 20.0 µs of CPU time per loop, more than ideal's: invalidation, requester 500 ns"]
        );
    }
}
