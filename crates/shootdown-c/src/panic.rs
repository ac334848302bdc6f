//! Without the standard library, the kernel handles panics.

use core::ffi::c_char;

unsafe extern "C" {
    /// Supplied by the kernel if this library is built without `std`: a rule of an interface was broken. The text,
    /// which is not zero-terminated, names it and the place. Must not return.
    fn shootdown_panic(text: *const c_char, length: usize) -> !;
}

/// The part of a message that fits.
struct Text {
    bytes: [u8; 256],
    length: usize,
}

impl Text {
    fn push(&mut self, text: &[u8]) {
        for (place, byte) in self.bytes.iter_mut().skip(self.length).zip(text) {
            *place = *byte;
            self.length += 1;
        }
    }

    fn push_number(&mut self, mut number: u32) {
        let (mut digits, mut first) = ([b'0'; 10], 9);
        while number > 9 {
            digits[first] += (number % 10) as u8;
            (number, first) = (number / 10, first - 1);
        }
        digits[first] += number as u8;
        self.push(&digits[first..]);
    }
}

/// Without the formatting of `core`, which is several KiB of code: a message with arguments is replaced by its
/// location.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut text = Text {
        bytes: [0; 256],
        length: 0,
    };
    if let Some(place) = info.location() {
        text.push(place.file().as_bytes());
        text.push(b":");
        text.push_number(place.line());
        text.push(b": ");
    }
    let message = info.message().as_str();
    text.push(message.unwrap_or("a rule of an interface was broken").as_bytes());
    // SAFETY: the text outlives the call, which does not return.
    unsafe { shootdown_panic(text.bytes.as_ptr().cast(), text.length) }
}
