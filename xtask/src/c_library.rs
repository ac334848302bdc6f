//! The library for kernels in C, one object for each instruction set, as its Makefile fragment builds it
//! (`crates/shootdown-c/link/`). This checks its undefined and defined names and its sections, and measures it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets};
use elf::abi::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHN_UNDEF, STB_LOCAL};
use elf::endian::AnyEndian;

use super::stack::{self, Isa};
use super::{child, workspace};

/// Instruction sets, each with the prefix of its cross compiler and the Rust target that the fragment names.
pub const ARCHES: [(&str, &str, &str); 3] = [
    ("x86_64", "x86_64-linux-gnu-", "x86_64-unknown-none"),
    ("aarch64", "aarch64-linux-gnu-", "aarch64-unknown-none-softfloat"),
    ("riscv64", "riscv64-linux-gnu-", "riscv64imac-unknown-none-elf"),
];

/// Programs, each with its Debian package, for [`super::needs`].
pub const PACKAGES: [(&str, &str); 4] = [
    ("x86_64-linux-gnu-ld", "binutils"),
    ("make", "make"),
    ("cmake", "cmake"),
    ("pkg-config", "pkg-config"),
];

/// A build of the library.
struct Build {
    /// The one design, or empty for all.
    design: &'static str,
    /// The optimisation level.
    opt: &'static str,
    /// The limit of the code in bytes.
    limit: u64,
    /// The hooks that are called by name. The library then has the feature `instructions`. Empty: pointers.
    hooks: &'static str,
}

const BUILDS: [Build; 4] = [
    pointers("ipi", "s", 30 << 10),
    pointers("ipi", "3", 44 << 10),
    Build {
        hooks: "cpu send_ipi send_ipi_to",
        ..pointers("ipi", "3", 40 << 10)
    },
    pointers("", "3", 96 << 10),
];

const fn pointers(design: &'static str, opt: &'static str, limit: u64) -> Build {
    Build {
        design,
        opt,
        limit,
        hooks: "",
    }
}

impl Build {
    /// The first cell of its rows.
    fn name(&self) -> String {
        match (self.design, self.hooks) {
            ("", _) => "all".into(),
            (design, "") => design.into(),
            (design, _) => format!("{design}, hooks by name"),
        }
    }

    /// The name of its folder: builds with different settings need different ones.
    fn slug(&self) -> String {
        format!("{}-{}", self.name().replace(", ", "-").replace(' ', "-"), self.opt)
    }

    fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("SHOOTDOWN_DESIGN={}", self.design),
            format!("SHOOTDOWN_OPT={}", self.opt),
        ];
        if !self.hooks.is_empty() {
            settings.push(format!("SHOOTDOWN_HOOKS={}", self.hooks));
            settings.push("SHOOTDOWN_FEATURES=instructions".into());
        }
        settings
    }

    /// The names that the kernel supplies.
    fn supplied(&self) -> BTreeSet<String> {
        let hooks = self.hooks.split_whitespace().map(|hook| format!("{HOOK}{hook}"));
        hooks.chain([SUPPLIED.to_string()]).collect()
    }
}

/// Calls of C whose stack is measured, and the limits in bytes: of the library for one design, and of that for all.
const STACK: [(&str, u64, u64); 6] = [
    ("flush", 920, 1256),
    ("flush_kernel", 824, 1144),
    ("switch_to", 624, 960),
    ("on_ipi", 440, 1044),
    ("poll", 472, 824),
    ("engine_init", 512, 512),
];

/// The name that the kernel supplies in any case, and the beginning of those of hooks that are called by name.
const SUPPLIED: &str = "shootdown_panic";
const HOOK: &str = "shootdown_hook_";

/// Relocations of x86-64 that need a global offset table: R_X86_64_GOTPCREL, GOTPCRELX and REX_GOTPCRELX.
const GOT: [u32; 3] = [9, 41, 42];

