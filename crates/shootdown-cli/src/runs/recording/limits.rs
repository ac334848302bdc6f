//! What a recording can tell, and what is missing.

use shootdown_sim::model::Model;
use shootdown_trace::{Metadata, Processes};

use super::Recording;
use crate::failure::Failure;
use crate::print::number;

/// The lines before the tables.
pub fn lines(recording: &Recording, models: &[Model]) -> Vec<String> {
    let mut lines = vec![processes(&recording.coverage.processes), losses(recording)];
    lines.push(absent(recording));
    lines.push(machine(recording, models));
    lines
}

fn processes(processes: &Processes) -> String {
    match processes {
        Processes::Recorded => "processes: the recording has their numbers".to_string(),
        Processes::Rebuilt(found) => format!(
            "processes: inferred, {} from {}; {} of the observations agree",
            number::count(found.processes),
            number::counted(found.tasks, "task"),
            number::percent(found.confidence())
        ),
        Processes::Absent => "processes: not recorded".to_string(),
    }
}

fn losses(recording: &Recording) -> String {
    let coverage = &recording.coverage;
    match (
        recording.metadata.lost_events,
        coverage.losses.iter().any(|loss| loss.events.is_none()),
    ) {
        (0, false) => "losses: the recording notes none".to_string(),
        (0, true) => "losses: events were lost, how many is not recorded; every count is a lower bound".to_string(),
        (lost, _) => format!(
            "losses: {}; every count is a lower bound",
            number::counted(lost, "event")
        ),
    }
}

/// The events whose absence limits what the tables say.
fn absent(recording: &Recording) -> String {
    const MEANINGS: [(&str, &str); 4] = [
        ("sched_switch", "which CPU runs what is inferred"),
        ("tlb_flush", "no flush is known"),
        ("csd_queue_cpu", "the recorded interrupts are not known"),
        ("sys_enter_madvise", "system calls that send requests are not known"),
    ];
    let absent = MEANINGS
        .iter()
        .filter(|(event, _)| recording.coverage.count(event) == 0);
    let absent: Vec<String> = absent.map(|(event, meaning)| format!("{event} ({meaning})")).collect();
    match absent.is_empty() {
        true => "absent events: none that the tables need".to_string(),
        false => format!("absent events: {}", absent.join(", ")),
    }
}

/// The recording does not name its machine; a model with as many CPUs may match.
fn machine(recording: &Recording, models: &[Model]) -> String {
    let kernel = recording.metadata.kernel.as_deref().unwrap_or("kernel not said");
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    match names.is_empty() {
        true => format!(
            "machine: {}, {kernel}; no model has as many CPUs, \
             so the fit cannot be checked (`shootdown calibrate` makes a model)",
            number::counted(recording.cpus(), "CPU")
        ),
        false => format!(
            "machine: {}, {kernel}; the recording does not name it; models with as many CPUs: {}",
            number::counted(recording.cpus(), "CPU"),
            names.join(", ")
        ),
    }
}

/// Errors in the text, a line for each kind.
pub(crate) fn damage(metadata: &Metadata) -> String {
    let damage = &metadata.damage;
    let mut text = String::new();
    if metadata.incomplete {
        text.push_str("incomplete: recording ended before its time\n");
    }
    if damage.skipped() > 0 {
        text.push_str(&format!(
            "skipped {} of {}: {} damaged, {} with events that are not used, {} out of order\n",
            number::count(damage.skipped()),
            number::counted(damage.lines, "line"),
            number::count(damage.damaged),
            number::count(damage.unknown),
            number::count(damage.out_of_order)
        ));
        for first in &damage.first {
            text.push_str(&format!("  first at line {}: {}\n", first.line, first.what));
        }
    }
    text
}

/// The models with as many CPUs as were recorded: one of them may match the recorded machine.
pub fn models_of(cpus: usize) -> Result<Vec<Model>, Failure> {
    let models: Result<Vec<Model>, _> = Model::builtin_names().iter().map(|name| Model::find(name)).collect();
    let models = models.map_err(|error| Failure::Input(error.to_string()))?;
    Ok(models
        .into_iter()
        .filter(|model| model.topology.cpus() == cpus)
        .collect())
}
