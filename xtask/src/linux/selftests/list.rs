//! The kernel's own tests, in the order and with the arguments of its `tools/testing/selftests/mm/run_vmtests.sh`, and
//! those of x86.

/// A line of the plan.
pub enum Line {
    /// A setting of the kernel, for the tests behind it.
    Setting(&'static str),
    /// A test with its arguments, and its time limit in seconds of the guest's clock: 10⁹ instructions each, of all
    /// CPUs together, which take the emulator some ten seconds.
    Test(&'static str, u32),
}
use Line::{Setting, Test};

/// Folders of tests, with the arguments of `make`. The tests for 32 bits need a compiler and libraries for both, and
/// IA32 emulation. `ldt_gdt` and `ptrace_syscall` are built only where the compiler can do both, although they have a
/// version for 64 bits.
pub const FOLDERS: [(&str, &[&str]); 2] = [("mm", &["CAN_BUILD_I386=0"]), ("x86", &["CAN_BUILD_I386=1", "all_64"])];

/// Static programs. In 6.12.117 `khugepaged` lacks a header that has `KSFT_SKIP`; the value is that of the others.
pub const EXTRA_CFLAGS: &str = "-static -w -DKSFT_SKIP=4";

/// What is not run, and why.
pub const LEFT_OUT: [(&str, &str); 9] = [
    ("x86/*_32", "32 bits: needs IA32 emulation, and a compiler for both"),
    ("mm/charge_reserved_hugetlb.sh", "needs control groups"),
    ("mm/hugetlb_reparenting_test.sh", "needs control groups"),
    ("mm/test_vmalloc.sh", "needs a module"),
    ("mm/hugetlb-soft-offline", "destructive, needs MEMORY_FAILURE"),
    ("mm/hugetlb-read-hwpoison", "destructive, needs MEMORY_FAILURE"),
    ("mm/write_to_hugetlbfs", "a part of charge_reserved_hugetlb.sh"),
    (
        "x86/sysret_ss_attrs_64",
        "QEMU 7.2 reads the stack of its far return as if the kernel did: Linux as it is panics",
    ),
    (
        "mm/migration",
        "20 s for each of its parts, on all CPUs: too long when emulated",
    ),
];

/// 256 MiB of large pages, and none.
const MANY: Line = Setting("vm.nr_hugepages=128");
const ONE: Line = Setting("vm.nr_hugepages=1");
const NONE: Line = Setting("vm.nr_hugepages=0");

/// The plan.
pub const PLAN: [Line; 90] = [
    MANY,
    Test("mm/hugepage-mmap", 5),
    Setting("kernel.shmmax=268435456"),
    Setting("kernel.shmall=4194304"),
    Test("mm/hugepage-shm", 5),
    Test("mm/map_hugetlb", 5),
    Test("mm/hugepage-mremap", 5),
    Test("mm/hugepage-vmemmap", 5),
    Test("mm/hugetlb-madvise", 5),
    Test("mm/hugetlb_dio", 5),
    ONE,
    Test("mm/hugetlb_fault_after_madv", 5),
    Test("mm/hugetlb_madv_vs_map", 5),
    MANY,
    Test("mm/map_fixed_noreplace", 5),
    Test("mm/gup_test -u", 5),
    Test("mm/gup_test -a", 5),
    Test("mm/gup_test -ct -F 0x1 0 19 0x1000", 5),
    Test("mm/gup_longterm", 5),
    Test("mm/uffd-unit-tests", 8),
    Test("mm/uffd-stress anon 20 16", 8),
    Test("mm/uffd-stress hugetlb 128 32", 8),
    Test("mm/uffd-stress hugetlb-private 128 32", 8),
    Test("mm/uffd-stress shmem 20 16", 8),
    Test("mm/uffd-stress shmem-private 20 16", 8),
    NONE,
    Test("mm/compaction_test", 8),
    Test("bin/su -s /mm/on-fault-limit nobody", 5),
    Test("mm/map_populate", 5),
    Test("mm/mlock-random-test", 5),
    Test("mm/mlock2-tests", 5),
    Test("mm/mrelease_test", 5),
    // It maps 2 GiB.
    Setting("vm.overcommit_memory=1"),
    Test("mm/mremap_test", 8),
    Test("mm/thuge-gen", 5),
    Test("mm/virtual_address_range", 30),
    Setting("vm.overcommit_memory=0"),
    Test("mm/va_high_addr_switch", 5),
    Test("mm/mremap_dontunmap", 5),
    Test("mm/hmm-tests", 5),
    Test("mm/madv_populate", 5),
    Test("mm/memfd_secret", 5),
    Test("mm/ksm_tests -H -s 100", 5),
    Test("mm/ksm_tests -P -s 100", 5),
    Test("mm/ksm_tests -M -p 10", 5),
    Test("mm/ksm_tests -U", 5),
    Test("mm/ksm_tests -Z -p 10 -z 0", 5),
    Test("mm/ksm_tests -Z -p 10 -z 1", 5),
    Test("mm/ksm_tests -N -m 1", 5),
    Test("mm/ksm_tests -N -m 0", 5),
    Test("mm/ksm_functional_tests", 5),
    Test("mm/protection_keys_64", 8),
    Test("mm/pkey_sighandler_tests_64", 5),
    Test("mm/soft-dirty", 5),
    Test("mm/pagemap_ioctl", 5),
    MANY,
    Test("mm/cow", 8),
    NONE,
    Test("mm/khugepaged", 8),
    Test("mm/khugepaged -s 2", 8),
    Test("mm/transhuge-stress -d 1", 5),
    Test("mm/split_huge_page_test", 5),
    Test("mm/mkdirty", 5),
    Test("mm/mdwe_test", 5),
    Test("mm/mseal_test", 5),
    Test("mm/seal_elf", 5),
    Test("mm/droppable", 5),
    Test("x86/single_step_syscall_64", 5),
    Test("x86/syscall_nt_64", 5),
    Test("x86/test_mremap_vdso_64", 5),
    Test("x86/check_initial_reg_state_64", 5),
    Test("x86/sigreturn_64", 5),
    Test("x86/iopl_64", 5),
    Test("x86/ioperm_64", 5),
    Test("x86/test_vsyscall_64", 5),
    Test("x86/mov_ss_trap_64", 5),
    Test("x86/sigtrap_loop_64", 5),
    Test("x86/syscall_arg_fault_64", 5),
    Test("x86/fsgsbase_restore_64", 5),
    Test("x86/sigaltstack_64", 5),
    Test("x86/nx_stack_64", 5),
    Test("x86/fsgsbase_64", 5),
    Test("x86/sysret_rip_64", 5),
    Test("x86/syscall_numbering_64", 5),
    Test("x86/corrupt_xstate_header_64", 5),
    Test("x86/amx_64", 5),
    Test("x86/lam_64", 5),
    Test("x86/test_shadow_stack_64", 5),
    Test("x86/ldt_gdt_64", 5),
    Test("x86/ptrace_syscall_64", 5),
];