/// Builds, checks and prints a table.
///
/// # Errors
/// A failed build, or everything wrong with the objects.
pub fn run(end: Instant) -> Result<(), String> {
    let calls = calls_of_the_header()?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["design", "optimised for", "instruction set", ".text, KiB", "limit, KiB"]);
    let mut stacks = Table::new();
    stacks.load_style(presets::NOTHING);
    stacks.set_header(["design", "arch"].into_iter().chain(STACK.map(|(call, ..)| call)));
    let mut wrong = Vec::new();
    for one in BUILDS {
        for (arch, ..) in ARCHES {
            let what = format!("{arch}, {}, {}", one.name(), one.opt);
            let out = folder().join(arch).join(one.slug());
            let assembly = out.join("shootdown.s");
            let mut settings = one.settings();
            settings.push(format!("SHOOTDOWN_ASSEMBLY={}", assembly.display()));
            let object = Object::read(&build(arch, &out, &settings, end)?)?;
            let problems = object.problems(&calls, &one.supplied());
            wrong.extend(problems.into_iter().map(|why| format!("{what}: {why}")));
            let kib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0);
            if object.code > one.limit {
                wrong.push(format!(
                    "{what}: {} KiB of code, limit {}",
                    kib(object.code),
                    kib(one.limit)
                ));
            }
            let aim = if one.opt == "s" { "size" } else { "speed" };
            table.add_row([one.name(), aim.into(), arch.into(), kib(object.code), kib(one.limit)]);
            if one.opt == "3" {
                let bytes = stack(arch, &assembly)?;
                wrong.extend(above_limits(&what, one.design, bytes));
                let cells = bytes.map(|bytes| bytes.to_string());
                stacks.add_row([one.name(), arch.to_string()].into_iter().chain(cells));
            }
        }
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("The library for kernels in C as one object, with all its calls\n{table}");
    for column in stacks.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\nBytes of stack that a call of it takes at most, its hooks not counted\n{stacks}");
    let linux = ["SHOOTDOWN_DESIGN=ipi".to_string(), "SHOOTDOWN_NO_GOT=1".to_string()];
    if Object::read(&build("x86_64", &folder().join("x86_64/no-got"), &linux, end)?)?.uses_got {
        wrong.push("x86_64, SHOOTDOWN_NO_GOT: it needs a global offset table".into());
    }
    wrong.extend(installed(end)?);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// The first part of the names of the cross compiler's programs.
pub fn prefix(arch: &str) -> &'static str {
    let mut arches = ARCHES.iter();
    arches
        .find(|(known, ..)| *known == arch)
        .map_or("", |(_, prefix, _)| prefix)
}

/// What each call of [`STACK`] takes.
fn stack(arch: &str, assembly: &Path) -> Result<[u64; STACK.len()], String> {
    let text = std::fs::read_to_string(assembly).map_err(|error| format!("{}: {error}", assembly.display()))?;
    let isa = match arch {
        "x86_64" => Isa::X86,
        "aarch64" => Isa::Arm,
        _ => Isa::RiscV,
    };
    let names = STACK.map(|(call, ..)| format!("shootdown_{call}"));
    stack::deepest(isa, &text, &names).map_err(|why| format!("{}: {why}", assembly.display()))
}

/// The calls that take more than they may.
fn above_limits(what: &str, design: &str, bytes: [u64; STACK.len()]) -> Vec<String> {
    let calls = STACK.into_iter().zip(bytes);
    let above = calls.filter_map(|((call, one, all), bytes)| {
        let limit = if design.is_empty() { all } else { one };
        (bytes > limit).then(|| format!("{what}: shootdown_{call} takes {bytes} bytes of stack, limit {limit}"))
    });
    above.collect()
}

/// The `make` command with these settings.
fn make(arch: &str, out: &Path, settings: &[String]) -> Command {
    let mut command = Command::new("make");
    command.args(["--no-print-directory", "--silent", "--file"]);
    command.arg(workspace::root().join("crates/shootdown-c/link/shootdown.mk"));
    command
        .arg(format!("SHOOTDOWN_ARCH={arch}"))
        .arg(format!("CROSS_COMPILE={}", prefix(arch)));
    command.arg(format!("SHOOTDOWN_OUT={}", out.display()));
    command.args(settings);
    command
}

/// The output directory.
fn folder() -> PathBuf {
    workspace::built().join("c-library")
}

/// Builds the object of an instruction set in that folder, and returns its path.
fn build(arch: &str, out: &Path, settings: &[String], end: Instant) -> Result<PathBuf, String> {
    let object = out.join("shootdown.o");
    child::run(make(arch, out, settings).arg(&object), end).map_err(|why| format!("shootdown.mk, {arch}: {why}"))?;
    Ok(object)
}

