//! The remedy when the kernel does not permit tracing: the exact command.

use std::path::Path;

use rustix::process::geteuid;
use shootdown_linux::tracefs::Error;

use crate::runs::target::quoted;

/// The error in one line, with the command that helps.
pub(super) fn of(error: &Error) -> String {
    describe(error, geteuid().is_root())
}

fn describe(error: &Error, root: bool) -> String {
    match error {
        Error::NotMounted if Path::new("/sys/kernel/tracing").is_dir() => {
            let sudo = if root { "" } else { "sudo " };
            format!("{error}; mount it: {sudo}mount -t tracefs nodev /sys/kernel/tracing")
        }
        Error::NotMounted => format!("{error}, and this kernel has none; it needs one with CONFIG_FTRACE"),
        Error::Denied(_) if root => format!(
            "{error} although this is root: a container without CAP_SYS_ADMIN, \
             or a locked-down kernel; record on the host itself"
        ),
        Error::Denied(_) => format!("{error}; run: sudo {}", this_command()),
        Error::Io(..) => error.to_string(),
    }
}

/// The command line of this very process, with the path of the program: sudo has its own search path.
fn this_command() -> String {
    let program = std::env::current_exe().ok().map(|path| path.display().to_string());
    let words = program.into_iter().chain(std::env::args().skip(1));
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn missing_rights_error_names_the_sudo_command() {
        let denied = Error::Denied("/sys/kernel/tracing".into());
        let for_user = describe(&denied, false);
        assert!(
            for_user.contains("/sys/kernel/tracing: no rights to trace; run: sudo /"),
            "{for_user}"
        );
        assert!(describe(&denied, true).contains("CAP_SYS_ADMIN"));
        let other = Error::Io("/x".into(), io::Error::other("broken"));
        assert_eq!(describe(&other, false), "/x: broken");
        let unmounted = describe(&Error::NotMounted, false);
        assert!(
            unmounted.contains("sudo mount -t tracefs") || unmounted.contains("CONFIG_FTRACE"),
            "{unmounted}"
        );
    }
}
