//! An image that boots on a real machine: the kernel behind GRUB, for BIOS and for UEFI, from a disc or a stick.

use crate::needs;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The command that installs what makes images, on Debian and Ubuntu.
pub const ISO_INSTALL: &str =
    "apt-get install -y --no-install-recommends grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools";
/// What must be there, and the package that holds it. Without the modules the image would lack BIOS or UEFI, quietly.
pub const ISO_NEEDS: [(&str, &str); 5] = [
    ("grub-mkrescue", "grub-common"),
    ("/usr/lib/grub/i386-pc/moddep.lst", "grub-pc-bin"),
    ("/usr/lib/grub/x86_64-efi/moddep.lst", "grub-efi-amd64-bin"),
    ("xorriso", "xorriso"),
    ("mformat", "mtools"),
];

/// Writes an image to `to`, whole or not at all, that boots `kernel` with `words` on its command line.
///
/// # Errors
/// What is missing and the command that installs it; what failed.
pub fn write_iso(kernel: &Path, words: &str, to: &Path) -> Result<(), String> {
    needs::are_met(&ISO_NEEDS, ISO_INSTALL)?;
    let mut beside = to.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let folder = PathBuf::from(beside);
    let made = make(kernel, words, &folder).and_then(|image| fs::rename(image, to).map_err(|error| error.to_string()));
    let _ = fs::remove_dir_all(&folder);
    made.map_err(|why| format!("{}: {why}", to.display()))
}

/// Makes the image in `folder`; where it is.
fn make(kernel: &Path, words: &str, folder: &Path) -> Result<PathBuf, String> {
    let (content, image) = (folder.join("content"), folder.join("image.iso"));
    let boot = content.join("boot");
    let laid = fs::create_dir_all(boot.join("grub"))
        .and_then(|()| fs::copy(kernel, boot.join("shootdown-kernel")))
        .and_then(|_| fs::write(boot.join("grub/grub.cfg"), menu(words)));
    laid.map_err(|error| error.to_string())?;
    let mut command = Command::new("grub-mkrescue");
    command.arg("-o").arg(&image).arg(&content).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("grub-mkrescue cannot be run ({error})"))?;
    if output.status.success() && image.is_file() {
        return Ok(image);
    }
    Err(format!(
        "grub-mkrescue failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// GRUB's menu: the kernel, at once. The video modules give it a screen of pixels.
fn menu(words: &str) -> String {
    format!(
        "set timeout=0\ninsmod all_video\nmenuentry shootdown {{\n  multiboot2 /boot/shootdown-kernel {words}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_menu_has_the_words_and_nothing_waits() {
        let menu = menu("workload=tlb_flush2 design=ipi,broadcast");
        assert!(menu.contains("multiboot2 /boot/shootdown-kernel workload=tlb_flush2 design=ipi,broadcast\n"));
        assert!(menu.starts_with("set timeout=0\n"));
    }
}
