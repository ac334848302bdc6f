//! The instructions, one function each.

instructions! { "aarch64":
    /// Makes earlier stores visible to every walker of the inner-shareable domain before any later TLBI.
    run dsb_ishst = "dsb ishst";
    /// Completes earlier accesses, walks and TLBIs in the inner-shareable domain.
    run dsb_ish = "dsb ish";
    /// Completes local TLBIs, and walks by this CPU.
    run dsb_nsh = "dsb nsh";
    /// Completes everything before it, including the read of an acknowledge register.
    run dsb_sy = "dsb sy";
    /// Later instructions are fetched again, and see changed system registers.
    run isb = "isb";
    /// Yields to another thread of the core, or to another CPU of an emulator.
    run yield_ = "yield";
    /// Invalidates everything on this CPU.
    run tlbi_vmalle1 = "tlbi vmalle1";
    /// Invalidates everything on all CPUs.
    run tlbi_vmalle1is = "tlbi vmalle1is";
    write tlbi_aside1 = "tlbi aside1, {}";
    write tlbi_aside1is = "tlbi aside1is, {}";
    write tlbi_vae1 = "tlbi vae1, {}";
    write tlbi_vae1is = "tlbi vae1is, {}";
    write tlbi_vale1 = "tlbi vale1, {}";
    write tlbi_vale1is = "tlbi vale1is, {}";
    write tlbi_vaae1is = "tlbi vaae1is, {}";
    write tlbi_vaale1is = "tlbi vaale1is, {}";
    write tlbi_vaale1 = "tlbi vaale1, {}";
    // By number: assemblers accept the names only for processors that have them.
    /// TLBI RVAE1IS.
    write tlbi_rvae1is = "sys #0, c8, c2, #1, {}";
    /// TLBI RVALE1IS.
    write tlbi_rvale1is = "sys #0, c8, c2, #5, {}";
    /// TLBI RVAAE1IS.
    write tlbi_rvaae1is = "sys #0, c8, c2, #3, {}";
    /// TLBI RVAALE1IS.
    write tlbi_rvaale1is = "sys #0, c8, c2, #7, {}";
    write write_ttbr0 = "msr ttbr0_el1, {}";
    read read_tcr = "mrs {}, tcr_el1";
    read read_midr = "mrs {}, midr_el1";
    read read_mpidr = "mrs {}, mpidr_el1";
    read read_isar0 = "mrs {}, id_aa64isar0_el1";
    read read_mmfr0 = "mrs {}, id_aa64mmfr0_el1";
    /// ICC_SGI1R_EL1.
    write write_sgi1r = "msr S3_0_C12_C11_5, {}";
    /// ICC_IAR1_EL1.
    read read_iar1 = "mrs {}, S3_0_C12_C12_0";
    /// ICC_EOIR1_EL1.
    write write_eoir1 = "msr S3_0_C12_C12_1, {}";
    read read_daif = "mrs {}, daif";
    write write_daif = "msr daif, {}";
    /// Masks interrupts.
    run mask_interrupts = "msr daifset, #2";
}
