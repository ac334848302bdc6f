//! Reads assembly as LLVM writes it: the frame of each function, and the functions it calls.

use std::collections::{BTreeMap, BTreeSet};

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    X86,
    Arm,
    RiscV,
}

/// A function.
#[derive(Default, Debug)]
pub struct Function {
    /// Bytes that its instructions take from the stack: the sum of all of them, even if no single path executes all.
    pub frame: u64,
    /// The functions it calls, with its own frame still on the stack.
    pub calls: BTreeSet<String>,
    /// The functions it tail-calls.
    pub tails: BTreeSet<String>,
    /// Whether it has an indirect call.
    pub indirect: bool,
    /// An instruction that changes the stack pointer in a way that this reader does not know.
    pub unknown: Option<String>,
}

/// The functions of a file.
#[derive(Default)]
pub struct Functions {
    pub by_name: BTreeMap<String, Function>,
    /// Functions whose address is stored in data: the possible targets of an indirect call.
    pub pointed_at: BTreeSet<String>,
}

/// Reads a file.
pub fn functions(isa: Isa, text: &str) -> Functions {
    let mut all = Functions::default();
    let mut aliases = Vec::new();
    let mut current: Option<(String, Function)> = None;
    for line in text.lines().map(|line| without_comment(isa, line)) {
        if let Some(name) = line
            .strip_prefix(".type")
            .and_then(|rest| rest.trim().strip_suffix(",@function"))
        {
            current = Some((name.trim().to_string(), Function::default()));
        } else if line.starts_with(".size") {
            all.by_name.extend(current.take());
        } else if let Some((alias, name)) = line.split_once(" = ") {
            aliases.push((alias.trim().to_string(), name.trim().to_string()));
        } else if let Some(pointer) = pointer(line) {
            all.pointed_at.insert(pointer.to_string());
        } else if let Some((_, function)) = &mut current
            && !line.starts_with('.')
            && !line.ends_with(':')
        {
            function.read(isa, line);
        }
    }
    // Identical functions are merged.
    for (alias, name) in aliases {
        if all.by_name.contains_key(&name) {
            let tails = BTreeSet::from([name]);
            all.by_name.insert(
                alias,
                Function {
                    tails,
                    ..Function::default()
                },
            );
        }
    }
    all
}

fn without_comment(isa: Isa, line: &str) -> &str {
    let mark = match isa {
        Isa::X86 | Isa::RiscV => "#",
        Isa::Arm => "//",
    };
    line.split(mark).next().unwrap_or_default().trim()
}

/// The symbol whose address is stored by a line of data.
fn pointer(line: &str) -> Option<&str> {
    let (directive, value) = line.split_once('\t')?;
    let is_word = [".quad", ".xword", ".dword"].contains(&directive);
    (is_word && value.starts_with("_ZN")).then_some(value)
}

/// The effect of an instruction, as far as the stack is concerned.
#[derive(Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    Takes(u64),
    Calls(String),
    /// A tail call.
    Tail(String),
    CallsPointer,
    Unknown,
}

impl Function {
    fn read(&mut self, isa: Isa, line: &str) {
        let (name, operands) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let does = match isa {
            Isa::X86 => x86(name, operands.trim()),
            Isa::Arm => arm(name, operands.trim()),
            Isa::RiscV => riscv(name, operands.trim()),
        };
        match does {
            Does::Nothing => {}
            Does::Takes(bytes) => self.frame += bytes,
            Does::Calls(name) => drop(self.calls.insert(name)),
            Does::Tail(name) => drop(self.tails.insert(name)),
            Does::CallsPointer => self.indirect = true,
            Does::Unknown => self.unknown = Some(line.to_string()),
        }
    }
}

/// A jump: to a label within the function, or to another function.
fn jump(target: &str) -> Does {
    if target.starts_with('.') {
        Does::Nothing
    } else {
        Does::Tail(symbol(target))
    }
}

/// A symbol without the suffix that says how it is linked.
fn symbol(name: &str) -> String {
    name.split('@').next().unwrap_or(name).to_string()
}

fn number(text: &str) -> Option<i64> {
    let text = text.trim_start_matches(['#', '$']);
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|value| value as i64),
        None => text.parse().ok(),
    }
}

/// Bytes taken when `change` is added to the stack pointer.
fn added(change: Option<i64>) -> Does {
    match change {
        Some(change) if change < 0 => Does::Takes(change.unsigned_abs()),
        Some(_) => Does::Nothing,
        None => Does::Unknown,
    }
}

/// The most that aligning by `mask` can take from a stack pointer that is a multiple of `unit`.
fn aligned(mask: Option<i64>, unit: u64) -> Does {
    match mask {
        Some(mask) if mask < 0 => Does::Takes(mask.unsigned_abs().saturating_sub(unit)),
        _ => Does::Unknown,
    }
}

fn x86(name: &str, operands: &str) -> Does {
    match name {
        "callq" if operands.starts_with('*') => Does::CallsPointer,
        "callq" => Does::Calls(symbol(operands)),
        // An indirect jump: by a jump table, within the function.
        "jmp" | "jmpq" if operands.starts_with('*') => Does::Nothing,
        "jmp" | "jmpq" => jump(operands),
        "pushq" | "pushfq" => Does::Takes(8),
        _ => match operands.rsplit_once(", ").filter(|(_, changed)| *changed == "%rsp") {
            None => Does::Nothing,
            Some((by, _)) => match name {
                "subq" => added(number(by).map(|bytes| -bytes)),
                "addq" => added(number(by)),
                "andq" => aligned(number(by), 8),
                "cmpq" | "testq" => Does::Nothing,
                // Restored from the frame pointer, or to below it by the size of the registers pushed there.
                "movq" if by == "%rbp" => Does::Nothing,
                "leaq" if by.ends_with("(%rbp)") => Does::Nothing,
                _ => Does::Unknown,
            },
        },
    }
}

