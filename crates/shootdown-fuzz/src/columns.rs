//! Recordings as Parquet files.

use shootdown_trace::columns::{Error, Reader, Writer};
use shootdown_trace::{Event, Metadata, text};

/// A file in memory, and its bytes.
fn write(events: &[u8]) -> Option<(u64, Metadata, Vec<u8>)> {
    let mut writer = Writer::new(Vec::new()).expect("a vector takes everything");
    let metadata = text::read(events, |event| writer.add(event).map_err(|error| error.to_string())).ok()?;
    let (bytes, count) = writer.finish(&metadata).expect("a vector takes everything");
    Some((count, metadata, bytes))
}

fn read(bytes: Vec<u8>, mut sink: impl FnMut(&Event<'_>)) -> Result<(u64, Metadata), Error> {
    let reader = Reader::open(bytes::Bytes::from(bytes))?;
    reader.for_each(|event| {
        sink(event);
        true
    })?;
    Ok((reader.events(), reader.metadata().clone()))
}

pub(crate) fn check(bytes: &[u8]) {
    // As a file: it is one, or an error.
    let mut events = 0;
    if let Ok((count, _)) = read(bytes.to_vec(), |_| events += 1) {
        assert_eq!(count, events);
    }
    // As trace text: what is written is read back.
    if let Some((count, metadata, file)) = write(bytes) {
        let mut events = Vec::new();
        let (found, same) = read(file, |event| events.push(format!("{event:?}"))).expect("just written");
        assert_eq!((found, &same), (count, &metadata));
        let mut next = events.iter();
        let _ = text::read(bytes, |event| {
            assert_eq!(next.next(), Some(&format!("{event:?}")));
            Ok(())
        });
        assert_eq!(next.next(), None);
    }
}
