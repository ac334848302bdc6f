//! The overhead of recording: a command alternately with and without `shootdown record`, and the ratios.
//!
//! ```sh
//! cargo build --release
//! cargo run --release -p shootdown-cli --example record_overhead -- 10 make -B -j8     (as root)
//! ```
//!
//! Prints, for each pair, three ratios, with over without, and their medians: the duration of the command itself; the
//! whole duration, including making and removing the trace instance; and CPU time, of the command, its children and the
//! recorder, which other programs disturb least. `--faults` before PAIRS records page faults too.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("recording needs Linux");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::Instant;
    use std::{env, fs};

    pub fn main() -> Result<(), Box<dyn Error>> {
        let arguments: Vec<_> = env::args().skip(1).collect();
        let (more, arguments) = match arguments.split_first() {
            Some((first, rest)) if first == "--faults" => (Some(first.clone()), rest),
            _ => (None, &arguments[..]),
        };
        let [pairs, command @ ..] = arguments else {
            return Err("usage: record_overhead [--faults] PAIRS COMMAND...".into());
        };
        let pairs: usize = pairs.parse().map_err(|_| "expected how many pairs, for example 10")?;
        // The examples lie in a folder beside the program.
        let program = env::current_exe()?.with_file_name("").join("../shootdown");
        let file = env::temp_dir().join(format!("record-overhead-{}.parquet", std::process::id()));
        let mut recorder = vec![program.display().to_string(), "record".into(), "--json".into()];
        recorder.extend(more);
        recorder.extend(["-o".into(), file.display().to_string(), "--".into()]);
        let recorded: Vec<_> = recorder.into_iter().chain(command.iter().cloned()).collect();

        let mut ratios: [Vec<f64>; 3] = Default::default();
        run(command, false)?; // Not counted: it fills the caches.
        for pair in 0..pairs {
            // The order alternates, in case the machine becomes faster or slower meanwhile.
            let (without, with) = if pair % 2 == 0 {
                let without = run(command, false)?;
                (without, run(&recorded, true)?)
            } else {
                let with = run(&recorded, true)?;
                (run(command, false)?, with)
            };
            let mut line = format!("pair {:>2}:", pair + 1);
            for (index, name) in NAMES.iter().enumerate() {
                let ratio = with[index] / without[index];
                ratios[index].push(ratio);
                line.push_str(&format!(
                    " {name} {:.3} s / {:.3} s = {ratio:.3}",
                    with[index], without[index]
                ));
            }
            println!("{line}");
        }
        fs::remove_file(&file)?;
        let medians: Vec<_> = NAMES
            .iter()
            .zip(ratios)
            .map(|(name, ratios)| format!("{name} {:.3}", median(ratios)))
            .collect();
        println!("with recording over without, median: {}", medians.join(", "));
        Ok(())
    }

    /// Measurements of a run.
    const NAMES: [&str; 3] = ["command", "all", "CPU"];

    /// Seconds of the command itself, of everything, and of CPU time of all processes that it starts.
    fn run(command: &[String], recorder: bool) -> Result<[f64; 3], Box<dyn Error>> {
        let (program, arguments) = command.split_first().ok_or("no command")?;
        let (begun, before) = (Instant::now(), children_seconds()?);
        let output = Command::new(Path::new(program))
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{program}: {}", output.status).into());
        }
        let all = begun.elapsed().as_secs_f64();
        let own = if recorder {
            let summary: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            summary["command_seconds"]
                .as_f64()
                .ok_or("the recorder does not say how long the command took")?
        } else {
            all
        };
        Ok([own, all, children_seconds()? - before])
    }

    /// CPU time of all ended children, and of theirs.
    fn children_seconds() -> Result<f64, Box<dyn Error>> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let words: Vec<_> = stat
            .rsplit_once(')')
            .ok_or("no name in /proc/self/stat")?
            .1
            .split_whitespace()
            .collect();
        // Fields 16 and 17: cutime and cstime, in ticks, of which Linux shows a hundred a second.
        let ticks = words[13].parse::<f64>()? + words[14].parse::<f64>()?;
        Ok(ticks / 100.0)
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
