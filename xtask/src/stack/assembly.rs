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
    /// Most bytes that its instructions take from the stack before they give them back.
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
    let mut current: Option<(String, Reader)> = None;
    for line in text.lines().map(|line| without_comment(isa, line)) {
        if let Some(name) = line
            .strip_prefix(".type")
            .and_then(|rest| rest.trim().strip_suffix(",@function"))
        {
            current = Some((name.trim().to_string(), Reader::default()));
        } else if line.starts_with(".size") {
            all.by_name
                .extend(current.take().map(|(name, read)| (name, read.function)));
        } else if let Some((alias, name)) = line.split_once(" = ") {
            aliases.push((alias.trim().to_string(), name.trim().to_string()));
        } else if let Some(pointer) = pointer(line) {
            all.pointed_at.insert(pointer.to_string());
        } else if let Some((_, reader)) = &mut current {
            match line.strip_suffix(':') {
                Some(label) => reader.arrives(label),
                None if !line.starts_with('.') => reader.read(isa, line),
                None => {}
            }
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
    Gives(u64),
    Calls(String),
    /// A tail call.
    Tail(String),
    CallsPointer,
    /// Jumps to a label, always or perhaps.
    Jumps(String),
    Branches(String),
    /// What follows is reached only by its label.
    Ends,
    Unknown,
}

/// Follows the depth of the stack through a function, line by line and from jumps to labels.
#[derive(Default)]
struct Reader {
    function: Function,
    /// Bytes taken at this line.
    depth: u64,
    /// Whether the previous instruction does not lead here.
    ended: bool,
    /// Bytes taken where labels were jumped to.
    at: BTreeMap<String, u64>,
}

impl Reader {
    /// At a label. One that only later lines, or a table of jumps, lead to: the most that was taken so far.
    fn arrives(&mut self, label: &str) {
        let jumped = self.at.get(label).copied();
        self.depth = match (self.ended, jumped) {
            (true, Some(depth)) => depth,
            (true, None) => self.function.frame,
            (false, depth) => self.depth.max(depth.unwrap_or(0)),
        };
        self.ended = false;
    }

    fn read(&mut self, isa: Isa, line: &str) {
        let (name, operands) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let does = match isa {
            Isa::X86 => x86(name, operands.trim()),
            Isa::Arm => arm(name, operands.trim()),
            Isa::RiscV => riscv(name, operands.trim()),
        };
        let function = &mut self.function;
        match does {
            Does::Nothing => {}
            Does::Takes(bytes) => {
                self.depth += bytes;
                function.frame = function.frame.max(self.depth);
            }
            Does::Gives(bytes) => self.depth = self.depth.saturating_sub(bytes),
            Does::Calls(name) => drop(function.calls.insert(name)),
            Does::Tail(name) => {
                function.tails.insert(name);
                self.ended = true;
            }
            Does::CallsPointer => function.indirect = true,
            Does::Jumps(label) => {
                self.leads_to(label);
                self.ended = true;
            }
            Does::Branches(label) => self.leads_to(label),
            Does::Ends => self.ended = true,
            Does::Unknown => function.unknown = Some(line.to_string()),
        }
    }

    fn leads_to(&mut self, label: String) {
        let depth = self.at.entry(label).or_default();
        *depth = self.depth.max(*depth);
    }
}

/// A jump: to a label within the function, or to another function.
fn jump(target: &str) -> Does {
    if target.starts_with('.') {
        Does::Jumps(target.to_string())
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

/// A conditional jump, whose last operand is the label.
fn branch(operands: &str) -> Does {
    let label = operands.rsplit(", ").next().unwrap_or(operands);
    Does::Branches(label.to_string())
}

/// Bytes taken or given back when `change` is added to the stack pointer.
fn added(change: Option<i64>) -> Does {
    match change {
        Some(change) if change < 0 => Does::Takes(change.unsigned_abs()),
        Some(change) => Does::Gives(change.unsigned_abs()),
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
        "jmp" | "jmpq" if operands.starts_with('*') => Does::Ends,
        "jmp" | "jmpq" => jump(operands),
        "retq" | "ud2" => Does::Ends,
        "pushq" | "pushfq" => Does::Takes(8),
        "popq" | "popfq" => Does::Gives(8),
        _ if name.starts_with('j') => branch(operands),
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
        ("ret" | "br" | "brk", _) => Does::Ends,
        ("cbz" | "cbnz" | "tbz" | "tbnz", _) => branch(operands),
        _ if name.starts_with("b.") => branch(operands),
        // Writeback: the register is changed.
        _ if operands.ends_with("]!") && operands.contains("[sp, ") => {
            added(parts.last().and_then(|last| number(last.trim_end_matches("]!"))))
        }
        // The same after a load.
        ("ldp" | "ldr", [.., "[sp]", bytes]) => added(number(bytes)),
        // Aligned by way of another register.
        ("sub", ["sp" | "x9", "sp", bytes, ..]) => added(shifted(bytes).map(|bytes| -bytes)),
        ("and", ["sp", "x9", mask]) => aligned(number(mask), 16),
        ("add", ["sp", "sp", bytes, ..]) => added(shifted(bytes)),
        ("mov", ["sp", "x29"]) | ("sub", ["sp", "x29", _]) => Does::Nothing,
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
        ("ret" | "jr" | "unimp", _) => Does::Ends,
        // Every name that begins so is that of a branch.
        _ if name.starts_with('b') => branch(operands),
        ("addi", ["sp", "sp", change]) => added(number(change)),
        ("andi", ["sp", "sp", mask]) => aligned(number(mask), 16),
        ("addi", ["sp", "s0", _]) => Does::Nothing,
        // Not destinations: stores.
        ("sd" | "sw" | "sh" | "sb", _) => Does::Nothing,
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
    fn frame_is_the_most_that_was_taken() {
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
    fn frame_follows_jumps_and_not_the_lines_after_a_return() {
        let calls =
            "\tpushq\t%rbx\n\tjne\t.LBB0_1\n\tpushq\t8(%rbx)\n\tcallq\tg\n\taddq\t$8, %rsp\n\tpopq\t%rbx\n\tretq\n";
        let again = calls.replace(".LBB0_1", ".LBB0_2");
        let again = again.trim_start_matches("\tpushq\t%rbx\n");
        let both = format!("{calls}.LBB0_1:\n{again}.LBB0_2:\n\tpushq\t%rax\n\tud2");
        assert_eq!(only(Isa::X86, &both).frame, 8 + 8, "arguments of one call at a time");
        let by_table = "\tpushq\t%rbx\n\tjmpq\t*%rax\n.LBB0_1:\n\tpopq\t%rbx\n\tretq\n.LBB0_2:\n\tpushq\t%rax\n\tud2";
        assert_eq!(
            only(Isa::X86, by_table).frame,
            8 + 8,
            "what a table leads to is taken to be as deep as any line"
        );
        let arm = "\tcbz\tx0, .LBB0_2\n\tstr\tx30, [sp, #-16]!\n\tbl\tg\n\tldr\tx30, [sp], #16\n\tret\n\
            .LBB0_2:\n\tsub\tsp, sp, #32\n\tbl\tg\n\tadd\tsp, sp, #32\n\tret";
        assert_eq!(only(Isa::Arm, arm).frame, 32);
        let riscv = "\tbeqz\ta0, .LBB0_2\n\taddi\tsp, sp, -16\n\tcall\tg\n\taddi\tsp, sp, 16\n\tret\n\
            .LBB0_2:\n\taddi\tsp, sp, -32\n\tcall\tg\n\taddi\tsp, sp, 32\n\tret";
        assert_eq!(only(Isa::RiscV, riscv).frame, 32);
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
