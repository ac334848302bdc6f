//! The CPUs and threads that shootdowns interrupt, the threads that send them, and the system calls.
//!
//! [`Interruptions`] is the table, for recordings and replays alike; [`VictimCounter`] fills one from a recording.

use crate::cause::Callers;
use crate::program::Caller;
use crate::{Cause, Event, Function, Reason, Resolver, What};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A kind of interruption: one CPU, one thread there, one sender, one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interruption {
    /// CPU that is interrupted.
    pub cpu: u32,
    /// Thread that it ran, 0 when idle; `None` when that is not known.
    pub thread: Option<u32>,
    /// Thread that sent the request.
    pub sender: u32,
    /// Why it was sent.
    pub cause: Cause,
}

/// Counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests to other CPUs, each of which is an interrupt unless it merges with an earlier one.
    pub interrupts: u64,
    /// Those of them that reached a CPU which had left the space.
    pub spurious: u64,
}

/// Interruptions, counted by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interruptions(BTreeMap<Interruption, Count>);

/// The grouping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The CPU that is interrupted.
    Cpu,
    /// The interrupted thread.
    Thread,
    /// The system call of the sender.
    Call,
}

/// The common property of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The CPU that is interrupted.
    Cpu(u32),
    /// The interrupted thread, 0 when idle, if known.
    Thread(Option<u32>),
    /// The system call of the sender.
    Call(Cause),
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The common property of its interruptions.
    pub key: Key,
    /// How many.
    pub count: Count,
    /// The thread that sent most of them.
    pub top_sender: u32,
    /// The number that this thread sent.
    pub top_sender_interrupts: u64,
}

impl Interruptions {
    /// Adds one.
    pub fn add(&mut self, kind: Interruption, is_spurious: bool) {
        let count = self.0.entry(kind).or_default();
        count.interrupts += 1;
        count.spurious += u64::from(is_spurious);
    }

    fn add_all(&mut self, more: Interruptions) {
        for (kind, count) in more.0 {
            let sum = self.0.entry(kind).or_default();
            sum.interrupts += count.interrupts;
            sum.spurious += count.spurious;
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().map(|count| count.interrupts).sum()
    }

    /// Grouped, those with the most interrupts first, then in the order of the keys.
    pub fn grouped(&self, by: By) -> Vec<Group> {
        let mut groups: BTreeMap<Key, (Count, BTreeMap<u32, u64>)> = BTreeMap::new();
        for (kind, count) in &self.0 {
            let key = match by {
                By::Cpu => Key::Cpu(kind.cpu),
                By::Thread => Key::Thread(kind.thread),
                By::Call => Key::Call(kind.cause),
            };
            let (sum, senders) = groups.entry(key).or_default();
            sum.interrupts += count.interrupts;
            sum.spurious += count.spurious;
            *senders.entry(kind.sender).or_default() += count.interrupts;
        }
        let mut groups: Vec<Group> = groups
            .into_iter()
            .map(|(key, (count, senders))| {
                // The lowest number among those that sent as many.
                let top = senders.into_iter().rev().max_by_key(|&(_, interrupts)| interrupts);
                let (top_sender, top_sender_interrupts) = top.unwrap_or_default();
                Group {
                    key,
                    count,
                    top_sender,
                    top_sender_interrupts,
                }
            })
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count.interrupts));
        groups
    }
}

/// What a recording contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Victims {
    /// The shootdowns that were actually queued.
    pub interruptions: Interruptions,
    /// Memory system calls; without any, no cause is known.
    pub calls: u64,
    names: HashMap<u32, String>,
}

impl Victims {
    /// A thread for people: its name and number.
    pub fn thread(&self, thread: Option<u32>) -> String {
        match thread {
            None | Some(Event::UNKNOWN_TASK) => "(not recorded)".to_string(),
            Some(0) => "(idle)".to_string(),
            Some(thread) => match self.names.get(&thread) {
                Some(name) => format!("{name}-{thread}"),
                None => format!("thread {thread}"),
            },
        }
    }
}

/// Counts while a recording is read. Memory: an entry for each thread, and for each kind of interruption.
#[derive(Debug, Default)]
pub struct VictimCounter {
    cpus: Vec<OnCpu>,
    callers: Callers,
    found: Victims,
    /// Calls of functions without a name, by address; which are shootdowns is known at the end.
    unnamed: HashMap<u64, Interruptions>,
}