/// Installs for each instruction set and runs `pkg-config`. Returns what is wrong with its answers.
fn installed(end: Instant) -> Result<Vec<String>, String> {
    let prefix = folder().join("prefix");
    let mut wrong = Vec::new();
    for (arch, _, target) in ARCHES {
        let settings = [format!("PREFIX={}", prefix.display()), "SHOOTDOWN_DESIGN=ipi".into()];
        let out = folder().join(arch).join("installed");
        child::run(make(arch, &out, &settings).arg("shootdown-install"), end)?;
        let ask = |what: &[&str]| {
            let mut command = Command::new("pkg-config");
            command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
            child::output(command.args(what).arg(format!("shootdown-{arch}")), end)
        };
        let object = prefix.join("lib/shootdown").join(arch).join("shootdown.o");
        let include = prefix.join("include");
        let flags = format!("-I{} -DSHOOTDOWN_CPU_WORDS=1", include.display());
        for (printed, expected, file) in [
            (ask(&["--libs"])?, object.display().to_string(), object),
            (
                ask(&["--variable=rust_target"])?,
                target.into(),
                include.join("shootdown.h"),
            ),
        ] {
            if printed.trim() != expected || !file.exists() {
                wrong.push(format!(
                    "pkg-config, {arch}: {} where {expected} was expected",
                    printed.trim()
                ));
            }
        }
        let mut printed: Vec<String> = ask(&["--cflags"])?.split_whitespace().map(String::from).collect();
        printed.sort_by_key(|flag| !flag.starts_with("-I"));
        if printed.join(" ") != flags {
            wrong.push(format!(
                "pkg-config, {arch}: {} where {flags} was expected",
                printed.join(" ")
            ));
        }
    }
    Ok(wrong)
}

/// The functions that the header declares.
fn calls_of_the_header() -> Result<BTreeSet<String>, String> {
    let path = workspace::root().join("crates/shootdown-c/include/shootdown.h");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let words = text.split(|letter: char| !letter.is_alphanumeric() && !"_(".contains(letter));
    let names = words.filter_map(|word| word.split_once('(')).map(|(name, _)| name);
    let calls = names.filter(|name| name.starts_with("shootdown_") && *name != SUPPLIED && !name.starts_with(HOOK));
    Ok(calls.map(String::from).collect())
}

/// The contents of an object.
struct Object {
    /// Bytes in executable sections.
    code: u64,
    /// Sections that are loaded, executable or not.
    sections: BTreeSet<String>,
    defined: BTreeSet<String>,
    undefined: BTreeSet<String>,
    /// Names of local symbols, compiler routines included.
    local: BTreeSet<String>,
    uses_got: bool,
}

impl Object {
    fn read(path: &Path) -> Result<Object, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Object::parse(&bytes).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Object, String> {
        let wrong = |error: elf::ParseError| error.to_string();
        let file = elf::ElfBytes::<AnyEndian>::minimal_parse(bytes).map_err(wrong)?;
        let (Some(headers), Some(names)) = file.section_headers_with_strtab().map_err(wrong)? else {
            return Err("no sections".into());
        };
        let mut object = Object {
            code: 0,
            sections: BTreeSet::new(),
            defined: BTreeSet::new(),
            undefined: BTreeSet::new(),
            local: BTreeSet::new(),
            uses_got: false,
        };
        for header in headers.iter() {
            let flags = header.sh_flags;
            if flags & u64::from(SHF_ALLOC) != 0 && header.sh_size > 0 {
                let kind = match (flags & u64::from(SHF_EXECINSTR) != 0, flags & u64::from(SHF_WRITE) != 0) {
                    (true, _) => "x",
                    (_, true) => "w",
                    _ => "r",
                };
                let name = names.get(header.sh_name as usize).map_err(wrong)?;
                object.sections.insert(format!("{kind} {name}"));
                object.code += if kind == "x" { header.sh_size } else { 0 };
            }
            if header.sh_type == elf::abi::SHT_RELA {
                let mut relocations = file.section_data_as_relas(&header).map_err(wrong)?;
                object.uses_got |= relocations.any(|relocation| GOT.contains(&relocation.r_type));
            }
        }
        let (symbols, names) = file.symbol_table().map_err(wrong)?.ok_or("no symbols")?;
        for symbol in symbols.iter() {
            let name = names.get(symbol.st_name as usize).map_err(wrong)?.to_string();
            if name.is_empty() {
                continue;
            }
            if symbol.st_shndx == SHN_UNDEF {
                object.undefined.insert(name);
            } else if symbol.st_bind() == STB_LOCAL {
                object.local.insert(name);
            } else {
                object.defined.insert(name);
            }
        }
        Ok(object)
    }

