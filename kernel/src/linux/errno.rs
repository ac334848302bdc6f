//! Why a system call fails, in Linux's numbers.

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub u16);

macro_rules! errors {
    ($($name:ident $number:literal $what:literal;)*) => { $(
        #[doc = $what]
        pub const $name: Errno = Errno($number);
    )* };
}

errors! {
    ENOENT 2 "No such file.";
    EBADF 9 "No such file descriptor.";
    ECHILD 10 "No such child.";
    EAGAIN 11 "Not now.";
    ENOMEM 12 "No memory.";
    EFAULT 14 "A bad address.";
    EINVAL 22 "A bad argument.";
    ENOTTY 25 "Not a terminal.";
    ENOSYS 38 "No such system call.";
    ETIMEDOUT 110 "It took too long.";
}
