//! Segments, the task state with its stacks, and the table of interrupt gates.

use crate::frames;
use core::cell::UnsafeCell;
use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::idt::InterruptDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;

/// Stacks of gates that have their own: double faults, and NMIs, which also arrive while the stack is the user's
/// (before SYSRET).
const DOUBLE_FAULT_STACK: u16 = 0;
/// See [`DOUBLE_FAULT_STACK`].
const NMI_STACK: u16 = 1;
/// Words of the latter: it holds one frame, because the handler only returns.
const NMI_WORDS: usize = 16;

/// Selector of user code, in SYSRET's order: data first.
pub const USER_DATA: u16 = 0x18 | 3;
/// Selector of user code.
pub const USER_CODE: u16 = 0x20 | 3;

/// Descriptor table and task state of one CPU.
pub struct Tables {
    gdt: UnsafeCell<GlobalDescriptorTable<8>>,
    tss: UnsafeCell<TaskStateSegment>,
    nmi_stack: UnsafeCell<[u128; NMI_WORDS]>,
}

static IDT: Once<InterruptDescriptorTable> = Once::new();

unsafe extern "C" {
    /// 256 entry points, 16 bytes each.
    static trap_entries: u8;
    static nmi_entry: u8;
}

impl Tables {
    /// For its own CPU to load.
    pub fn new() -> Tables {
        Tables {
            gdt: UnsafeCell::new(GlobalDescriptorTable::empty()),
            tss: UnsafeCell::new(TaskStateSegment::new()),
            nmi_stack: UnsafeCell::new([0; NMI_WORDS]),
        }
    }

    /// Loads them, and the gates. Once, on the CPU that owns them.
    pub fn load(&'static self) {
        // SAFETY: only its own CPU calls this, once.
        let (gdt, tss) = unsafe { (&mut *self.gdt.get(), &mut *self.tss.get()) };
        let stack = || VirtAddr::new(frames::new_stack().expect("there is memory at boot"));
        tss.interrupt_stack_table[usize::from(DOUBLE_FAULT_STACK)] = stack();
        tss.interrupt_stack_table[usize::from(NMI_STACK)] = VirtAddr::from_ptr(self.nmi_stack.get().wrapping_add(1));
        tss.privilege_stack_table[0] = stack();
        let code = gdt.append(Descriptor::kernel_code_segment());
        let data = gdt.append(Descriptor::kernel_data_segment());
        let user_data = gdt.append(Descriptor::user_data_segment());
        let user_code = gdt.append(Descriptor::user_code_segment());
        debug_assert_eq!((user_data.0, user_code.0), (USER_DATA, USER_CODE));
        // SAFETY: the task state lives as long as the CPU.
        let task = gdt.append(unsafe { Descriptor::tss_segment_unchecked(self.tss.get()) });
        // SAFETY: the tables are never freed, and the selectors are of this table. GS is left alone.
        unsafe {
            gdt.load_unsafe();
            CS::set_reg(code);
            SS::set_reg(data);
            DS::set_reg(SegmentSelector(0));
            ES::set_reg(SegmentSelector(0));
            load_tss(task);
        }
        IDT.call_once(gates).load();
    }

    /// Sets the stack for entries from user mode. On the CPU itself, interrupts off.
    pub fn set_kernel_stack(&self, top: u64) {
        // SAFETY: a possibly unaligned field of a packed structure that only the processor reads.
        unsafe { (&raw mut (*self.tss.get()).privilege_stack_table[0]).write_unaligned(VirtAddr::new(top)) };
    }
}

fn gates() -> InterruptDescriptorTable {
    let mut idt = InterruptDescriptorTable::new();
    let entry = |vector: u8| VirtAddr::new(&raw const trap_entries as u64 + u64::from(vector) * 16);
    // SAFETY: each address is the entry point for that vector, which follows the processor's conventions.
    unsafe {
        idt.divide_error.set_handler_addr(entry(0));
        idt.debug.set_handler_addr(entry(1));
        idt.non_maskable_interrupt
            .set_handler_addr(VirtAddr::from_ptr(&raw const nmi_entry))
            .set_stack_index(NMI_STACK);
        idt.breakpoint.set_handler_addr(entry(3));
        idt.overflow.set_handler_addr(entry(4));
        idt.bound_range_exceeded.set_handler_addr(entry(5));
        idt.invalid_opcode.set_handler_addr(entry(6));
        idt.device_not_available.set_handler_addr(entry(7));
        idt.double_fault
            .set_handler_addr(entry(8))
            .set_stack_index(DOUBLE_FAULT_STACK);
        idt.invalid_tss.set_handler_addr(entry(10));
        idt.segment_not_present.set_handler_addr(entry(11));
        idt.stack_segment_fault.set_handler_addr(entry(12));
        idt.general_protection_fault.set_handler_addr(entry(13));
        idt.page_fault.set_handler_addr(entry(14));
        idt.x87_floating_point.set_handler_addr(entry(16));
        idt.alignment_check.set_handler_addr(entry(17));
        idt.simd_floating_point.set_handler_addr(entry(19));
        for vector in 32..=255 {
            idt[vector].set_handler_addr(entry(vector));
        }
    }
    idt
}
