//! The process of each task, if the recording lacks it: inferred from the kernel's observed behaviour.

use super::evidence::{Evidence, Pair, Seen};
use super::lives::{Incarnation, Lives};
use super::{Processes, Rebuilt};
use crate::Event;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A replay requires that the processes explain at least this share of the observations. Assumed; recordings with
/// process numbers, which are checked against them in the tests, are above 0.99.
const LEAST_CONFIDENCE: f64 = 0.9;

/// Share of switches that may be inconsistent with the known state of their CPU. Above it the recording covers some
/// tasks only, and switches are no evidence about spaces. Assumed.
const MOST_BROKEN: f64 = 0.1;

/// The process of each task in each of its lives.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignment {
    of: HashMap<(u32, u32), u32>,
    lives: Lives,
}

impl Assignment {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The event with its process, if it has none of its own. Events are processed in order.
    pub(super) fn resolve<'t>(&mut self, event: Event<'t>) -> Event<'t> {
        let mut event = event;
        self.lives.add(&event);
        if event.process.is_none() && !self.of.is_empty() {
            event.process = self.of.get(&(event.task, self.lives.of(event.task))).copied();
        }
        event
    }
}

/// Groups of incarnations.
#[derive(Debug, Default)]
struct Groups(HashMap<Incarnation, Incarnation>);

impl Groups {
    fn of(&mut self, of: Incarnation) -> Incarnation {
        let mut root = of;
        while let Some(&parent) = self.0.get(&root) {
            root = parent;
        }
        let mut next = of;
        while let Some(parent) = self.0.get(&next).copied().filter(|&parent| parent != root) {
            self.0.insert(next, root);
            next = parent;
        }
        root
    }

    fn join(&mut self, (a, b): Pair) {
        let (a, b) = (self.of(a), self.of(b));
        if a != b {
            self.0.insert(a.max(b), a.min(b));
        }
    }
}

/// Groups tasks into processes, and returns the confidence.
pub(super) fn rebuild(evidence: &Evidence) -> (Assignment, Processes) {
    let switches = u64::from(usable_switches(evidence));
    let mut pairs: BTreeMap<Pair, Seen> = BTreeMap::new();
    let weighed = [
        (&evidence.switches, switches),
        (&evidence.requests, 1),
        (&evidence.created, 1000),
    ];
    for (seen, weight) in weighed {
        for (&pair, seen) in seen {
            let sum = pairs.entry(pair).or_default();
            sum.same += seen.same * weight;
            sum.other += seen.other * weight;
        }
    }
    pairs.retain(|&(a, b), _| {
        let kernel = |of: Incarnation| evidence.kernel_threads.contains(&of.task) && !evidence.users.contains(&of.task);
        !kernel(a) && !kernel(b)
    });
    let strangers = strangers(evidence, &pairs);
    pairs.retain(|(a, b), _| !strangers.contains(a) && !strangers.contains(b));
    let mut groups = Groups::default();
    for (&pair, seen) in &pairs {
        if seen.same > 2 * seen.other {
            groups.join(pair);
        }
    }
    let mut last: BTreeMap<(u32, u32), Incarnation> = BTreeMap::new();
    for &of in evidence.all() {
        let entry = last.entry((of.task, of.life)).or_insert(of);
        *entry = (*entry).max(of);
    }
    last.retain(|(task, _), of| {
        *task != 0 && *task != Event::UNKNOWN_TASK && !evidence.kernel_threads.contains(task) && !strangers.contains(of)
    });
    let (mut explained, mut contradicted) = (0, 0);
    for (&(a, b), seen) in &pairs {
        let same = groups.of(a) == groups.of(b);
        explained += if same { seen.same } else { seen.other };
        contradicted += if same { seen.other } else { seen.same };
    }
    let of = numbers(evidence, &last, &mut groups);
    let rebuilt = Rebuilt {
        tasks: of.len() as u64,
        processes: of.values().collect::<HashSet<_>>().len() as u64,
        explained,
        contradicted,
    };
    if explained == 0 || rebuilt.confidence() < LEAST_CONFIDENCE {
        return (Assignment::default(), Processes::Absent);
    }
    let lives = Lives::default();
    (Assignment { of, lives }, Processes::Rebuilt(rebuilt))
}

/// Whether switches are evidence about spaces: all tasks are recorded, and loads are logged.
fn usable_switches(evidence: &Evidence) -> bool {
    let all = (evidence.continued + evidence.broken).max(1) as f64;
    evidence.loads > 0 && evidence.broken as f64 / all <= MOST_BROKEN
}

/// Kernel tasks that are not identified otherwise: they never load a space, and follow tasks that do not share one.
fn strangers(evidence: &Evidence, pairs: &BTreeMap<Pair, Seen>) -> HashSet<Incarnation> {
    let proven = |of: Incarnation| evidence.users.contains(&of.task) || evidence.known.contains_key(&of);
    let mut groups = Groups::default();
    let mut beside: HashMap<Incarnation, Vec<Incarnation>> = HashMap::new();
    for (&(a, b), seen) in pairs {
        match (proven(a), proven(b)) {
            (true, true) if seen.same > 2 * seen.other => groups.join((a, b)),
            (false, true) if seen.same > 0 => beside.entry(a).or_default().push(b),
            (true, false) if seen.same > 0 => beside.entry(b).or_default().push(a),
            _ => {}
        }
    }
    let mut found = HashSet::new();
    for (of, near) in beside {
        let near: HashSet<_> = near.into_iter().map(|near| groups.of(near)).collect();
        if near.len() > 1 {
            found.insert(of);
        }
    }
    found
}

/// The number of each task's process: the recorded one where there is one, else that of the first of its tasks.
fn numbers(
    evidence: &Evidence,
    last: &BTreeMap<(u32, u32), Incarnation>,
    groups: &mut Groups,
) -> HashMap<(u32, u32), u32> {
    let mut number: HashMap<Incarnation, u32> = HashMap::new();
    for (&of, &process) in &evidence.known {
        number.insert(groups.of(of), process);
    }
    let mut taken: HashSet<u32> = number.values().copied().collect();
    let mut free = 1 << 30;
    let mut assigned = HashMap::new();
    for (&(task, life), &of) in last {
        let root = groups.of(of);
        let process = *number.entry(root).or_insert_with(|| {
            let mut own = task;
            while !taken.insert(own) {
                own = free;
                free += 1;
            }
            own
        });
        assigned.insert((task, life), process);
    }
    assigned
}
