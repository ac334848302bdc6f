//! Compressed files: gzip, xz, Zstandard and bzip2, read as their content.

use std::io::{self, BufRead, BufReader, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The file-name extension of a compressed file.
pub const ENDINGS: [&str; 5] = ["gz", "xz", "zst", "zstd", "bz2"];

/// Bytes decompressed at once.
const AT_ONCE: usize = 1 << 16;

/// The text, compressed or not, and the format.
///
/// # Errors
/// When reading fails.
pub(crate) fn unpacked<'a>(mut input: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let begins = input.fill_buf()?;
    let with = |magic: &[u8]| begins.starts_with(magic);
    let boxed: Box<dyn Read + 'a> = if with(b"\x1f\x8b") {
        Box::new(MultiGzDecoder::new(input))
    } else if with(b"\xfd7zXZ\0") {
        Box::new(XzReader::new(input, true))
    } else if with(b"\x28\xb5\x2f\xfd") {
        Box::new(Frames {
            input: Some(input),
            frame: None,
        })
    } else if with(b"BZh") {
        Box::new(MultiBzDecoder::new(input))
    } else {
        return Ok(Box::new(input));
    };
    Ok(Box::new(BufReader::with_capacity(AT_ONCE, boxed)))
}

/// A file of Zstandard is a sequence of frames.
struct Frames<R: BufRead> {
    /// Input after the current frame, between frames.
    input: Option<R>,
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(bytes)?;
                if read > 0 || bytes.is_empty() {
                    return Ok(read);
                }
                self.input = self.frame.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut input) = self.input.take() else {
                return Ok(0);
            };
            if input.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let damaged = |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
            self.frame = Some(StreamingDecoder::new(input).map_err(|error| damaged(&error))?);
        }
    }
}
