//! What the command line asks for: words of the form `key=value`.

use shootdown::Design;

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What to run.
    pub workload: &'static str,
    /// Name of the design.
    pub design_name: &'static str,
    /// The design.
    pub design: Design,
    /// CPUs that take part; 0 for all.
    pub threads: usize,
    /// The same seed gives the same run, where the machine allows it.
    pub seed: u64,
    /// Length of a measurement, in milliseconds of the machine; 0 for the default.
    pub ms: u64,
    /// Steps of each CPU under torture.
    pub steps: u64,
    /// Longest interval of random timer interrupts, in instructions (nanoseconds without `icount`); 0 for none.
    pub jitter: u64,
    /// log2 of the nanoseconds that QEMU takes an instruction to last.
    pub icount: Option<u64>,
    /// Emulate broadcasts where the processor has none.
    pub emulate: bool,
    /// Name of the bug to switch on.
    pub fault: Option<&'static str>,
}

impl Options {
    /// Reads the command line.
    ///
    /// # Errors
    /// The word that is not understood, and what was expected.
    pub fn read(line: &'static str) -> Result<Options, (&'static str, &'static str)> {
        let mut options = Options {
            workload: "hello",
            design_name: "ipi",
            design: Design::IPI,
            threads: 0,
            seed: 1,
            ms: 0,
            steps: 2000,
            jitter: 0,
            icount: None,
            emulate: true,
            fault: None,
        };
        for word in line.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                return Err((word, "expected key=value"));
            };
            let number = || value.parse::<u64>().map_err(|_| (word, "expected a whole number"));
            match key {
                "workload" => options.workload = value,
                "design" => {
                    options.design_name = value;
                    options.design = Design::preset(value).ok_or((word, "no such design"))?;
                    if cfg!(feature = "ipi-only") && options.design != Design::IPI {
                        return Err((word, "built for design=ipi alone"));
                    }
                }
                "threads" => options.threads = number()? as usize,
                "seed" => options.seed = number()?,
                "ms" => options.ms = number()?,
                "steps" => options.steps = number()?,
                "jitter" => options.jitter = number()?,
                "icount" => match number()? {
                    shift @ 0..=10 => options.icount = Some(shift),
                    _ => return Err((word, "expected 0 to 10, as QEMU does")),
                },
                "emulate" => options.emulate = number()? != 0,
                "fault" => options.fault = Some(value),
                _ => return Err((word, "no such option")),
            }
        }
        Ok(options)
    }
}