#[derive(Debug, Default)]
struct OnCpu {
    /// Its running thread, by its newest line.
    thread: Option<u32>,
    caller: Caller,
    /// Why it sends its current requests.
    cause: Option<Cause>,
    /// Requests that it has not answered; at most one of each sender.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// CPU that sent it.
    from: u32,
    kind: Interruption,
    /// Address of its function, where that has no name.
    unnamed: Option<u64>,
}

impl VictimCounter {
    /// Takes the next event into account.
    pub fn add(&mut self, event: &Event<'_>) {
        self.names(event);
        let (cpu, task) = (event.cpu, event.task);
        self.cpu(cpu).thread = known(task);
        match event.what {
            What::Call {
                call, length, argument, ..
            } => {
                self.found.calls += 1;
                self.callers.enters(task, event.time_ns, call, length, argument);
            }
            What::Flush { pages, reason } => match reason {
                Reason::LocalSpace | Reason::Sent => {
                    if !self.cpu(cpu).caller.is_own_part(task, pages, reason) {
                        let cause = self.callers.cause(task, event.time_ns, pages);
                        self.cpu(cpu).cause = Some(cause);
                    }
                }
                Reason::Remote => self.answers(event, false),
                Reason::WrongCpu => self.answers(event, true),
                Reason::Local | Reason::TaskSwitch => {}
            },
            What::Queued {
                target,
                function: Function::Shootdown,
            } => self.sends(cpu, task, target, None),
            What::Queued {
                target,
                function: Function::Unnamed(address),
            } => self.sends(cpu, task, target, Some(address)),
            What::Switch { from, state, to } => {
                self.cpu(cpu).thread = Some(to);
                self.gives_up(cpu);
                if state.starts_with(['X', 'Z']) {
                    self.callers.ends(from);
                }
            }
            What::Exit => self.callers.ends(task),
            _ => {}
        }
    }

    /// The result, with the identities that `resolver` knows of functions without a name.
    pub fn finish(mut self, resolver: &Resolver) -> Victims {
        for cpu in std::mem::take(&mut self.cpus) {
            for waiting in cpu.waiting {
                self.count(waiting, false);
            }
        }
        for (address, interruptions) in self.unnamed {
            if resolver.function(address) == Some(Function::Shootdown) {
                self.found.interruptions.add_all(interruptions);
            }
        }
        self.found
    }

    fn count(&mut self, waiting: Waiting, is_spurious: bool) {
        let counted = match waiting.unnamed {
            None => &mut self.found.interruptions,
            Some(address) => self.unnamed.entry(address).or_default(),
        };
        counted.add(waiting.kind, is_spurious);
    }

    fn cpu(&mut self, cpu: u32) -> &mut OnCpu {
        let index = cpu as usize;
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, OnCpu::default);
        }
        &mut self.cpus[index]
    }

    fn names(&mut self, event: &Event<'_>) {
        let known = self.found.names.get(&event.task);
        if event.task != 0 && known.is_none_or(|name| name != event.name) {
            self.found.names.insert(event.task, event.name.to_string());
        }
    }

    fn sends(&mut self, cpu: u32, sender: u32, target: u32, unnamed: Option<u64>) {
        let cause = self.cpu(cpu).cause.unwrap_or(Cause::Other);
        let victim = self.cpu(target);
        let kind = Interruption {
            cpu: target,
            thread: victim.thread,
            sender,
            cause,
        };
        // The sender has waited for its previous request: that one was answered without a log entry.
        let before = victim.waiting.iter().position(|waiting| waiting.from == cpu);
        let unanswered = before.and_then(|index| victim.waiting.remove(index));
        victim.waiting.push_back(Waiting {
            from: cpu,
            kind,
            unnamed,
        });
        if let Some(waiting) = unanswered {
            self.count(waiting, false);
        }
    }

    /// The line of an answer names the thread that was interrupted.
    fn answers(&mut self, event: &Event<'_>, is_spurious: bool) {
        if let Some(mut waiting) = self.cpu(event.cpu).waiting.pop_front() {
            waiting.kind.thread = known(event.task);
            self.count(waiting, is_spurious);
        }
    }

    /// A CPU that waits for an answer does not switch: the request of `sender` was answered without a log entry.
    fn gives_up(&mut self, sender: u32) {
        let mut unanswered = Vec::new();
        for cpu in &mut self.cpus {
            unanswered.extend(cpu.waiting.iter().filter(|waiting| waiting.from == sender));
            cpu.waiting.retain(|waiting| waiting.from != sender);
        }
        unanswered.into_iter().for_each(|waiting| self.count(waiting, false));
    }
}

