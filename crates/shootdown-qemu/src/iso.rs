//! An image that boots on a real machine: the kernel behind GRUB, for BIOS and for UEFI, from a disc or a USB stick.

use crate::needs;
use crate::program::{self, NotDone};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// The command that installs the image tools, on Debian and Ubuntu.
pub const ISO_INSTALL: &str =
    "apt-get install -y --no-install-recommends grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools";
/// Required files, and the package of each. Without the modules the image would silently lack BIOS or UEFI.
pub const ISO_NEEDS: [(&str, &str); 5] = [
    ("grub-mkrescue", "grub-common"),
    ("/usr/lib/grub/i386-pc/moddep.lst", "grub-pc-bin"),
    ("/usr/lib/grub/x86_64-efi/moddep.lst", "grub-efi-amd64-bin"),
    ("xorriso", "xorriso"),
    ("mformat", "mtools"),
];

/// Checks that the image tools are installed.
///
/// # Errors
/// The missing item and the command that installs it.
pub fn can_write_iso() -> Result<(), String> {
    needs::are_met(&ISO_NEEDS, ISO_INSTALL)
}

/// Writes an image to `to`, whole or not at all, that boots `kernel` with `words` on its command line.
///
/// # Errors
/// The missing item and the command that installs it; the error; [`NotDone::Stopped`].
pub fn write_iso(kernel: &Path, words: &str, to: &Path, stop: &AtomicBool) -> Result<(), NotDone> {
    write(&[(kernel, "shootdown-kernel")], &menu(words), to, stop)
}

/// The same for a Linux with its archive of files.
///
/// # Errors
/// As [`write_iso`].
pub fn write_linux_iso(
    kernel: &Path,
    archive: &Path,
    words: &str,
    to: &Path,
    stop: &AtomicBool,
) -> Result<(), NotDone> {
    write(
        &[(kernel, "linux"), (archive, "archive")],
        &menu_of_linux(words),
        to,
        stop,
    )
}

/// Writes an image with these files below `/boot`, and GRUB's menu.
fn write(files: &[(&Path, &str)], menu: &str, to: &Path, stop: &AtomicBool) -> Result<(), NotDone> {
    can_write_iso()?;
    let mut beside = to.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let folder = PathBuf::from(beside);
    let made = make(files, menu, &folder, stop)
        .and_then(|image| fs::rename(image, to).map_err(|error| NotDone::Failed(error.to_string())));
    let _ = fs::remove_dir_all(&folder);
    made.map_err(|ended| match ended {
        NotDone::Failed(why) => NotDone::Failed(format!("{}: {why}", to.display())),
        NotDone::Stopped => NotDone::Stopped,
    })
}

/// Makes the image in `folder`; returns its path.
fn make(files: &[(&Path, &str)], menu: &str, folder: &Path, stop: &AtomicBool) -> Result<PathBuf, NotDone> {
    let (content, image) = (folder.join("content"), folder.join("image.iso"));
    let boot = content.join("boot");
    let mut laid = fs::create_dir_all(boot.join("grub"));
    for (file, name) in files {
        laid = laid.and_then(|()| fs::copy(file, boot.join(name)).map(drop));
    }
    let laid = laid.and_then(|()| fs::write(boot.join("grub/grub.cfg"), menu));
    laid.map_err(|error| error.to_string())?;
    let mut command = Command::new("grub-mkrescue");
    command.arg("-o").arg(&image).arg(&content);
    let (status, text) = program::run(&mut command, stop)?;
    if status.success() && image.is_file() {
        return Ok(image);
    }
    Err(NotDone::Failed(format!("grub-mkrescue failed: {}", text.trim())))
}

/// GRUB's menu: boots the kernel at once. The video modules give it a framebuffer.
fn menu(words: &str) -> String {
    format!(
        "set timeout=0\ninsmod all_video\nmenuentry shootdown {{\n  multiboot2 /boot/shootdown-kernel {words}\n}}\n"
    )
}

/// The same for Linux, which needs no framebuffer.
fn menu_of_linux(words: &str) -> String {
    format!("set timeout=0\nmenuentry linux {{\n  linux /boot/linux {words}\n  initrd /boot/archive\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn menu_passes_the_arguments_without_timeout() {
        let menu = menu("workload=tlb_flush2 design=ipi,broadcast");
        assert!(menu.contains("multiboot2 /boot/shootdown-kernel workload=tlb_flush2 design=ipi,broadcast\n"));
        assert!(menu.starts_with("set timeout=0\n"));
        let menu = menu_of_linux("console=ttyS0 pti=on");
        assert!(menu.contains("linux /boot/linux console=ttyS0 pti=on\n  initrd /boot/archive\n"));
    }
}
