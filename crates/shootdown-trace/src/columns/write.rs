//! Writing a recording, event by event.

use super::layout::Columns;
use super::row::Row;
use super::{Error, GROUP_ROWS, METADATA_KEY};
use crate::{Event, Metadata};
use parquet::basic::Compression;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// Writes a recording.
pub struct Writer<S: Write + Send> {
    file: SerializedFileWriter<S>,
    rows: Columns,
    waiting: usize,
    /// Rows written or waiting.
    events: u64,
    /// Recent strings: most rows repeat one, and a copy of one in this map is a reference count.
    strings: HashMap<Box<str>, ByteArray>,
}

/// Strings kept for reuse; beyond this number all are dropped.
const STRINGS: usize = 4096;

/// `text` as a value, shared with earlier rows that had the same.
fn shared(strings: &mut HashMap<Box<str>, ByteArray>, text: &str) -> ByteArray {
    if let Some(known) = strings.get(text) {
        return known.clone();
    }
    if strings.len() == STRINGS {
        strings.clear();
    }
    let value = ByteArray::from(text);
    strings.insert(text.into(), value.clone());
    value
}

impl<S: Write + Send> Writer<S> {
    /// Begins a file in `sink`.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(sink: S) -> Result<Self, Error> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        Ok(Writer {
            file: SerializedFileWriter::new(sink, Arc::new(Columns::schema()?), Arc::new(properties))?,
            rows: Columns::new(),
            waiting: 0,
            events: 0,
            strings: HashMap::new(),
        })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// When writing fails.
    pub fn add(&mut self, event: &Event<'_>) -> Result<(), Error> {
        let rows = &mut self.rows;
        rows.time_ns.push(Some(event.time_ns as i64));
        rows.cpu.push(Some(event.cpu as i32));
        rows.task.push(Some(event.task as i32));
        rows.name.push(Some(shared(&mut self.strings, event.name)));
        rows.process.push(event.process.map(|process| process as i32));
        let mut row = Row::default();
        let name = row.fill(&event.what);
        rows.event.push(Some(shared(&mut self.strings, name)));
        rows.from_task.push(row.from_task);
        rows.to_task.push(row.to_task);
        rows.text.push(row.text.map(|text| shared(&mut self.strings, text)));
        rows.pages.push(row.pages);
        rows.reason.push(row.reason);
        rows.target.push(row.target);
        rows.call.push(row.call);
        rows.address.push(row.address);
        rows.length.push(row.length);
        rows.argument.push(row.argument);
        self.events += 1;
        self.waiting += 1;
        if self.waiting == GROUP_ROWS {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), Error> {
        let mut group = self.file.next_row_group()?;
        self.rows.write(&mut group)?;
        group.close()?;
        self.waiting = 0;
        Ok(())
    }

    /// Writes the rest and the metadata; returns the sink and the number of events.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self, metadata: &Metadata) -> Result<(S, u64), Error> {
        if self.waiting > 0 {
            self.write_group()?;
        }
        let json = serde_json::to_string(metadata).map_err(|error| ParquetError::General(error.to_string()))?;
        self.file
            .append_key_value_metadata(KeyValue::new(METADATA_KEY.to_owned(), json));
        Ok((self.file.into_inner()?, self.events))
    }
}
