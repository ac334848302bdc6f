//! The instructions, one function each.

instructions! { "riscv64":
    /// Orders earlier memory accesses before later ones.
    run fence_rw_rw = "fence rw, rw";
    /// Orders earlier accesses to memory and devices before later ones.
    run fence_iorw_iorw = "fence iorw, iorw";
    /// Invalidates everything.
    run sfence_vma = "sfence.vma";
    /// Invalidates the leaf entries of an address under every ASID.
    write sfence_vma_address = "sfence.vma {}, zero";
    /// Invalidates an ASID, except global entries.
    write sfence_vma_asid = "sfence.vma zero, {}";
    /// Invalidates the non-global leaf entries of an address under an ASID.
    pair sfence_vma_both = "sfence.vma {}, {}";
    // By number: assemblers accept the names only for processors that have them.
    /// SFENCE.W.INVAL.
    run sfence_w_inval = ".4byte 0x18000073";
    /// SFENCE.INVAL.IR.
    run sfence_inval_ir = ".4byte 0x18100073";
    /// SINVAL.VMA, as SFENCE.VMA.
    run sinval_vma = ".insn r 0x73, 0, 0x0B, x0, x0, x0";
    write sinval_vma_address = ".insn r 0x73, 0, 0x0B, x0, {}, x0";
    write sinval_vma_asid = ".insn r 0x73, 0, 0x0B, x0, x0, {}";
    pair sinval_vma_both = ".insn r 0x73, 0, 0x0B, x0, {}, {}";
    read read_satp = "csrr {}, satp";
    write write_satp = "csrw satp, {}";
    /// Masks interrupts; returns the previous value.
    read mask_interrupts = "csrrci {}, sstatus, 2";
    read read_sstatus = "csrr {}, sstatus";
    write set_sstatus = "csrs sstatus, {}";
    /// SSIP.
    run clear_software_interrupt = "csrci sip, 2";
    /// PAUSE, a hint that other processors execute as a FENCE that orders nothing.
    run pause = ".4byte 0x0100000F";
}
