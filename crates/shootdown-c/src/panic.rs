//! Where there is no standard library, the kernel ends what cannot go on.

use core::ffi::c_char;
use core::fmt::Write;

unsafe extern "C" {
    /// Supplied by the kernel where this library is built without `std`: a rule of an interface was broken. The text,
    /// which has no zero at its end, names it and the place. Must not return.
    fn shootdown_panic(text: *const c_char, length: usize) -> !;
}

/// As much of a message as fits.
struct Text {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let fits = text.len().min(self.bytes.len() - self.length);
        self.bytes[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut text = Text {
        bytes: [0; 256],
        length: 0,
    };
    let _ = write!(text, "{info}");
    // SAFETY: the text outlives the call, which does not return.
    unsafe { shootdown_panic(text.bytes.as_ptr().cast(), text.length) }
}
