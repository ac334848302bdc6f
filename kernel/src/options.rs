//! The command line: words of the form `key=value`.

use crate::hooks::{Hooks, WORDS};
use shootdown::{Design, Errata, Kernel, Machine, Policy};

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The workload.
    pub workload: &'static str,
    /// Names of the designs, separated by commas.
    design_names: &'static str,
    /// Name of the first design.
    pub design_name: &'static str,
    /// The first design.
    pub design: Design,
    /// Numbers of CPUs that take part, separated by commas.
    thread_counts: &'static str,
    /// The first of them; 0 for all.
    pub threads: usize,
    /// Every design with every number of threads, as a table.
    pub table: bool,
    /// The same seed gives the same run, if the machine allows it.
    pub seed: u64,
    /// Length of a measurement, in milliseconds of the machine; 0 for the default.
    pub ms: u64,
    /// Steps of each CPU under torture.
    pub steps: u64,
    /// Longest interval of random timer interrupts, in instructions (nanoseconds without `icount`); 0 for none.
    pub jitter: u64,
    /// log2 of the nanoseconds of one instruction in QEMU.
    pub icount: Option<u64>,
    /// PAUSEs between a change of an address space and its flush.
    pub linger: u64,
    /// Emulate broadcasts where the processor has none.
    pub emulate: bool,
    /// Bochs runs this: it is ended through another port than QEMU, and passes no status.
    pub bochs: bool,
    /// Name of the bug to select.
    pub fault: Option<&'static str>,
    /// Workarounds in addition to those of the processor.
    pub errata: Errata,
    /// Bits of ASIDs, fewer than the processor has; 0 for none.
    pub asid_bits: Option<u32>,
    /// Name of the paging mode.
    pub paging: Option<&'static str>,
    /// Tags that torture may use, first and last.
    pub tags: Option<(u16, u16)>,
}

impl Options {
    /// Reads the command line.
    ///
    /// # Errors
    /// The unknown word, and the expected form.
    pub fn read(line: &'static str) -> Result<Options, (&'static str, &'static str)> {
        let mut options = Options {
            workload: "hello",
            design_names: "ipi",
            design_name: "ipi",
            design: Policy::IPI.into(),
            thread_counts: "0",
            threads: 0,
            table: false,
            seed: 1,
            ms: 0,
            steps: 2000,
            jitter: 0,
            icount: None,
            linger: 0,
            emulate: true,
            bochs: false,
            fault: None,
            errata: Errata::NONE,
            asid_bits: None,
            paging: None,
            tags: None,
        };
        for word in line.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                return Err((word, "expected key=value"));
            };
            let number = || value.parse::<u64>().map_err(|_| (word, "expected a whole number"));
            match key {
                "workload" => options.workload = value,
                "design" => {
                    let mut designs = value.split(',').map(Design::preset);
                    options.design = designs.next().flatten().ok_or((word, "no such design"))?;
                    if designs.any(|design| design.is_none()) {
                        return Err((word, "no such design"));
                    }
                    options.design_names = value;
                    options.design_name = value.split(',').next().unwrap_or(value);
                    if let Some(only) = <Hooks as Kernel<WORDS>>::POLICY
                        && (options.design.policy != only || value.contains(','))
                    {
                        return Err((word, "built for another design alone"));
                    }
                }
                "threads" => {
                    let mut counts = value.split(',').map(str::parse::<usize>);
                    match counts.next() {
                        Some(Ok(first)) if counts.all(|count| count.is_ok()) => options.threads = first,
                        _ => return Err((word, "expected whole numbers")),
                    }
                    options.thread_counts = value;
                }
                "table" => options.table = number()? != 0,
                "seed" => options.seed = number()?,
                "ms" => options.ms = number()?,
                "steps" => options.steps = number()?,
                "jitter" => options.jitter = number()?,
                "icount" => match number()? {
                    shift @ 0..=10 => options.icount = Some(shift),
                    _ => return Err((word, "expected 0 to 10, as QEMU does")),
                },
                "linger" => options.linger = number()?,
                "emulate" => options.emulate = number()? != 0,
                "bochs" => options.bochs = number()? != 0,
                "fault" => options.fault = Some(value),
                "errata" => options.errata = errata(value).map_err(|why| (word, why))?,
                "asid_bits" => options.asid_bits = Some(number()? as u32),
                "paging" => options.paging = Some(value),
                "tags" => options.tags = Some(tags(value).ok_or((word, "expected two tags, such as 250-270"))?),
                _ => return Err((word, "no such option")),
            }
        }
        Ok(options)
    }

    /// `design`, with the workarounds of the command line in addition to its own.
    pub fn with_errata(&self, design: Design) -> Design {
        let own = design.machine.errata;
        design.policy.on(Machine {
            errata: either(own, self.errata),
            ..design.machine
        })
    }

    /// The machine, as reports name it.
    pub fn target(&self) -> &'static str {
        match (self.bochs, cfg!(target_arch = "aarch64"), cfg!(target_arch = "riscv64")) {
            (true, ..) => "bochs-x86_64",
            (_, true, _) => "qemu-aarch64",
            (_, _, true) => "qemu-riscv64",
            _ => "qemu-x86_64",
        }
    }

    /// The designs, with their names.
    pub fn designs(&self) -> impl Iterator<Item = (&'static str, Design)> {
        let names = self.design_names.split(',');
        names.filter_map(|name| Some((name, Design::preset(name)?)))
    }

    /// The numbers of threads.
    pub fn thread_counts(&self) -> impl Iterator<Item = usize> {
        self.thread_counts.split(',').filter_map(|count| count.parse().ok())
    }
}

/// The workarounds of either.
pub fn either(one: Errata, other: Errata) -> Errata {
    Errata {
        never_broadcast: one.never_broadcast || other.never_broadcast,
        interrupt_too: one.interrupt_too || other.interrupt_too,
        repeat: one.repeat || other.repeat,
    }
}

/// Names of workarounds, separated by commas.
fn errata(names: &str) -> Result<Errata, &'static str> {
    let mut errata = Errata::NONE;
    for name in names.split(',') {
        match name {
            "never-broadcast" => errata.never_broadcast = true,
            "interrupt-too" => errata.interrupt_too = true,
            "repeat" => errata.repeat = true,
            _ => return Err("no such workaround: there are never-broadcast, interrupt-too, repeat"),
        }
    }
    Ok(errata)
}

/// Two tags, of which the first is not 0 and the last not below it.
fn tags(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (0 < first && first <= last).then_some((first, last))
}
