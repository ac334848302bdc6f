//! How a run changes a design: every axis by name, the values that a run was given, and whether a machine can run the
//! result.
//!
//! [`axes`] is the table of axes, [`setting`] how values are written and checked, [`settings`] those of a run.

mod axes;
mod entry;
mod setting;
mod settings;
#[cfg(test)]
mod tests;

pub use axes::{AXES, Axis, axis};
pub(crate) use entry::find_design;
pub use entry::{DesignEntry, designs};
pub use setting::{Setting, Values};
pub use settings::Settings;

use crate::model::Model;
use crate::setup::{fit_design, needed_errata, workarounds};
use shootdown::{Design, Reach, Tags, USER_HALF};

/// Prefix of every axis's path; no path of a machine model has it.
pub const PREFIX: &str = "design.";

impl DesignEntry {
    /// Whether settings apply to it. They apply to every design that invalidates; `ideal` and `none` are fixed limits.
    pub fn takes_settings(&self) -> bool {
        self.design.policy.reach != Reach::None
    }

    /// The design as it runs on `model`: limited to the machine's features, with `settings`.
    ///
    /// # Errors
    /// One line naming the setting that does not fit the machine or the others, and the remedy.
    pub fn on(&self, model: &Model, settings: &Settings) -> Result<Design, String> {
        let preset = fit_design(self.design, model);
        if !self.takes_settings() {
            return Ok(preset);
        }
        let mut design = settings.apply(preset);
        check_machine(&design, &preset, settings, model)?;
        check_tags(self.name, &design, model)?;
        design.machine.errata = workarounds(design.machine.errata, model);
        Ok(design)
    }

    /// Which of `settings` change nothing under this design on `model`, each as a sentence.
    pub fn without_effect(&self, model: &Model, settings: &Settings) -> Vec<String> {
        if settings.is_empty() {
            return Vec::new();
        }
        if !self.takes_settings() {
            return vec![format!(
                "`{}` stays as it is: design settings do not apply to it",
                self.name
            )];
        }
        let Ok(design) = self.on(model, settings) else {
            return Vec::new();
        };
        let unread = |axis: &Axis| axis.read.filter(|(_, is_read)| !is_read(&design));
        settings
            .iter()
            .filter_map(|(axis, setting)| Some((axis, setting, unread(axis)?.0)))
            .map(|(axis, setting, place)| {
                format!(
                    "{}={setting} changes nothing under `{}`: it is read {place}",
                    axis.path, self.name
                )
            })
            .collect()
    }
}

/// Hardware features that the design requires.
fn check_machine(design: &Design, preset: &Design, settings: &Settings, model: &Model) -> Result<(), String> {
    let (name, needed) = (&model.name, needed_errata(model));
    if settings.given("design.reach").is_some() && design.policy.reach == Reach::Broadcast && !model.broadcasts() {
        return Err(format!(
            "design.reach=broadcast: {name} cannot broadcast; use design.reach=ipi, or a machine that can"
        ));
    }
    if design.machine.tag_limit > preset.machine.tag_limit {
        return Err(format!(
            "design.tag_limit={}: {name} has {} tags; give at most that, or more bits (--set tags.bits=N)",
            design.machine.tag_limit, preset.machine.tag_limit
        ));
    }
    if design.machine.split && preset.machine.tag_limit < 2 * u32::from(USER_HALF) {
        return Err(format!(
            "design.split=true: the user half has tags from {USER_HALF} on, and {name} has {}; \
             use a machine with 12 bits of tags or more (--set tags.bits=12)",
            preset.machine.tag_limit
        ));
    }
    let errata = [
        (
            "never_broadcast",
            design.machine.errata.never_broadcast,
            needed.never_broadcast,
        ),
        (
            "interrupt_too",
            design.machine.errata.interrupt_too,
            needed.interrupt_too,
        ),
        ("repeat", design.machine.errata.repeat, needed.repeat),
    ];
    for (erratum, given, is_needed) in errata {
        let path = format!("design.errata.{erratum}");
        if is_needed && !given && settings.given(&path).is_some() {
            return Err(format!(
                "{path}=false: {name} needs this workaround; leave it out, or take the erratum from the machine"
            ));
        }
    }
    Ok(())
}

/// Conditions on tags that the engine asserts when it is built.
fn check_tags(name: &str, design: &Design, model: &Model) -> Result<(), String> {
    let end = match design.machine.split {
        true => design.machine.tag_limit.min(USER_HALF.into()),
        false => design.machine.tag_limit,
    };
    let (first, slots, end) = (u32::from(design.machine.first_tag), u32::from(design.policy.slots), end);
    if design.policy.tags != Tags::System && first + slots > end {
        return Err(format!(
            "design `{name}`: {slots} slots from tag {first} on do not fit below {end}, the end of tags; \
             lower design.slots or design.first_tag, or raise design.tag_limit"
        ));
    }
    let (tags, cpus) = (end.saturating_sub(first) as usize, model.topology.cpus());
    if design.policy.tags == Tags::System && tags <= cpus {
        return Err(format!(
            "design `{name}`: system-wide tags must outnumber the CPUs, and {} has {tags} for {cpus} CPUs; \
             use a design with per-CPU tags, fewer CPUs, or wider tags (--set tags.bits=N)",
            model.name
        ));
    }
    Ok(())
}
