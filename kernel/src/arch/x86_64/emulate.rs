//! INVLPGB and TLBSYNC on a processor that lacks them: an EMULATION, by IPIs, in the invalid-opcode handler.
//!
//! The kernel executes the real bytes with the real operands. The handler decodes RAX, ECX and EDX as the processor
//! would and carries the operation out here. It puts it in the mailbox of every other CPU that is up, interrupts those,
//! and returns. This is asynchronous: TLBSYNC waits for the posts of this CPU. If the processor has no tags, a flush of
//! one tag covers all (more, never less: C6).
//!
//! Unlike the processor's, these broadcasts can be masked. So every waiter reads its mail. A CPU with interrupts off
//! must wait only through [`Bare`](crate::facade::Bare) or for a short lock.

use super::invalidate::all_non_global;
use super::traps::{Frame, MAIL};
use super::{controller, features, interrupts};
use crate::cpu::{self, Cpu};
use crate::invalidate;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shootdown::{Facade, Local, Stride, Tag};
use shootdown_arch::x86_64::AddressWidth;
use shootdown_arch::x86_64::invlpgb::{INVLPGB_OPCODE, Invlpgb, InvlpgbLimits, Operands, TLBSYNC_OPCODE};

/// Messages that one CPU can have pending. Beyond that, everything is flushed there instead (C6).
const LETTERS: usize = 16;

/// Pages of one emulated instruction: processors commonly report 7 extra pages.
pub fn limits() -> InvlpgbLimits {
    InvlpgbLimits::from_cpuid(7)
}

/// Pending messages of one CPU. They are counted and taken in order; a slot holds the three registers.
pub struct Mail {
    /// Held by the CPU that writes a message, and by the one that reads; never during a wait.
    busy: AtomicBool,
    letters: [[AtomicU64; 2]; LETTERS],
    /// Messages written, messages carried out.
    posted: AtomicU64,
    done: AtomicU64,
    overflowed: AtomicBool,
    /// Whether it receives mail.
    attached: AtomicBool,
}

impl Mail {
    /// An empty box of a CPU that is not attached.
    pub const fn new() -> Mail {
        Mail {
            busy: AtomicBool::new(false),
            letters: [const { [const { AtomicU64::new(0) }; 2] }; LETTERS],
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            overflowed: AtomicBool::new(false),
            attached: AtomicBool::new(false),
        }
    }

    /// From here on it receives mail. Call it before the CPU flushes everything on its way online.
    pub fn attach(&self) {
        self.attached.store(true, Ordering::SeqCst);
    }

    /// From here on it receives none, and no CPU waits for it. Call it when the CPU uses no cached translation any
    /// longer.
    pub fn detach(&self) {
        self.attached.store(false, Ordering::SeqCst);
    }

    /// Interrupts are off.
    fn locked<T>(&self, body: impl FnOnce() -> T) -> T {
        while self.busy.swap(true, Ordering::Acquire) {
            crate::time::relax();
        }
        let result = body();
        self.busy.store(false, Ordering::Release);
        result
    }
}

/// Handles an invalid opcode: returns whether it was one of the two instructions, which is then carried out.
pub fn invalid_opcode(frame: &mut Frame) -> bool {
    if frame.is_from_user() {
        return false;
    }
    // SAFETY: kernel code, of which the processor has just fetched at least three bytes: it decoded a two-byte opcode
    // and its ModRM. Otherwise the read stays within the image.
    let opcode = unsafe { *(frame.rip as *const [u8; 3]) };
    match opcode {
        INVLPGB_OPCODE => {
            let operands = Operands {
                rax: frame.rax,
                ecx: frame.rcx as u32,
                edx: frame.rdx as u32,
            };
            match Invlpgb::decode(operands, limits(), AddressWidth::Bits48) {
                Ok(what) => broadcast(cpu::cpu(), what, operands),
                Err(_) => return false,
            }
        }
        TLBSYNC_OPCODE => {
            // The processor's waits keep interrupts on, if they are.
            if frame.interrupts_were_on() {
                interrupts::enable();
            }
            synchronise(cpu::cpu());
            interrupts::disable();
        }
        _ => return false,
    }
    frame.rip += 3;
    true
}

