//! Turns instructions into functions: executed on their processor, recorded by tests on a host.

/// Functions, each of one instruction.
///
/// `run NAME = "text"` executes it; `write NAME = "text"` has a register operand `{}`; `read NAME = "text"` returns the
/// register `{}`; `pop NAME` does that through the stack; `pair NAME` has two register operands. A memory clobber keeps
/// the compiler from moving accesses across. Reordering by the processor depends on the instruction.
macro_rules! instructions {
    ($arch:tt: $($(#[$doc:meta])* $kind:ident $name:ident = $text:expr;)*) => {
        $(instructions!(@$kind $arch $(#[$doc])* $name $text);)*
    };
    (@run $arch:tt $(#[$doc:meta])* $name:ident $text:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() {
            #[cfg(all(target_arch = $arch, target_os = "none"))]
            // SAFETY: this module declares only barriers, invalidations and hints, which are harmless at any time.
            unsafe { core::arch::asm!($text, options(nostack, preserves_flags)) }
            #[cfg(not(all(target_arch = $arch, target_os = "none")))]
            crate::instructions::on_host::run($text);
        }
    };
    (@write $arch:tt $(#[$doc:meta])* $name:ident $text:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(value: u64) {
            #[cfg(all(target_arch = $arch, target_os = "none"))]
            // SAFETY: invalidations and interrupts are harmless for any operand. Loading a root is guarded by
            // `load_root`, the only caller of those instructions.
            unsafe { core::arch::asm!($text, in(reg) value, options(nostack, preserves_flags)) }
            #[cfg(not(all(target_arch = $arch, target_os = "none")))]
            crate::instructions::on_host::write($text, value);
        }
    };
    (@pair $arch:tt $(#[$doc:meta])* $name:ident $text:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(first: u64, second: u64) {
            #[cfg(all(target_arch = $arch, target_os = "none"))]
            // SAFETY: as for one operand.
            unsafe { core::arch::asm!($text, in(reg) first, in(reg) second, options(nostack, preserves_flags)) }
            #[cfg(not(all(target_arch = $arch, target_os = "none")))]
            crate::instructions::on_host::pair($text, first, second);
        }
    };
    (@pop $arch:tt $(#[$doc:meta])* $name:ident $text:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u64 {
            #[cfg(all(target_arch = $arch, target_os = "none"))]
            {
                let value;
                // SAFETY: as for `read`, and the stack is restored.
                unsafe { core::arch::asm!($text, out(reg) value, options(preserves_flags)) };
                value
            }
            #[cfg(not(all(target_arch = $arch, target_os = "none")))]
            crate::instructions::on_host::read($text)
        }
    };
    (@read $arch:tt $(#[$doc:meta])* $name:ident $text:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u64 {
            #[cfg(all(target_arch = $arch, target_os = "none"))]
            {
                let value;
                // SAFETY: reads a register, without side effects other than those stated.
                unsafe { core::arch::asm!($text, out(reg) value, options(nostack, preserves_flags)) };
                value
            }
            #[cfg(not(all(target_arch = $arch, target_os = "none")))]
            crate::instructions::on_host::read($text)
        }
    };
}

/// Replacement for instructions on a host.
#[cfg(all(not(target_os = "none"), not(test)))]
pub(crate) mod on_host {
    fn refuse(text: &str) -> ! {
        panic!("`{text}` is executed on bare metal only: build for a target without an operating system")
    }
    pub fn run(text: &str) {
        refuse(text)
    }
    pub fn write(text: &str, _value: u64) {
        refuse(text)
    }
    pub fn pair(text: &str, _first: u64, _second: u64) {
        refuse(text)
    }
    pub fn read(text: &str) -> u64 {
        refuse(text)
    }
}

/// Replacement for instructions in tests: a list, and registers that hold what was written to them.
#[cfg(all(not(target_os = "none"), test))]
pub(crate) mod on_host {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    thread_local! {
        static EXECUTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        static REGISTERS: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub fn run(text: &str) {
        EXECUTED.with_borrow_mut(|list| list.push(text.into()));
    }
    pub fn write(text: &str, value: u64) {
        run(&text.replace("{}", &format!("{value:#x}")));
    }
    pub fn pair(text: &str, first: u64, second: u64) {
        write(&text.replacen("{}", &format!("{first:#x}"), 1), second);
    }
    pub fn read(text: &str) -> u64 {
        REGISTERS.with_borrow(|registers| registers.get(text).copied().unwrap_or(0))
    }

    /// Sets the value that the instruction `text` reads.
    pub fn set(text: &str, value: u64) {
        REGISTERS.with_borrow_mut(|registers| registers.insert(text.into(), value));
    }

    /// The instructions that `body` executes.
    pub fn executed(body: impl FnOnce()) -> Vec<String> {
        EXECUTED.take();
        body();
        EXECUTED.take()
    }
}
