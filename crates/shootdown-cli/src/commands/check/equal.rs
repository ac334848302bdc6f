//! Why designs have equal numbers of states: they are equal there, or differ in axes that the races do not use.

use std::collections::{BTreeMap, BTreeSet};

use shootdown::Design;
use shootdown_check::configuration;
use shootdown_sim::run::{AXES, Axis};

use super::{Case, Outcome};
use crate::print::number::listed;

/// A sentence for each group of designs that have equal states in every race, explored whole.
pub(super) fn reasons(outcomes: &[Outcome]) -> Vec<String> {
    let mut groups: BTreeMap<_, Vec<&Outcome>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for outcome in outcomes {
        let (name, memory) = outcome.case.under();
        if !names.insert((name, memory.name())) {
            continue;
        }
        let own = || outcomes.iter().filter(|other| other.case.under() == (name, memory));
        if own().all(|other| other.report.complete && other.report.found.is_none()) {
            let states: Vec<(&str, u64)> = own().map(|other| (other.case.race.name, other.report.states)).collect();
            groups.entry((memory.name(), states)).or_default().push(outcome);
        }
    }
    let mut groups: Vec<_> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| {
        outcomes
            .iter()
            .position(|outcome| outcome.case.under() == group[0].case.under())
    });
    groups.iter().map(|group| reason(group, outcomes)).collect()
}

fn reason(group: &[&Outcome], outcomes: &[Outcome]) -> String {
    let names: Vec<&str> = group.iter().map(|outcome| outcome.case.configuration.name).collect();
    let races = || {
        outcomes
            .iter()
            .filter(|outcome| outcome.case.under() == group[0].case.under())
    };
    let mut as_preset = BTreeSet::new();
    let mut in_races = BTreeSet::new();
    for other in &group[1..] {
        as_preset.extend(differences(preset(&group[0].case), preset(&other.case)));
        for race in races() {
            let explored = |case: &Case| configuration::under(race.case.race, case.configuration);
            let (one, other) = (explored(&group[0].case), explored(&other.case));
            in_races.extend(differences(one.design, other.design));
            if one.broadcasts != other.broadcasts {
                in_races.insert("broadcast instructions of the machine".to_string());
            }
        }
    }
    let names = listed(&names);
    if in_races.is_empty() {
        let differ = listed(&as_preset.iter().map(String::as_str).collect::<Vec<_>>());
        return format!(
            "equal states, as the same design is explored: {names}; \
             `check` or the race sets what they differ in ({differ})"
        );
    }
    let differ = listed(&in_races.iter().map(String::as_str).collect::<Vec<_>>());
    format!("equal states, as no step of these races depends on what differs ({differ}): {names}")
}

/// The design as its preset has it.
fn preset(case: &Case) -> Design {
    Design::preset(case.configuration.name).unwrap_or(case.configuration.design)
}

/// The axes on which two designs differ, as they are set.
fn differences(one: Design, other: Design) -> impl Iterator<Item = String> {
    let differs = move |axis: &&Axis| axis.of(&one) != axis.of(&other);
    AXES.iter().filter(differs).map(|axis| axis.path.to_string())
}

#[cfg(test)]
mod tests {
    use shootdown::{Machine, Policy};

    use super::*;

    #[test]
    fn differences_name_axes_as_they_are_set() {
        let differences =
            |other: Design| -> Vec<String> { super::differences(Policy::ADAPTIVE.into(), other).collect() };
        assert!(differences(Policy::ADAPTIVE.into()).is_empty());
        let promoted = Policy {
            tags: shootdown::Tags::Hybrid { promote_at: 99 },
            sample_one_in: 8,
            ..Policy::ADAPTIVE
        };
        assert_eq!(differences(promoted.into()), ["design.tags", "design.sample_one_in"]);
        let narrow = Machine {
            tag_limit: 16,
            ..Machine::PCID
        };
        assert_eq!(differences(Policy::ADAPTIVE.on(narrow)), ["design.tag_limit"]);
    }
}
