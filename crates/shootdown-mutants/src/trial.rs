//! Tries mutations: which probes run for each, in which order, and how many at a time.

use crate::journal::{Entry, Journal};
use crate::mutant::Mutant;
use crate::probe::{self, Probe};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// This many recent catchers in the same function are tried first.
const NEIGHBOURS: usize = 4;

/// Seconds to start a program.
const START: f64 = 0.005;

/// All state needed to try mutations.
pub struct Trial<'a> {
    /// All probes.
    pub probes: &'a [Probe],
    /// Fingerprint of the instrumented engine.
    pub engine: u64,
    /// A folder for the programs' output.
    pub scratch: &'a Path,
    /// Limit of seconds of probes, as measured, for each mutation.
    pub budget: f64,
    journal: Mutex<&'a mut Journal>,
    /// Probes that have caught mutations, by function, the last first.
    catchers: Mutex<HashMap<(String, String), Vec<usize>>>,
    /// For each probe, how many mutations it has caught, and its total seconds.
    yields: Mutex<Vec<(f64, f64)>>,
}

impl<'a> Trial<'a> {
    /// Ready to try.
    pub fn new(probes: &'a [Probe], engine: u64, budget: f64, scratch: &'a Path, journal: &'a mut Journal) -> Self {
        Trial {
            probes,
            budget,
            engine,
            scratch,
            journal: Mutex::new(journal),
            catchers: Mutex::default(),
            yields: Mutex::new(
                probes
                    .iter()
                    .map(|probe| (1.0, probe.baseline.seconds + START))
                    .collect(),
            ),
        }
    }

    /// All probes, those with the most catches per unit of time first; among unused ones, the quickest.
    fn by_yield(&self) -> Vec<usize> {
        let yields = self.yields.lock().expect("no thread panics while it holds this");
        let rate = |&index: &usize| yields[index].0 / yields[index].1;
        let mut order: Vec<usize> = (0..yields.len()).collect();
        order.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
        order
    }

    fn learn(&self, probed: &[usize], seconds: f64, catcher: Option<usize>) {
        let mut yields = self.yields.lock().expect("as above");
        let each = (seconds + START) / probed.len() as f64;
        probed.iter().for_each(|&index| yields[index].1 += each);
        if let Some(index) = catcher {
            yields[index].0 += 1.0;
        }
    }

    /// The known result of `mutant`, if still valid: it was caught in this engine, or no existing probe caught it.
    pub fn settled(&self, mutant: &Mutant, number: u32) -> bool {
        let journal = self.journal.lock().expect("no thread panics while it holds this");
        let Some(entry) = journal
            .known(&mutant.name())
            .filter(|entry| entry.engine == self.engine)
        else {
            return false;
        };
        let held = |probe: &Probe| entry.held.contains(&probe.program.fingerprint) && entry.budget >= self.budget;
        entry.caught.is_some() || self.probes.iter().filter(|probe| concerns(probe, number)).all(held)
    }

    /// Tries all of `selected`, numbers of mutations, with `jobs` programs at a time; calls `done` for each.
    ///
    /// # Errors
    /// The first error of the trial itself.
    pub fn run(
        &self,
        mutants: &[Mutant],
        selected: &[u32],
        jobs: usize,
        done: &(dyn Fn(&Entry) + Sync),
    ) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let wrong = Mutex::new(None);
        std::thread::scope(|scope| {
            for job in 0..jobs {
                let scratch = self.scratch.join(format!("output-{job}"));
                let (next, wrong) = (&next, &wrong);
                scope.spawn(move || {
                    while let Some(&number) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mutant = &mutants[number as usize - 1];
                        let added = self.one(mutant, number, &scratch).and_then(|entry| {
                            done(&entry);
                            self.journal
                                .lock()
                                .expect("no thread panics while it holds this")
                                .add(entry)
                        });
                        if let Err(why) = added {
                            next.store(usize::MAX / 2, Ordering::Relaxed);
                            wrong.lock().expect("as above").get_or_insert(why);
                        }
                    }
                });
            }
        });
        wrong.into_inner().expect("all threads have ended").map_or(Ok(()), Err)
    }

    fn one(&self, mutant: &Mutant, number: u32, scratch: &Path) -> Result<Entry, String> {
        let begun = Instant::now();
        let name = mutant.name();
        let before = self.journal.lock().expect("as in `run`").known(&name).cloned();
        let same = |entry: &&Entry| entry.engine == self.engine && entry.budget >= self.budget;
        let same_engine = before.as_ref().filter(same);
        let mut held = same_engine.map_or(Vec::new(), |entry| entry.held.clone());
        let place = (mutant.file.clone(), mutant.function.clone());
        let mut order: Vec<usize> = Vec::new();
        if let Some(caught) = before.as_ref().and_then(|entry| entry.caught.as_ref()) {
            order.extend(self.probes.iter().position(|probe| probe.shown() == caught.probe));
        }
        let neighbours = self.catchers.lock().expect("as above").get(&place).cloned();
        order.extend(neighbours.into_iter().flatten().take(NEIGHBOURS));
        order.extend(self.by_yield());
        let mut probed = vec![false; self.probes.len()];
        let (mut count, mut spent, mut caught) = (0, 0.0, None);
        for index in order {
            let probe = &self.probes[index];
            let open = |&other: &usize| {
                let other_probe: &Probe = &self.probes[other];
                !probed[other]
                    && concerns(other_probe, number)
                    && !held.contains(&other_probe.program.fingerprint)
                    && spent + other_probe.baseline.seconds <= self.budget
            };
            if !open(&index) {
                continue;
            }
            let with = |other: &usize| {
                let other_probe = &self.probes[*other];
                *other == index
                    || probe.is_short() && other_probe.is_short() && other_probe.program.path == probe.program.path
            };
            let group: Vec<usize> = (0..self.probes.len()).filter(with).filter(open).collect();
            let probes: Vec<&Probe> = group.iter().map(|&one| &self.probes[one]).collect();
            group.iter().for_each(|&one| probed[one] = true);
            count += group.len();
            let seconds: f64 = probes.iter().map(|probe| probe.baseline.seconds).sum();
            spent += seconds;
            caught = probe::run_all(&probes, number, scratch)?;
            let catcher = caught
                .as_ref()
                .map(|caught| group[probes.iter().position(|one| one.shown() == caught.probe).unwrap_or(0)]);
            self.learn(&group, seconds, catcher);
            if let Some(catcher) = catcher {
                let mut catchers = self.catchers.lock().expect("as above");
                let here = catchers.entry(place).or_default();
                here.retain(|other| *other != catcher);
                here.insert(0, catcher);
                break;
            }
        }
        if caught.is_none() {
            held.extend(self.probes.iter().map(|probe| probe.program.fingerprint));
            held.sort_unstable();
            held.dedup();
        }
        Ok(Entry {
            mutant: name,
            engine: self.engine,
            caught,
            held,
            probes: count,
            budget: self.budget,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }
}

/// Whether a probe reaches a place where the mutation makes a difference. Up to there it runs the same.
pub fn concerns(probe: &Probe, number: u32) -> bool {
    probe.baseline.reached.binary_search(&number).is_ok()
}