/// The task of a line, where it names one.
fn known(task: u32) -> Option<u32> {
    (task != Event::UNKNOWN_TASK).then_some(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Survey, text};

    /// A recording of one line each.
    fn victims(lines: &[&str]) -> Victims {
        let (mut counter, mut survey) = (VictimCounter::default(), Survey::default());
        let text: String = lines.iter().map(|line| format!(" {line}\n")).collect();
        let metadata = text::read(text.as_bytes(), |event| {
            counter.add(event);
            survey.add(event);
            Ok(())
        })
        .unwrap();
        counter.finish(&survey.finish(&metadata).1)
    }

    const LINES: [&str; 12] = [
        "b-9 ( 9) [002] d..2. 0.000001: tlb_flush: pages:1 reason:x (3)",
        "a-7 ( 7) [000] ..... 0.000010: sys_madvise(start: 0x7f0000200000, len_in: 0x8000, behavior: 4)",
        "a-7 ( 7) [000] ...1. 0.000011: tlb_flush: pages:8 reason:x (4)",
        "a-7 ( 7) [000] ...2. 0.000012: csd_queue_cpu: cpu=1 callsite=x func=flush_tlb_func csd=1",
        "a-7 ( 7) [000] ...2. 0.000012: csd_queue_cpu: cpu=2 callsite=x func=flush_tlb_func csd=1",
        "a-7 ( 7) [000] d..2. 0.000013: tlb_flush: pages:8 reason:x (3)",
        "a-8 ( 7) [001] d.h.. 0.000020: tlb_flush: pages:8 reason:x (1)",
        "c-3 ( 3) [002] d.h.. 0.000021: tlb_flush: pages:0 reason:x (5)",
        "a-7 ( 7) [000] ...1. 0.000031: tlb_flush: pages:1 reason:x (4)",
        "a-7 ( 7) [000] ...2. 0.000032: csd_queue_cpu: cpu=2 callsite=x func=flush_tlb_func csd=1",
        "a-7 ( 7) [000] ...2. 0.000042: csd_queue_cpu: cpu=3 callsite=x func=flush_tlb_func csd=1",
        "a-7 ( 7) [000] ...2. 0.000042: csd_queue_cpu: cpu=3 callsite=x func=another csd=1",
    ];

    #[test]
    fn answer_names_the_interrupted_thread() {
        let found = victims(&LINES);
        let by = |by| {
            let groups = found.interruptions.grouped(by);
            groups
                .iter()
                .map(|group| (group.key, group.count.interrupts, group.count.spurious))
                .collect::<Vec<_>>()
        };
        assert_eq!(found.interruptions.total(), 4);
        assert_eq!(
            by(By::Cpu),
            [(Key::Cpu(2), 2, 1), (Key::Cpu(1), 1, 0), (Key::Cpu(3), 1, 0)]
        );
        // CPU 2 did not answer the second time: its newest line counts. CPU 3 has no line at all.
        let of = |thread, count, spurious| (Key::Thread(thread), count, spurious);
        assert_eq!(by(By::Thread), [of(Some(3), 2, 1), of(None, 1, 0), of(Some(8), 1, 0)]);
        assert_eq!(
            by(By::Call),
            [
                (Key::Call(Cause::Call(Call::Madvise, 4)), 2, 1),
                (Key::Call(Cause::Other), 2, 0)
            ]
        );
        let names = [Some(8), Some(0), Some(77), None].map(|thread| found.thread(thread));
        assert_eq!(names, ["a-8", "(idle)", "thread 77", "(not recorded)"]);
    }

    #[test]
    fn unnamed_shootdown_functions_are_counted() {
        let lines = LINES.map(|line| line.replace("func=flush_tlb_func", "func=0xffffffff813424a0"));
        let found = victims(&lines.each_ref().map(String::as_str));
        assert_eq!(found, victims(&LINES));
    }

    #[test]
    fn group_names_its_top_sender() {
        let mut all = Interruptions::default();
        let kind = |sender| Interruption {
            cpu: 1,
            thread: Some(8),
            sender,
            cause: Cause::Other,
        };
        for sender in [5, 6, 7, 6, 7] {
            all.add(kind(sender), false);
        }
        let groups = all.grouped(By::Thread);
        assert_eq!((groups[0].top_sender, groups[0].top_sender_interrupts), (6, 2));
    }
}