fn broadcast(me: &Cpu, what: Invlpgb, operands: Operands) {
    carry_out(me, what);
    for other in cpu::all() {
        if other.id == me.id || !other.local.mail.attached.load(Ordering::SeqCst) {
            continue;
        }
        let mail = &other.local.mail;
        let first = mail.locked(|| {
            let (posted, done) = (mail.posted.load(Ordering::Relaxed), mail.done.load(Ordering::Relaxed));
            if posted - done >= LETTERS as u64 {
                mail.overflowed.store(true, Ordering::Relaxed);
            } else {
                let [address, rest] = &mail.letters[posted as usize % LETTERS];
                address.store(operands.rax, Ordering::Relaxed);
                rest.store(
                    u64::from(operands.ecx) << 32 | u64::from(operands.edx),
                    Ordering::Relaxed,
                );
            }
            mail.posted.store(posted + 1, Ordering::Release);
            posted == done
        });
        // A CPU that finds messages there leaves the interrupt to the sender of the first.
        if first {
            controller::send([other.id], MAIL);
        }
    }
}

/// Waits until every other CPU has carried out all messages posted to it so far, which includes those of this one.
fn synchronise(me: &Cpu) {
    for other in cpu::all() {
        let mail = &other.local.mail;
        let goal = mail.posted.load(Ordering::Acquire);
        // Acquire: pairs with the release in `take_mail`.
        let done = || mail.done.load(Ordering::Acquire) >= goal || !mail.attached.load(Ordering::SeqCst);
        if other.id != me.id {
            crate::facade::Bare::wait_until(done);
        }
    }
}

/// Carries out all messages in this CPU's box. Interrupts are off.
pub fn take_mail(me: &Cpu) {
    let mail = &me.local.mail;
    if mail.posted.load(Ordering::Relaxed) == mail.done.load(Ordering::Relaxed) {
        return;
    }
    mail.locked(|| {
        let (done, posted) = (mail.done.load(Ordering::Relaxed), mail.posted.load(Ordering::Relaxed));
        if mail.overflowed.swap(false, Ordering::Relaxed) {
            invalidate::here(me, Local::All);
        } else {
            for letter in done..posted {
                let [address, rest] = &mail.letters[letter as usize % LETTERS];
                let rest = rest.load(Ordering::Relaxed);
                let operands = Operands {
                    rax: address.load(Ordering::Relaxed),
                    ecx: (rest >> 32) as u32,
                    edx: rest as u32,
                };
                match Invlpgb::decode(operands, limits(), AddressWidth::Bits48) {
                    Ok(what) => carry_out(me, what),
                    Err(_) => invalidate::here(me, Local::All),
                }
            }
        }
        // Release: carried out, then reported.
        mail.done.store(posted, Ordering::Release);
    });
}

/// Reads this CPU's mail in the middle of a wait.
#[inline]
pub fn poll() {
    let me = cpu::cpu();
    if me.local.mail.posted.load(Ordering::Relaxed) != me.local.mail.done.load(Ordering::Relaxed) {
        interrupts::without_interrupts(|| take_mail(cpu::cpu()));
    }
}

fn carry_out(me: &Cpu, what: Invlpgb) {
    let has_tags = features::get().processor.has_tags();
    match (what.page_range(), what.tag()) {
        // Under every tag: INVLPG reaches the loaded one and global entries only.
        (Some(_), None) if has_tags => invalidate::here(me, Local::All),
        (Some(pages), tag) => {
            let (first, step) = (pages.address().get(), pages.stride().bytes());
            for index in 0..u64::from(pages.count().get()) {
                let (address, stride) = (first.wrapping_add(index * step), Stride::Size4K);
                let page = match tag {
                    Some(tag) if has_tags => Local::Page {
                        address,
                        stride,
                        tag: Tag(tag.get()),
                        leaf_only: false,
                    },
                    _ => Local::Kernel { address, stride },
                };
                invalidate::here(me, page);
            }
        }
        (None, Some(tag)) if has_tags => invalidate::here(me, Local::Tag(Tag(tag.get()))),
        (None, _) if what.includes_global() => invalidate::here(me, Local::All),
        (None, _) => all_non_global(),
    }
}
