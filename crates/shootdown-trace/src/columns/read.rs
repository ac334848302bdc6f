//! Reading a recording, event by event.

use super::layout::{Column, Columns};
use super::row::Row;
use super::{Error, METADATA_KEY};
use crate::{Event, Metadata};
use parquet::data_type::DataType;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};

/// Reads a recording.
pub struct Reader<R: ChunkReader + 'static> {
    file: SerializedFileReader<R>,
    metadata: Metadata,
}

impl<R: ChunkReader + 'static> Reader<R> {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, is not Parquet, or not a recording.
    pub fn open(file: R) -> Result<Self, Error> {
        let file = SerializedFileReader::new(file).map_err(Error::Damaged)?;
        let about = file.metadata().file_metadata();
        let json = about
            .key_value_metadata()
            .and_then(|all| all.iter().find(|entry| entry.key == METADATA_KEY)?.value.as_deref())
            .ok_or_else(|| Error::NotARecording(format!("it has no metadata `{METADATA_KEY}`")))?;
        let metadata =
            serde_json::from_str(json).map_err(|error| Error::NotARecording(format!("its metadata: {error}")))?;
        let expected = Columns::schema()?;
        let (found, expected) = (about.schema().get_fields(), expected.get_fields());
        let same = found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| {
                a.name() == b.name() && a.is_primitive() && a.get_physical_type() == b.get_physical_type()
            });
        if !same {
            return Err(Error::NotARecording("its columns are others".into()));
        }
        // The Parquet reader trusts these numbers, and panics if they are negative.
        let mut chunks = file.metadata().row_groups().iter().flat_map(|group| group.columns());
        let negative = |offset: Option<i64>| offset.is_some_and(|offset| offset < 0);
        if chunks.any(|chunk| {
            chunk.data_page_offset() < 0 || chunk.compressed_size() < 0 || negative(chunk.dictionary_page_offset())
        }) {
            return Err(Error::NotARecording(
                "it is damaged: a column begins before the file".into(),
            ));
        }
        Ok(Reader { file, metadata })
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Number of events.
    pub fn events(&self) -> u64 {
        self.file.metadata().file_metadata().num_rows().max(0) as u64
    }

    /// Passes each event to `sink`, in order, until it returns false.
    ///
    /// # Errors
    /// When the file cannot be read, or a row is not an event.
    pub fn for_each(&self, mut sink: impl FnMut(&Event<'_>) -> bool) -> Result<(), Error> {
        let mut rows = Columns::new();
        for index in 0..self.file.num_row_groups() {
            let group = self.file.get_row_group(index).map_err(Error::Damaged)?;
            let count = group.metadata().num_rows().max(0) as usize;
            rows.read(&*group, count).map_err(Error::Damaged)?;
            if !rows.for_each(count, &mut sink)? {
                break;
            }
        }
        Ok(())
    }
}

/// Iterates over one optional column, value by value.
struct Cursor<'c, T: DataType> {
    column: &'c Column<T>,
    row: usize,
    value: usize,
}

impl<'c, T: DataType> Cursor<'c, T> {
    fn new(column: &'c Column<T>) -> Self {
        Cursor {
            column,
            row: 0,
            value: 0,
        }
    }

    fn next(&mut self) -> Option<&'c T::T> {
        let present = self.column.present.as_ref().is_none_or(|levels| levels[self.row] != 0);
        self.row += 1;
        if !present {
            return None;
        }
        self.value += 1;
        self.column.values.get(self.value - 1)
    }
}

impl Columns {
    fn for_each(&self, count: usize, sink: &mut impl FnMut(&Event<'_>) -> bool) -> Result<bool, Error> {
        let broken = |row: usize| Error::NotARecording(format!("row {row} of a group is not an event"));
        let mut process = Cursor::new(&self.process);
        let mut from_task = Cursor::new(&self.from_task);
        let mut to_task = Cursor::new(&self.to_task);
        let mut text = Cursor::new(&self.text);
        let mut pages = Cursor::new(&self.pages);
        let mut reason = Cursor::new(&self.reason);
        let mut target = Cursor::new(&self.target);
        let mut call = Cursor::new(&self.call);
        let mut address = Cursor::new(&self.address);
        let mut length = Cursor::new(&self.length);
        let mut argument = Cursor::new(&self.argument);
        for index in 0..count {
            let process = process.next().map(|&process| process as u32);
            let text = text.next();
            let row = Row {
                from_task: from_task.next().copied(),
                to_task: to_task.next().copied(),
                text: text.and_then(|bytes| std::str::from_utf8(bytes.data()).ok()),
                pages: pages.next().copied(),
                reason: reason.next().copied(),
                target: target.next().copied(),
                call: call.next().copied(),
                address: address.next().copied(),
                length: length.next().copied(),
                argument: argument.next().copied(),
            };
            let name = std::str::from_utf8(self.name.values[index].data()).map_err(|_| broken(index))?;
            let event = std::str::from_utf8(self.event.values[index].data()).map_err(|_| broken(index))?;
            let event = Event {
                time_ns: self.time_ns.values[index] as u64,
                cpu: self.cpu.values[index] as u32,
                task: self.task.values[index] as u32,
                process,
                name,
                what: row.what(event).ok_or_else(|| broken(index))?,
            };
            if !sink(&event) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