    /// Everything that would break the build of a kernel.
    fn problems(&self, calls: &BTreeSet<String>, supplied: &BTreeSet<String>) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.undefined != *supplied {
            wrong.push(format!("undefined: {:?}", self.undefined));
        }
        let other: Vec<_> = self.defined.symmetric_difference(calls).collect();
        if !other.is_empty() {
            wrong.push(format!(
                "either no call of the header, or a call that is not there: {other:?}"
            ));
        }
        // Divisions of 128 bits, which kernels do not supply and whose code is large.
        let wide: Vec<_> = self.local.iter().filter(|name| is_wide_division(name)).collect();
        if !wide.is_empty() {
            wrong.push(format!("128-bit division: {wide:?}"));
        }
        let known = ["r .rodata", "x .text"];
        let sections: Vec<_> = self
            .sections
            .iter()
            .filter(|name| !known.contains(&name.as_str()))
            .collect();
        if !sections.is_empty() {
            wrong.push(format!("sections other than {known:?}: {sections:?}"));
        }
        wrong
    }
}

fn is_wide_division(name: &str) -> bool {
    ["__udivti3", "__divti3", "__umodti3", "__modti3", "__udivmodti4"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn unsuitable_objects_are_reported() {
        let calls = set(&["shootdown_flush"]);
        let good = || Object {
            code: 1,
            sections: set(&["r .rodata", "x .text"]),
            defined: calls.clone(),
            undefined: set(&[SUPPLIED]),
            local: set(&["memcpy"]),
            uses_got: false,
        };
        assert_eq!(good().problems(&calls, &set(&[SUPPLIED])), Vec::<String>::new());
        let bad = [
            Object {
                undefined: set(&[SUPPLIED, "__udivti3"]),
                ..good()
            },
            Object {
                local: set(&["__udivti3"]),
                ..good()
            },
            Object {
                defined: set(&["shootdown_flush", "init"]),
                ..good()
            },
            Object {
                defined: set(&[]),
                ..good()
            },
            Object {
                sections: set(&["x .text", "x .text.shootdown_flush"]),
                ..good()
            },
        ];
        for object in bad {
            assert_eq!(object.problems(&calls, &set(&[SUPPLIED])).len(), 1);
        }
    }

    #[test]
    fn stack_above_the_limit_of_its_build_is_reported() {
        let limits = STACK.map(|(_, one, _)| one);
        assert_eq!(above_limits("x86_64", "ipi", limits), Vec::<String>::new());
        assert_eq!(
            above_limits("x86_64", "ipi", limits.map(|limit| limit + 1)).len(),
            STACK.len()
        );
        // One limit is the same in both builds: a boot stack is no larger where the library has all designs.
        let above = above_limits("x86_64", "", limits.map(|limit| limit + 1));
        assert_eq!(above.len(), 1, "{above:?}");
        assert!(above[0].contains("shootdown_engine_init"), "{above:?}");
    }

    #[test]
    fn hooks_by_name_are_supplied_by_the_kernel() {
        let named = BUILDS.iter().find(|one| !one.hooks.is_empty()).expect("one such build");
        assert_eq!(
            named.supplied(),
            set(&[
                SUPPLIED,
                "shootdown_hook_cpu",
                "shootdown_hook_send_ipi",
                "shootdown_hook_send_ipi_to"
            ])
        );
    }

    #[test]
    fn header_declares_the_calls() {
        let calls = calls_of_the_header().expect("the header is there");
        assert!(calls.contains("shootdown_flush") && calls.contains("shootdown_engine_init"));
        assert!(!calls.contains(SUPPLIED));
    }
}
