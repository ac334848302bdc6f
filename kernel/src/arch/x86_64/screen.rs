//! The screen from the boot loader: a grid of characters, or pixels. It shows all output too.

use crate::lock::Mutex;
use crate::memory::direct;
use core::fmt;
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

const FONT: FontWeight = FontWeight::Regular;
const HEIGHT: RasterHeight = RasterHeight::Size16;
/// Pixels of a character.
const CELL: (usize, usize) = (get_raster_width(FONT, HEIGHT), HEIGHT.val());
/// Light grey on black, in VGA text attributes.
const ATTRIBUTE: u16 = 0x0700;

/// The format of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two bytes each: a character and its colours.
    Characters,
    /// Four bytes each.
    Pixels,
}

/// A screen. A line has `pitch` bytes; width and height are in characters or pixels.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Screen {
    pub kind: Kind,
    pub address: u64,
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// A screen, and the position of the next character.
struct Cursor {
    screen: Screen,
    column: usize,
    row: usize,
}

static CURSOR: Mutex<Option<Cursor>> = Mutex::new(None);

/// From here on all output is shown there.
pub fn set_up(screen: Screen) {
    let mut cursor = Cursor {
        screen,
        column: 0,
        row: 0,
    };
    cursor.clear();
    *CURSOR.lock() = Some(cursor);
}

/// Shows a line, if there is a screen and no line is being shown (a panic may interrupt one).
pub fn line(text: fmt::Arguments<'_>) {
    if let Some(mut cursor) = CURSOR.try_lock()
        && let Some(cursor) = &mut *cursor
    {
        let _never_fails = fmt::write(cursor, text);
        cursor.new_line();
    }
}

impl Screen {
    /// Columns and rows of characters.
    fn size(&self) -> (usize, usize) {
        match self.kind {
            Kind::Characters => (self.width, self.height),
            Kind::Pixels => (self.width / CELL.0, self.height / CELL.1),
        }
    }

    /// Writes one unit: a character with its colours, or a pixel.
    fn put<T>(&self, x: usize, y: usize, value: T) {
        let place = direct::<u8>(self.address).wrapping_add(y * self.pitch + x * size_of::<T>());
        // SAFETY: within the screen, by the callers' bounds; it is in the direct map, with no other user.
        unsafe { place.cast::<T>().write_volatile(value) };
    }
}

impl Cursor {
    fn clear(&mut self) {
        for y in 0..self.screen.height {
            for x in 0..self.screen.width {
                match self.screen.kind {
                    Kind::Characters => self.screen.put(x, y, ATTRIBUTE | u16::from(b' ')),
                    Kind::Pixels => self.screen.put(x, y, 0_u32),
                }
            }
        }
        (self.column, self.row) = (0, 0);
    }

    /// The next line; at the bottom the screen is cleared.
    fn new_line(&mut self) {
        (self.column, self.row) = (0, self.row + 1);
        if self.row == self.screen.size().1 {
            self.clear();
        }
    }

    fn character(&mut self, character: char) {
        let character = if character.is_ascii_graphic() { character } else { ' ' };
        match self.screen.kind {
            Kind::Characters => {
                let cell = ATTRIBUTE | u16::from(character as u8);
                self.screen.put(self.column, self.row, cell);
            }
            Kind::Pixels => {
                let Some(raster) = get_raster(character, FONT, HEIGHT) else {
                    return;
                };
                for (y, line) in raster.rows().enumerate() {
                    for (x, &light) in line.iter().enumerate() {
                        let grey = u32::from(light) * 0x01_01_01;
                        self.screen.put(self.column * CELL.0 + x, self.row * CELL.1 + y, grey);
                    }
                }
            }
        }
        self.column += 1;
    }
}

impl fmt::Write for Cursor {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if character == '\n' || self.column == self.screen.size().0 {
                self.new_line();
            }
            if character != '\n' {
                self.character(character);
            }
        }
        Ok(())
    }
}
