//! The columns of the file, and how a group of rows of each is written and read.

use parquet::basic::{IntType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::Type;
use std::io::Write;
use std::sync::Arc;

/// One column of the rows being collected or read. `present` has a level per row when the column may be empty.
pub(super) struct Column<T: DataType> {
    pub(super) values: Vec<T::T>,
    pub(super) present: Option<Vec<i16>>,
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

    pub(super) fn push(&mut self, value: Option<T::T>) {
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
        pub(super) struct Columns { $(pub(super) $name: Column<$type>,)* }

        impl Columns {
            pub(super) fn new() -> Self {
                Columns { $($name: Column::$presence(),)* }
            }

            pub(super) fn schema() -> Result<Type, ParquetError> {
                let fields = vec![$({
                    let field = Type::primitive_type_builder(stringify!($name), Physical::$physical)
                        .with_repetition(columns!(@ $presence))
                        .with_logical_type($logical);
                    Arc::new(field.build()?)
                },)*];
                Type::group_type_builder("recording").with_fields(fields).build()
            }

            pub(super) fn write<S: Write + Send>(
                &mut self,
                group: &mut SerializedRowGroupWriter<'_, S>,
            ) -> Result<(), ParquetError> {
                $(self.$name.write(group)?;)*
                Ok(())
            }

            pub(super) fn read(&mut self, group: &dyn RowGroupReader, rows: usize) -> Result<(), ParquetError> {
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
