//! Translates the system calls of Arm and RISC-V to those of x86-64, which `linux/calls.rs` uses: their numbers, and
//! where it differs the order of their arguments.

/// The number here, and on x86-64.
const NUMBERS: [(u64, u64); 42] = [
    (29, 16),   // ioctl
    (46, 77),   // ftruncate
    (56, 257),  // openat
    (57, 3),    // close
    (59, 293),  // pipe2
    (63, 0),    // read
    (64, 1),    // write
    (66, 20),   // writev
    (75, 278),  // vmsplice
    (76, 275),  // splice
    (78, 267),  // readlinkat
    (79, 262),  // newfstatat
    (80, 5),    // fstat
    (93, 60),   // exit
    (94, 231),  // exit_group
    (96, 218),  // set_tid_address
    (98, 202),  // futex
    (99, 273),  // set_robust_list
    (101, 35),  // nanosleep
    (113, 228), // clock_gettime
    (115, 230), // clock_nanosleep
    (122, 203), // sched_setaffinity
    (123, 204), // sched_getaffinity
    (124, 24),  // sched_yield
    (134, 13),  // rt_sigaction
    (135, 14),  // rt_sigprocmask
    (169, 96),  // gettimeofday
    (172, 39),  // getpid
    (178, 186), // gettid
    (198, 41),  // socket
    (214, 12),  // brk
    (215, 11),  // munmap
    (216, 25),  // mremap
    (220, 56),  // clone
    (221, 59),  // execve
    (222, 9),   // mmap
    (226, 10),  // mprotect
    (233, 28),  // madvise
    (260, 61),  // wait4
    (261, 302), // prlimit64
    (278, 318), // getrandom
    (279, 319), // memfd_create
];

/// Number of `clone` on x86-64.
const CLONE: u64 = 56;

/// A number of no call, which no program uses by chance.
const UNKNOWN: u64 = 1 << 32;

/// The call with this number as on x86-64.
pub fn call(number: u64, [a, b, c, d, e, f]: [u64; 6]) -> (u64, [u64; 6]) {
    match call_number(number) {
        // The thread pointer comes before the word for the child.
        CLONE => (CLONE, [a, b, c, e, d, f]),
        number => (number, [a, b, c, d, e, f]),
    }
}

/// The number on x86-64 of the call with this number; `UNKNOWN` for no call.
fn call_number(number: u64) -> u64 {
    match number {
        293 => 334, // rseq
        435 => 435, // clone3
        _ => {
            let found = NUMBERS.iter().find(|&&(here, _)| here == number);
            found.map_or(UNKNOWN + number, |&(_, there)| there)
        }
    }
}
