//! The minimal kernel in C (`examples/minimal-c`): its lines, and its builds by make and by CMake.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{c_library, child, workspace};

/// Files for the engine, and all files of the kernel except boot code and devices.
const GLUE: &str = "glue.c";
const REST: &str = "main.c";

fn folder() -> PathBuf {
    workspace::root().join("examples/minimal-c")
}

/// Lines of C: those for the engine, and all of the kernel except boot code and devices.
pub fn lines() -> Result<(usize, usize), String> {
    let count = |file: &str| {
        let path = folder().join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<usize, String>(code_lines(&text))
    };
    let glue = count(GLUE)?;
    Ok((glue, glue + count(REST)?))
}

/// Lines of C that are the machine's part of the two hooks: `this_cpu` and what follows it in `machine.h`.
pub fn machine_lines(arch: &str) -> Result<usize, String> {
    let path = folder().join(arch).join("machine.h");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let begin = text.find("static inline uint32_t this_cpu(void)");
    let begin = begin.ok_or_else(|| format!("{}: no this_cpu", path.display()))?;
    Ok(code_lines(&text[begin..]))
}

/// Lines that are neither empty nor comments. A comment is on separate lines, or ends its line.
fn code_lines(text: &str) -> usize {
    let mut in_comment = false;
    let is_code = |line: &&str| {
        let starts = line.starts_with("/*");
        let comment = in_comment || starts;
        in_comment = comment && !line.ends_with("*/");
        !line.is_empty() && !comment
    };
    text.lines().map(str::trim).filter(is_code).count()
}

/// Builds it by make, with the library, or without if `design` is `None`; returns the program.
pub fn build(arch: &str, design: Option<&str>, end: Instant) -> Result<PathBuf, String> {
    let out = out(&format!("{arch}-{}", design.unwrap_or("without")))?;
    let prefix = c_library::prefix(arch);
    let mut command = Command::new("make");
    command.args(["--silent", "--directory"]).arg(folder());
    command.args([format!("ARCH={arch}"), format!("CROSS_COMPILE={prefix}")]);
    command.arg(format!("OUT={}", out.display()));
    command.arg(design.map_or("GLUE=without.c".into(), |design| format!("DESIGN={design}")));
    child::run(&mut command, end).map_err(|why| format!("examples/minimal-c, {arch}: {why}"))?;
    Ok(out.join("kernel.elf"))
}

/// Builds it for x86-64 by CMake; returns the program.
pub fn build_by_cmake(end: Instant) -> Result<PathBuf, String> {
    let out = out("cmake")?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(folder()).arg("-B").arg(&out);
    configure.args(["-DSHOOTDOWN_ARCH=x86_64", "-DCMAKE_C_COMPILER=x86_64-linux-gnu-gcc"]);
    let failed = |why: String| format!("examples/minimal-c by CMake: {why}");
    child::output(&mut configure, end).map_err(failed)?;
    child::output(Command::new("cmake").arg("--build").arg(&out), end).map_err(failed)?;
    Ok(out.join("kernel.elf"))
}

fn out(name: &str) -> Result<PathBuf, String> {
    let built = Path::new(&workspace::built()).join("minimal-c").join(name);
    std::fs::create_dir_all(&built).map_err(|error| format!("{}: {error}", built.display()))?;
    built.canonicalize().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_lines_exclude_comments_and_blank_lines() {
        let text = "/* a\n *\n * b */\n\n#include <c.h>\n/* d */\nint e; /* f */\n    /* g\n       h */\n";
        assert_eq!(code_lines(text), 2);
    }

    #[test]
    fn book_has_the_counted_lines_of_code() {
        let book = std::fs::read_to_string(workspace::root().join("docs/src/embedding/c.md")).expect("it is there");
        let (glue, own) = lines().expect("sources are there");
        let row = format!("| `{GLUE}` | {glue} |");
        assert!(book.contains(&row), "{row}");
        assert!(book.contains(&format!("| `{REST}` | {} |", own - glue)), "{own} in all");
    }
}
