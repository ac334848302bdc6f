//! A recording as one Parquet file: a row an event, the metadata as JSON under the key [`METADATA_KEY`].
//!
//! | column | type | of which events |
//! | --- | --- | --- |
//! | `time_ns`, `cpu`, `task`, `name`, `event` | required | all; `event` is one of [`EVENTS`] |
//! | `process` | int32 | all, where the recording has it |
//! | `from_task`, `to_task` | int32 | `switch`: who leaves, who comes; `fork`: `to_task` is the child |
//! | `text` | string | `switch`: state of who leaves; `interrupts`: list of CPUs |
//! | `pages`, `reason` | int64, int32 | `flush` |
//! | `target` | int32 | `queued`, `interrupt` |
//! | `call` | boolean | `queued`: whether it is a shootdown; `interrupt`, `interrupts`: whether it is for function calls |
//! | `address`, `length`, `argument` | uint64 | `fault` (address only), `madvise`, `munmap`, `mprotect`, `mremap` |
//!
//! Rows are written and read in groups of [`GROUP_ROWS`]: memory does not grow with the recording. The file is whole only
//! after [`Writer::finish`]; whoever writes it does so under a temporary name.

use crate::{Call, Event, Metadata, Reason, What};
use parquet::basic::{Compression, IntType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// Where the metadata stands in the file.
pub const METADATA_KEY: &str = "shootdown";

/// Rows of a row group: a few MiB in memory.
pub const GROUP_ROWS: usize = 1 << 16;

/// Names in the column `event`, system calls besides.
pub const EVENTS: [&str; 10] = [
    "switch",
    "flush",
    "queued",
    "interrupt",
    "interrupts",
    "handler",
    "fork",
    "exec",
    "exit",
    "fault",
];

/// Why a file could not be written or read.
#[derive(Debug)]
pub enum Error {
    /// Parquet says so: reading or writing failed, or it is no such file.
    Parquet(ParquetError),
    /// It is a Parquet file, but not a recording of ours.
    NotARecording(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parquet(error) => write!(f, "{error}"),
            Error::NotARecording(what) => write!(f, "not a recording: {what}; make one with `shootdown import`"),
        }
    }
}

impl std::error::Error for Error {}

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        Error::Parquet(error)
    }
}

/// One column of the rows being collected or read. `present` has a level per row when the column may be empty.
struct Column<T: DataType> {
    values: Vec<T::T>,
    present: Option<Vec<i16>>,
}

impl<T: DataType> Column<T> {
    fn required() -> Self {
        Column {
            values: Vec::new(),
            present: None,
        }
    }

    fn optional() -> Self {
        Column {
            values: Vec::new(),
            present: Some(Vec::new()),
        }
    }

    fn push(&mut self, value: Option<T::T>) {
        if let Some(present) = &mut self.present {
            present.push(i16::from(value.is_some()));
        }
        self.values.extend(value);
    }

    fn write<S: Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<'_, S>) -> Result<(), ParquetError> {
        let mut column = group
            .next_column()?
            .ok_or(ParquetError::General("a column is missing".into()))?;
        column
            .typed::<T>()
            .write_batch(&self.values, self.present.as_deref(), None)?;
        self.values.clear();
        if let Some(present) = &mut self.present {
            present.clear();
        }
        column.close()
    }

    fn read(&mut self, group: &dyn RowGroupReader, index: usize, rows: usize) -> Result<(), ParquetError> {
        self.values.clear();
        if let Some(present) = &mut self.present {
            present.clear();
        }
        let mut column = get_typed_column_reader::<T>(group.get_column_reader(index)?);
        let mut read = 0;
        while read < rows {
            let (records, ..) = column.read_records(rows - read, self.present.as_mut(), None, &mut self.values)?;
            if records == 0 {
                return Err(ParquetError::General(format!(
                    "column {index} ends after {read} of {rows} rows"
                )));
            }
            read += records;
        }
        Ok(())
    }
}

/// Declares the columns once: their order in the file is the order here.
macro_rules! columns {
    ($($name:ident: $type:ident, $presence:ident, $physical:ident, $logical:expr;)*) => {
        struct Columns { $($name: Column<$type>,)* }

        impl Columns {
            fn new() -> Self {
                Columns { $($name: Column::$presence(),)* }
            }

            fn schema() -> Result<Type, ParquetError> {
                let fields = vec![$({
                    let field = Type::primitive_type_builder(stringify!($name), Physical::$physical)
                        .with_repetition(columns!(@ $presence))
                        .with_logical_type($logical);
                    Arc::new(field.build()?)
                },)*];
                Type::group_type_builder("recording").with_fields(fields).build()
            }

            fn write<S: Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<'_, S>) -> Result<(), ParquetError> {
                $(self.$name.write(group)?;)*
                Ok(())
            }

            fn read(&mut self, group: &dyn RowGroupReader, rows: usize) -> Result<(), ParquetError> {
                let mut index = 0;
                $(self.$name.read(group, index, rows)?; index += 1;)*
                let _ = index;
                Ok(())
            }
        }
    };
    (@ required) => { Repetition::REQUIRED };
    (@ optional) => { Repetition::OPTIONAL };
}

const UNSIGNED: Option<LogicalType> = Some(LogicalType::Integer(IntType {
    bit_width: 64,
    is_signed: false,
}));
const STRING: Option<LogicalType> = Some(LogicalType::String);

