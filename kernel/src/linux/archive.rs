//! The archive that the loader passes beside the kernel (`-initrd`): a cpio archive of the "new ASCII" kind.

use spin::Once;

/// Bytes of an entry's header: a magic number and 13 numbers of 8 hexadecimal digits.
const HEADER: usize = 110;
const MAGIC: &[u8] = b"070701";

static ARCHIVE: Once<&'static [u8]> = Once::new();

/// Keeps it. Its memory is never allocated.
pub fn keep(bytes: &'static [u8]) {
    ARCHIVE.call_once(|| bytes);
}

/// The content of a file; `None` when there is no such file, or the archive is cut off before it.
pub fn file(name: &str) -> Option<&'static [u8]> {
    let mut rest = *ARCHIVE.get()?;
    loop {
        let header = rest.get(..HEADER).filter(|header| header.starts_with(MAGIC))?;
        let (size, name_size) = (field(header, 6)?, field(header, 11)?);
        // Name and content each end at a multiple of 4 from the beginning of the header.
        let content = (HEADER + name_size).next_multiple_of(4);
        let found = rest.get(HEADER..HEADER + name_size.checked_sub(1)?)?;
        if found == name.as_bytes() {
            return rest.get(content..content + size);
        }
        if found == b"TRAILER!!!" {
            return None;
        }
        rest = rest.get((content + size).next_multiple_of(4)..)?;
    }
}

/// A number of the header.
fn field(header: &[u8], index: usize) -> Option<usize> {
    let digits = core::str::from_utf8(&header[6 + index * 8..][..8]).ok()?;
    usize::from_str_radix(digits, 16)
        .ok()
        .filter(|&number| number < 1 << 30)
}
