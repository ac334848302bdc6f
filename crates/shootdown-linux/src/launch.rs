//! Starting the command that is recorded.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Starts `command` (program and arguments). Before it runs, the new process writes its own number into `follow`, the
/// filter of a trace instance: so it is recorded from its first instruction, and no other process is.
///
/// # Errors
/// When it cannot be started or the filter does not take its number.
pub fn launch(command: &[String], follow: Option<File>) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut child = Command::new(program);
    child.args(arguments);
    // SAFETY: between fork and exec the closure only makes system calls and uses its stack: no allocation, no lock.
    unsafe {
        child.pre_exec(move || {
            // A recorder ignores the signal for files that become too large; the command must not inherit that.
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            let Some(follow) = &follow else { return Ok(()) };
            let mut digits = [0_u8; 12];
            let text = decimal(std::process::id(), &mut digits);
            let written = libc::write(follow.as_raw_fd(), text.as_ptr().cast(), text.len());
            if usize::try_from(written) == Ok(text.len()) {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        });
    }
    child.spawn()
}

/// From here on a write beyond the file-size limit fails, instead of ending this process.
pub fn survive_large_files() {
    // SAFETY: no handler is installed; the signal is only ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The tasks of a process.
///
/// # Errors
/// When there is no such process.
pub fn tasks_of(process: u32) -> io::Result<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))?;
    tasks
        .map(|task| Ok(task?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Adds tasks to the filter of a trace instance.
///
/// # Errors
/// When the kernel refuses.
pub fn add(mut follow: &File, tasks: &[String]) -> io::Result<()> {
    follow.write_all(format!("{}\n", tasks.join(" ")).as_bytes())
}

/// `number` in decimal with a newline, without allocating.
fn decimal(mut number: u32, digits: &mut [u8; 12]) -> &[u8] {
    let mut from = digits.len() - 1;
    digits[from] = b'\n';
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[from..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimal_writes_all_digits() {
        for (number, text) in [(0, "0\n"), (10, "10\n"), (u32::MAX, "4294967295\n")] {
            assert_eq!(decimal(number, &mut [0; 12]), text.as_bytes());
        }
    }
}