columns! {
    time_ns: Int64Type, required, INT64, None;
    cpu: Int32Type, required, INT32, None;
    task: Int32Type, required, INT32, None;
    name: ByteArrayType, required, BYTE_ARRAY, STRING;
    event: ByteArrayType, required, BYTE_ARRAY, STRING;
    process: Int32Type, optional, INT32, None;
    from_task: Int32Type, optional, INT32, None;
    to_task: Int32Type, optional, INT32, None;
    text: ByteArrayType, optional, BYTE_ARRAY, STRING;
    pages: Int64Type, optional, INT64, None;
    reason: Int32Type, optional, INT32, None;
    target: Int32Type, optional, INT32, None;
    call: BoolType, optional, BOOLEAN, None;
    address: Int64Type, optional, INT64, UNSIGNED;
    length: Int64Type, optional, INT64, UNSIGNED;
    argument: Int64Type, optional, INT64, UNSIGNED;
}

/// Writes a recording.
pub struct Writer<S: Write + Send> {
    file: SerializedFileWriter<S>,
    rows: Columns,
    waiting: usize,
    /// Rows written or waiting.
    events: u64,
    /// Strings met lately: most rows repeat one, and a copy of what is here is a count.
    strings: HashMap<Box<str>, ByteArray>,
}

/// Strings kept for reuse; beyond these all are forgotten.
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

    /// Writes what is left and the metadata; returns the sink and the number of events.
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

/// The columns that not every event has.
#[derive(Default)]
struct Row<'t> {
    from_task: Option<i32>,
    to_task: Option<i32>,
    text: Option<&'t str>,
    pages: Option<i64>,
    reason: Option<i32>,
    target: Option<i32>,
    call: Option<bool>,
    address: Option<i64>,
    length: Option<i64>,
    argument: Option<i64>,
}

impl<'t> Row<'t> {
    /// Sets what `what` has; returns the event's name.
    fn fill(&mut self, what: &What<'t>) -> &'static str {
        match *what {
            What::Switch { from, state, to } => {
                self.to_task = Some(to as i32);
                self.text = Some(state);
                self.from_task = Some(from as i32);
                "switch"
            }
            What::Flush { pages, reason } => {
                self.pages = Some(pages);
                self.reason = Some(reason as i32);
                "flush"
            }
            What::Queued { target, shootdown } => {
                self.target = Some(target as i32);
                self.call = Some(shootdown);
                "queued"
            }
            What::Interrupt { target, call } => {
                self.target = Some(target as i32);
                self.call = Some(call);
                "interrupt"
            }
            What::Interrupts { targets, call } => {
                self.text = Some(targets);
                self.call = Some(call);
                "interrupts"
            }
            What::HandlerEntry => "handler",
            What::Fork { child } => {
                self.to_task = Some(child as i32);
                "fork"
            }
            What::Exec => "exec",
            What::Exit => "exit",
            What::Fault { address } => {
                self.address = Some(address as i64);
                "fault"
            }
            What::Call {
                call,
                address,
                length,
                argument,
            } => {
                self.address = Some(address as i64);
                self.length = Some(length as i64);
                self.argument = Some(argument as i64);
                Call::ALL
                    .iter()
                    .find(|(_, known)| *known == call)
                    .map_or("madvise", |(name, _)| name)
            }
        }
    }

    fn what(&self, event: &str) -> Option<What<'t>> {
        Some(match event {
            "switch" => What::Switch {
                from: self.from_task? as u32,
                state: self.text?,
                to: self.to_task? as u32,
            },
            "flush" => What::Flush {
                pages: self.pages?,
                reason: Reason::numbered(self.reason? as u64)?,
            },
            "queued" => What::Queued {
                target: self.target? as u32,
                shootdown: self.call?,
            },
            "interrupt" => What::Interrupt {
                target: self.target? as u32,
                call: self.call?,
            },
            "interrupts" => What::Interrupts {
                targets: self.text?,
                call: self.call?,
            },
            "handler" => What::HandlerEntry,
            "fork" => What::Fork {
                child: self.to_task? as u32,
            },
            "exec" => What::Exec,
            "exit" => What::Exit,
            "fault" => What::Fault {
                address: self.address? as u64,
            },
            name => What::Call {
                call: Call::ALL.iter().find(|(known, _)| *known == name)?.1,
                address: self.address? as u64,
                length: self.length? as u64,
                argument: self.argument? as u64,
            },
        })
    }
}

/// Reads a recording.
pub struct Reader<R: ChunkReader + 'static> {
    file: SerializedFileReader<R>,
    metadata: Metadata,
}

impl<R: ChunkReader + 'static> Reader<R> {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, is no Parquet file, or not a recording.
    pub fn open(file: R) -> Result<Self, Error> {
        let file = SerializedFileReader::new(file)?;
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
        Ok(Reader { file, metadata })
    }

    /// About the recording.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Number of events.
    pub fn events(&self) -> u64 {
        self.file.metadata().file_metadata().num_rows().max(0) as u64
    }

    /// Hands each event to `sink`, in order, until it returns false.
    ///
    /// # Errors
    /// When the file cannot be read, or a row is not an event.
    pub fn for_each(&self, mut sink: impl FnMut(&Event<'_>) -> bool) -> Result<(), Error> {
        let mut rows = Columns::new();
        for index in 0..self.file.num_row_groups() {
            let group = self.file.get_row_group(index)?;
            let count = group.metadata().num_rows().max(0) as usize;
            rows.read(&*group, count)?;
            if !rows.for_each(count, &mut sink)? {
                break;
            }
        }
        Ok(())
    }
}

/// Goes through one optional column, value by value.
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
