//! What recording costs: a command alternately with and without `shootdown record`, and the ratios.
//!
//! ```sh
//! cargo build --release
//! cargo run --release -p shootdown-cli --example record_overhead -- 10 make -B -j8     (as root)
//! ```
//!
//! Prints, for each pair, wall time and CPU time with over without, and their medians. CPU time counts the recorder's own too,
//! and other programs disturb it less.

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
        let [pairs, command @ ..] = &arguments[..] else {
            return Err("usage: record_overhead PAIRS COMMAND...".into());
        };
        let pairs: usize = pairs.parse().map_err(|_| "expected how many pairs, for example 10")?;
        // The examples lie in a folder beside the program.
        let program = env::current_exe()?.with_file_name("").join("../shootdown");
        let file = env::temp_dir().join(format!("record-overhead-{}.parquet", std::process::id()));
        let mut recorder = vec![program.display().to_string(), "record".into(), "--json".into()];
        recorder.extend(["-o".into(), file.display().to_string(), "--".into()]);
        let recorded: Vec<_> = recorder.into_iter().chain(command.iter().cloned()).collect();

        let (mut walls, mut cpus) = (Vec::new(), Vec::new());
        run(command)?; // Not counted: it fills the caches.
        for pair in 0..pairs {
            // Which of the two is first changes, should the machine become faster or slower meanwhile.
            let (without, with) = if pair % 2 == 0 {
                let without = run(command)?;
                (without, run(&recorded)?)
            } else {
                let with = run(&recorded)?;
                (run(command)?, with)
            };
            walls.push(with.0 / without.0);
            cpus.push(with.1 / without.1);
            println!(
                "pair {:>2}: wall {:.3} s / {:.3} s = {:.3}, CPU {:.3} s / {:.3} s = {:.3}",
                pair + 1,
                with.0,
                without.0,
                walls[pair],
                with.1,
                without.1,
                cpus[pair]
            );
        }
        fs::remove_file(&file)?;
        println!(
            "with recording over without, median: wall {:.3}, CPU {:.3}",
            median(walls),
            median(cpus)
        );
        Ok(())
    }

    /// Wall and CPU seconds, of all processes that it starts.
    fn run(command: &[String]) -> Result<(f64, f64), Box<dyn Error>> {
        let (program, arguments) = command.split_first().ok_or("no command")?;
        let (begun, before) = (Instant::now(), children_seconds()?);
        let status = Command::new(Path::new(program))
            .args(arguments)
            .stdout(Stdio::null())
            .status();
        let status = status.map_err(|error| format!("{program}: {error}"))?;
        if !status.success() {
            return Err(format!("{program}: {status}").into());
        }
        Ok((begun.elapsed().as_secs_f64(), children_seconds()? - before))
    }

    /// CPU time of all children that have ended, and of theirs.
    fn children_seconds() -> Result<f64, Box<dyn Error>> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let words: Vec<_> = stat
            .rsplit_once(')')
            .ok_or("no name in /proc/self/stat")?
            .1
            .split_whitespace()
            .collect();
        // Fields 16 and 17: cutime and cstime, in ticks of which Linux shows a hundred a second.
        let ticks = words[13].parse::<f64>()? + words[14].parse::<f64>()?;
        Ok(ticks / 100.0)
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
