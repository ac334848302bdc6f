//! The deepest call chain from a function.

use std::collections::BTreeMap;

use super::assembly::{Functions, Isa};

/// Stack assumed for a compiler routine, `memcpy` or a division of 128 bits.
const ROUTINE: u64 = 64;

/// The depth of the stack from a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deepest {
    /// The return addresses of this function and of those below it, on instruction sets whose calls push them.
    pub bytes: u64,
    /// The functions of the chain with their frames, this one first. A tail call releases the frame: 0.
    path: Vec<(String, u64)>,
}

impl Deepest {
    /// The functions of the chain, each with its frame; 0 if the next one was called as its last step.
    pub fn chain(&self) -> String {
        let parts = self.path.iter().map(|(name, frame)| format!("{} {frame}", short(name)));
        parts.collect::<Vec<_>>().join(" > ")
    }
}

/// Computes depths, with a cache.
pub struct Depths<'a> {
    functions: &'a Functions,
    /// Bytes that a call pushes.
    pushed: u64,
    known: BTreeMap<&'a str, Deepest>,
    /// The functions on the current path, to detect recursion.
    call_chain: Vec<&'a str>,
}

impl<'a> Depths<'a> {
    pub fn of(isa: Isa, functions: &'a Functions) -> Depths<'a> {
        Depths {
            functions,
            pushed: if isa == Isa::X86 { 8 } else { 0 },
            known: BTreeMap::new(),
            call_chain: Vec::new(),
        }
    }

    /// The depth from `name`.
    ///
    /// # Errors
    /// If functions are recursive, or an instruction on the way is not known.
    pub fn deepest(&mut self, name: &str) -> Result<Deepest, String> {
        let functions = self.functions;
        let Some((name, function)) = functions.by_name.get_key_value(name) else {
            return self.outside(name);
        };
        if let Some(known) = self.known.get(name.as_str()) {
            return Ok(known.clone());
        }
        if self.call_chain.contains(&name.as_str()) {
            return Err(format!("{} calls itself", short(name)));
        }
        if let Some(line) = &function.unknown {
            return Err(format!("unknown instruction in {}: {line}", short(name)));
        }
        self.call_chain.push(name);
        let mut below = Deepest {
            bytes: 0,
            path: Vec::new(),
        };
        let pointed_at = functions.pointed_at.iter().filter(|_| function.indirect);
        for callee in function.calls.iter().chain(pointed_at.filter(|name| is_closure(name))) {
            if !never_returns(callee) {
                below = deeper(below, self.deepest(callee)?);
            }
        }
        let mut result = below;
        result.bytes += self.pushed + function.frame;
        let mut frame = function.frame;
        // A tail call releases the frame first.
        for callee in function.tails.iter().filter(|name| !never_returns(name)) {
            let deepest = self.deepest(callee)?;
            if deepest.bytes > result.bytes {
                (result, frame) = (deepest, 0);
            }
        }
        result.path.insert(0, (name.clone(), frame));
        self.call_chain.pop();
        self.known.insert(name, result.clone());
        Ok(result)
    }

    /// The depth of a function that is not in the file. For a hook it is only the return address.
    fn outside(&self, name: &str) -> Result<Deepest, String> {
        let frame = match name {
            "memcpy" | "memmove" | "memset" | "memcmp" | "bcmp" | "__udivti3" => ROUTINE,
            hook if hook.starts_with("kernel_") || hook.starts_with("shootdown_hook_") => 0,
            _ => return Err(format!("{name} is called, but is not in the assembly")),
        };
        let path = vec![(name.to_string(), frame)];
        let bytes = self.pushed + frame;
        Ok(Deepest { bytes, path })
    }
}

fn deeper(one: Deepest, other: Deepest) -> Deepest {
    if other.bytes > one.bytes { other } else { one }
}

/// The possible targets of an indirect call: closures, some of which the engine passes down.
fn is_closure(name: &str) -> bool {
    name.contains("closure")
}

/// Whether it leads only to a panic, whose stack is not counted.
fn never_returns(name: &str) -> bool {
    ["panic", "unwrap_failed", "expect_failed", "slice_index", "index_fail"]
        .iter()
        .any(|part| name.contains(part))
}

/// The last component of a mangled path.
fn short(name: &str) -> &str {
    let Some(path) = name.strip_prefix("_ZN").and_then(|rest| rest.rsplit_once("17h")) else {
        return name;
    };
    let path = path.0.trim_end_matches("E");
    let digits = path.rfind(|char: char| char.is_ascii_digit());
    digits.map_or(path, |at| &path[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::assembly::functions;

    fn function(name: &str, lines: &str) -> String {
        format!("\t.type\t{name},@function\n{name}:\n{lines}\n\t.size\t{name}, 1\n")
    }

    fn bytes(isa: Isa, text: &str) -> Result<u64, String> {
        let functions = functions(isa, text);
        Depths::of(isa, &functions).deepest("f").map(|deepest| deepest.bytes)
    }

    #[test]
    fn stack_depth_is_of_the_deepest_chain_without_tail_call_frames() {
        let text = function("f", "\tsubq\t$100, %rsp\n\tcallq\tg\n\tcallq\tkernel_cpu\n\tjmp\th")
            + &function("g", "\tsubq\t$32, %rsp")
            + &function("h", "\tpushq\t%rbx");
        assert_eq!(bytes(Isa::X86, &text), Ok(8 + 100 + 8 + 32));
        let text = text.replace("$32", "$8").replace("pushq\t%rbx", "subq\t$300, %rsp");
        assert_eq!(bytes(Isa::X86, &text), Ok(8 + 300), "the jump's");
        assert_eq!(
            bytes(Isa::RiscV, &function("f", "\taddi\tsp, sp, -32\n\tcall\tkernel_cpu")),
            Ok(32)
        );
    }

    #[test]
    fn depth_skips_panics_and_follows_pointers_to_closures() {
        let text = function("f", "\tcallq\t_ZN9panickingE\n\tcallq\t*%rax")
            + &function("_ZN7closureE", "\tsubq\t$64, %rsp")
            + "\t.quad\t_ZN7closureE\n";
        assert_eq!(bytes(Isa::X86, &text), Ok(8 + 8 + 64));
    }

    #[test]
    fn recursion_and_unknown_callees_are_refused() {
        let circle = function("f", "\tcallq\tg") + &function("g", "\tcallq\tf");
        assert!(bytes(Isa::X86, &circle).expect_err("a circle").contains("calls itself"));
        assert!(bytes(Isa::X86, &function("f", "\tcallq\tg")).is_err(), "not there");
        assert!(
            bytes(Isa::Arm, &function("f", "\tmov\tsp, x9")).is_err(),
            "not understood"
        );
    }
}