fn arm(name: &str, operands: &str) -> Does {
    let parts: Vec<&str> = operands.split(", ").collect();
    let shifted = |bytes: &str| {
        number(bytes).map(|bytes| {
            if operands.ends_with("lsl #12") {
                bytes << 12
            } else {
                bytes
            }
        })
    };
    match (name, parts.as_slice()) {
        ("bl", [target]) => Does::Calls(symbol(target)),
        ("blr", _) => Does::CallsPointer,
        ("b", [target]) => jump(target),
        // Writeback: the register is changed.
        _ if operands.ends_with("]!") && operands.contains("[sp, ") => {
            added(parts.last().and_then(|last| number(last.trim_end_matches("]!"))))
        }
        // Aligned by way of another register.
        ("sub", ["sp" | "x9", "sp", bytes, ..]) => added(shifted(bytes).map(|bytes| -bytes)),
        ("and", ["sp", "x9", mask]) => aligned(number(mask), 16),
        ("add", ["sp", "sp", ..]) | ("mov", ["sp", "x29"]) | ("sub", ["sp", "x29", _]) => Does::Nothing,
        ("cmp" | "cmn", _) => Does::Nothing,
        (_, ["sp", ..]) => Does::Unknown,
        _ => Does::Nothing,
    }
}

fn riscv(name: &str, operands: &str) -> Does {
    let parts: Vec<&str> = operands.split(", ").collect();
    match (name, parts.as_slice()) {
        ("call", [target]) => Does::Calls(symbol(target)),
        ("jalr", _) => Does::CallsPointer,
        ("tail" | "j", [target]) => jump(target),
        ("addi", ["sp", "sp", change]) => added(number(change)),
        ("andi", ["sp", "sp", mask]) => aligned(number(mask), 16),
        ("addi", ["sp", "s0", _]) => Does::Nothing,
        // Not destinations: stores and comparisons.
        ("sd" | "sw" | "sh" | "sb" | "beq" | "bne", _) => Does::Nothing,
        (_, ["sp", ..]) => Does::Unknown,
        _ => Does::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(isa: Isa, lines: &str) -> Function {
        let text = format!("\t.type\tf,@function\nf:\n{lines}\n\t.size\tf, 1\n");
        functions(isa, &text).by_name.remove("f").expect("it is there")
    }

    #[test]
    fn frame_size_sums_stack_instructions() {
        let x86 =
            "\tpushq\t%rbx\n\tandq\t$-64, %rsp\n\tsubq\t$24, %rsp\n\taddq\t$-128, %rsp\n\taddq\t$152, %rsp\n\tretq";
        assert_eq!(only(Isa::X86, x86).frame, 8 + 56 + 24 + 128);
        let arm = "\tstp\tx29, x30, [sp, #-32]!\n\
            \tsub\tx9, sp, #368\n\
            \tand\tsp, x9, #0xffffffffffffffc0\n\
            \tldp\tx1, x2, [sp], #32";
        assert_eq!(only(Isa::Arm, arm).frame, 32 + 368 + 48);
        assert_eq!(only(Isa::Arm, "\tsub\tsp, sp, #2, lsl #12").frame, 8192);
        let riscv =
            "\taddi\tsp, sp, -176\n\tsd\tra, 168(sp)\n\tandi\tsp, sp, -64\n\taddi\tsp, s0, -176\n\taddi\tsp, sp, 176";
        assert_eq!(only(Isa::RiscV, riscv).frame, 176 + 48);
    }

    #[test]
    fn unknown_stack_instructions_are_reported() {
        for (isa, line) in [
            (Isa::X86, "subq\t%rax, %rsp"),
            (Isa::X86, "movq\t%rax, %rsp"),
            (Isa::Arm, "mov\tsp, x9"),
            (Isa::RiscV, "sub\tsp, sp, a3"),
        ] {
            assert_eq!(only(isa, &format!("\t{line}")).unknown.as_deref(), Some(line));
        }
    }

    #[test]
    fn calls_and_tail_calls_are_distinguished() {
        let x86 = only(
            Isa::X86,
            "\tcallq\tg@PLT # a comment\n\tjmp\t.LBB0_1\n\tjmpq\t*%rax\n\tcallq\t*24(%rax)\n\tjmp\th",
        );
        assert_eq!(x86.calls, BTreeSet::from(["g".to_string()]));
        assert_eq!(x86.tails, BTreeSet::from(["h".to_string()]));
        assert!(x86.indirect && x86.unknown.is_none());
        let arm = only(Isa::Arm, "\tbl\tg\n\tb\t.LBB0_1\n\tb\th\n\tbr\tx9");
        assert!(arm.calls.contains("g") && arm.tails.contains("h") && !arm.indirect);
        let riscv = only(Isa::RiscV, "\tcall\tg\n\tj\t.LBB0_1\n\ttail\th\n\tjalr\ta0");
        assert!(riscv.calls.contains("g") && riscv.tails.contains("h") && riscv.indirect);
    }

    #[test]
    fn aliased_functions_and_function_pointers_are_found() {
        let text = "\t.type\tf,@function\nf:\n\tretq\n\t.size\tf, 1\ng = f\n\t.quad\t_ZN7closureE\n\t.quad\t8\n";
        let all = functions(Isa::X86, text);
        assert!(all.by_name["g"].tails.contains("f"));
        assert_eq!(all.pointed_at, BTreeSet::from(["_ZN7closureE".to_string()]));
    }
}
