//! Results as rows and columns: the names of a run's figures, and reading and writing files of them.
//!
//! Owns the names of columns, which programs rely on, and both formats, CSV and Parquet. A test holds the two to the
//! same content.

use std::fs::File;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};
use serde::ser::{Serialize, Serializer};
use shootdown_sim::run::{RunResult, Values, axis};

use crate::failure::unread;

/// Column of the sweep's identity, on every row, so that shards can be matched.
pub const SWEEP: &str = "sweep";
/// Column of the point's index in the sweep, from 0.
pub const POINT: &str = "point";
/// Column of the number of points of the whole sweep.
pub const POINTS: &str = "points";
/// Column of the reason of a failed run.
pub const ERROR: &str = "error";

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unknown, or does not apply.
    Null,
    /// A count.
    Count(u64),
    /// A measure.
    Number(f64),
    /// Words.
    Text(String),
}

impl Value {
    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            Self::Null | Self::Text(_) => None,
        }
    }

    /// The value in CSV: the shortest form that reads back the same.
    fn written(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    /// Reads what [`Value::written`] wrote in a column of that kind.
    fn read(text: &str, kind: Kind) -> Option<Self> {
        match kind {
            _ if text.is_empty() => Some(Self::Null),
            Kind::Count => text.parse().ok().map(Self::Count),
            Kind::Number => text.parse().ok().map(Self::Number),
            Kind::Text => Some(Self::Text(text.to_string())),
        }
    }

    /// Reads a value of a column of that kind from JSON.
    pub fn from_json(value: &serde_json::Value, kind: Kind) -> Option<Self> {
        match kind {
            _ if value.is_null() => Some(Self::Null),
            Kind::Count => value.as_u64().map(Self::Count),
            Kind::Number => value.as_f64().map(Self::Number),
            Kind::Text => value.as_str().map(|text| Self::Text(text.to_string())),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// A row by column.
pub type Cells = Vec<(String, Value)>;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Count,
    /// Numbers.
    Number,
    /// Words.
    Text,
}

/// The type of the column of that name.
pub fn kind(column: &str) -> Kind {
    match column {
        SWEEP | ERROR | "workload" | "machine" | "design" | "diagnosis" | "caveat" => Kind::Text,
        POINT | POINTS | "cpus" | "threads" | "seed" | "ops" | "stale" | "accesses_checked" | "caught_after"
        | "events" => Kind::Count,
        _ if axis(column).is_some_and(|axis| matches!(axis.values, Values::Choices(_))) => Kind::Text,
        _ if column.starts_with("latency_") && column.ends_with("_count") => Kind::Count,
        _ => Kind::Number,
    }
}

/// The figures of a run by column: all but the buckets of histograms. The 90 % interval is that of the rate.
pub fn cells(result: &RunResult, interval: Option<[f64; 2]>) -> Vec<(String, Value)> {
    let count = |name: &str, count: u64| (name.to_string(), Value::Count(count));
    let number = |name: &str, number: f64| (name.to_string(), Value::Number(number));
    let end = |name: &str, end: usize| {
        let value = interval.map_or(Value::Null, |ends| Value::Number(ends[end]));
        (name.to_string(), value)
    };
    let mut cells = vec![
        count("ops", result.ops),
        number("virtual_ns", result.virtual_ns),
        number("ops_per_s", result.ops_per_s),
        end("interval_90_low", 0),
        end("interval_90_high", 1),
        (
            "half_width".to_string(),
            result.half_width.map_or(Value::Null, Value::Number),
        ),
        (
            "caveat".to_string(),
            result.caveat().map_or(Value::Null, |caveat| {
                Value::Text(crate::comparison::summary::caveat_in_words(caveat).to_string())
            }),
        ),
        number("ipis_per_op", result.ipis_per_op),
        number("interrupts_per_op", result.interrupts_per_op),
        number("flush_share", result.flush_share),
        count("stale", result.stale),
        count("accesses_checked", result.accesses_checked),
        (
            "caught_after".to_string(),
            result.caught_after.map_or(Value::Null, Value::Count),
        ),
        (
            "diagnosis".to_string(),
            result.diagnosis.clone().map_or(Value::Null, Value::Text),
        ),
        count("events", result.events),
    ];
    for (category, share) in &result.time_shares {
        cells.push(number(
            &format!("share_{}", category.replace([' ', ','], "_").replace("__", "_")),
            *share,
        ));
    }
    for latency in &result.latencies {
        let name = format!("latency_{}", latency.name.replace([' ', '-'], "_"));
        cells.push(count(&format!("{name}_count"), latency.count));
        cells.push(number(&format!("{name}_p50_ns"), latency.p50_ns));
        cells.push(number(&format!("{name}_p99_ns"), latency.p99_ns));
        cells.push(number(&format!("{name}_max_ns"), latency.max_ns));
    }
    cells.push(number("host_time_ns", result.host_seconds * 1e9));
    cells
}

/// Rows under named columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// Names of the columns, in order.
    pub columns: Vec<String>,
    /// Rows, as long as `columns`.
    pub rows: Vec<Vec<Value>>,
}

impl Results {
    /// Gathers rows of named cells; columns are ordered as they first appear, the reason of failed runs last.
    pub fn gather(rows: Vec<Vec<(String, Value)>>) -> Self {
        let mut columns: Vec<String> = Vec::new();
        let mut index = std::collections::HashMap::new();
        for (name, _) in rows.iter().flatten() {
            if name != ERROR && !index.contains_key(name) {
                index.insert(name.clone(), columns.len());
                columns.push(name.clone());
            }
        }
        index.insert(ERROR.to_string(), columns.len());
        columns.push(ERROR.to_string());
        let rows = rows
            .into_iter()
            .map(|cells| {
                let mut row = vec![Value::Null; columns.len()];
                for (name, value) in cells {
                    row[index[&name]] = value;
                }
                row
            })
            .collect();
        Self { columns, rows }
    }

    /// Index of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The named cells of each row.
    pub fn into_cells(self) -> impl Iterator<Item = Vec<(String, Value)>> {
        let columns = self.columns;
        self.rows
            .into_iter()
            .map(move |row| columns.iter().cloned().zip(row).collect())
    }

    /// The file's bytes in `format`.
    pub fn encode(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Csv => self.csv(),
            Format::Parquet => self
                .parquet()
                .expect("columns and rows are of one shape, and memory takes every byte"),
        }
    }

    fn csv(&self) -> Vec<u8> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut write = |record: Vec<String>| writer.write_record(record).expect("rows are as long as the header");
        write(self.columns.clone());
        for row in &self.rows {
            write(row.iter().map(Value::written).collect());
        }
        writer.into_inner().expect("memory takes every byte")
    }

    fn parquet(&self) -> parquet::errors::Result<Vec<u8>> {
        let mut fields: Vec<TypePtr> = Vec::new();
        for name in &self.columns {
            let (physical, logical) = match kind(name) {
                Kind::Count => (
                    Physical::INT64,
                    Some(LogicalType::Integer(parquet::basic::IntType {
                        bit_width: 64,
                        is_signed: false,
                    })),
                ),
                Kind::Number => (Physical::DOUBLE, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let field = Type::primitive_type_builder(name, physical)
                .with_logical_type(logical)
                .with_repetition(Repetition::OPTIONAL)
                .build()?;
            fields.push(Arc::new(field));
        }
        let schema = Type::group_type_builder("sweep").with_fields(fields).build()?;
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties)?;
        let mut group = writer.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            let values = || self.rows.iter().map(|row| &row[index]);
            let levels: Vec<i16> = values().map(|value| i16::from(*value != Value::Null)).collect();
            match kind(&self.columns[index]) {
                Kind::Count => {
                    let counts: Vec<i64> = values()
                        .filter_map(|value| match value {
                            Value::Count(count) => Some(*count as i64),
                            _ => None,
                        })
                        .collect();
                    column.typed::<Int64Type>().write_batch(&counts, Some(&levels), None)?;
                }
                Kind::Number => {
                    let numbers: Vec<f64> = values().filter_map(Value::number).collect();
                    column
                        .typed::<DoubleType>()
                        .write_batch(&numbers, Some(&levels), None)?;
                }
                Kind::Text => {
                    let texts: Vec<ByteArray> = values()
                        .filter_map(|value| match value {
                            Value::Text(text) => Some(ByteArray::from(text.as_str())),
                            _ => None,
                        })
                        .collect();
                    column
                        .typed::<ByteArrayType>()
                        .write_batch(&texts, Some(&levels), None)?;
                }
            }
            column.close()?;
            index += 1;
        }
        group.close()?;
        writer.into_inner()
    }

    /// Reads a file that [`Results::encode`] wrote.
    ///
    /// # Errors
    /// The error, with the line in CSV; the caller names the file.
    pub fn read(path: &Path, format: Format) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| unread(&error))?;
        match format {
            Format::Csv => Self::read_csv(&bytes),
            Format::Parquet => {
                let file = File::open(path).map_err(|error| error.to_string())?;
                Self::read_parquet(file).map_err(|error| error.to_string())
            }
        }
    }

    fn read_csv(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(Cursor::new(bytes));
        let header = reader.headers().map_err(|error| error.to_string())?;
        let columns: Vec<String> = header.iter().map(str::to_string).collect();
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| error.to_string())?;
            let line = record.position().map_or(0, |position| position.line());
            let cell = |(name, text): (&String, &str)| {
                Value::read(text, kind(name)).ok_or_else(|| {
                    format!(
                        "line {line}: {name}: expected a number, found `{}`",
                        text.escape_debug()
                    )
                })
            };
            rows.push(columns.iter().zip(record.iter()).map(cell).collect::<Result<_, _>>()?);
        }
        Ok(Self { columns, rows })
    }

    fn read_parquet(file: File) -> parquet::errors::Result<Self> {
        let reader = SerializedFileReader::new(file)?;
        let schema = reader.metadata().file_metadata().schema();
        let columns = schema
            .get_fields()
            .iter()
            .map(|field| field.name().to_string())
            .collect();
        let mut rows = Vec::new();
        for row in reader.get_row_iter(None)? {
            let value = |(_, field): (String, Field)| match field {
                Field::ULong(count) => Value::Count(count),
                Field::Double(number) => Value::Number(number),
                Field::Str(text) => Value::Text(text),
                _ => Value::Null,
            };
            rows.push(row?.into_columns().into_iter().map(value).collect());
        }
        Ok(Self { columns, rows })
    }
}

/// The form of a file of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values (RFC 4180), with a header.
    Csv,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    /// The form for a file name.
    ///
    /// # Errors
    /// When it ends in neither `.csv` nor `.parquet`.
    pub fn of(path: &Path) -> Result<Self, String> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            _ => Err(format!(
                "{}: expected the name of a file ending in .csv or .parquet",
                path.display()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::interval;
    use crate::runs::fake;

    fn sample() -> Results {
        let plan = fake::plan(&["ipi", "none"], &[1, 4]);
        let mut rows: Vec<Vec<(String, Value)>> = plan
            .specs()
            .iter()
            .map(|spec| {
                let mut row = vec![
                    ("design".to_string(), Value::Text(spec.design.clone())),
                    ("seed".to_string(), Value::Count(u64::MAX)),
                ];
                let result = fake::result(spec);
                row.extend(cells(&result, interval::of_run(spec, &result)));
                row
            })
            .collect();
        rows[0].push(("costs.rmw".to_string(), Value::Number(1.0 / 3.0)));
        rows.push(vec![(
            ERROR.to_string(),
            Value::Text("hangs, \"badly\"\nin two lines".to_string()),
        )]);
        Results::gather(rows)
    }

    #[test]
    fn both_formats_read_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let results = sample();
        for (name, format) in [("a.csv", Format::Csv), ("a.parquet", Format::Parquet)] {
            let path = folder.path().join(name);
            std::fs::write(&path, results.encode(format)).unwrap();
            assert_eq!(Results::read(&path, format).unwrap(), results, "{name}");
        }
    }

    #[test]
    fn truncated_results_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let bytes = sample().encode(Format::Parquet);
        std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        assert!(Results::read(&path, Format::Parquet).is_err());
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "design,threads\nipi,2\nipi,many\n").unwrap();
        assert_eq!(
            Results::read(&path, Format::Csv).unwrap_err(),
            "line 3: threads: expected a number, found `many`"
        );
    }

    #[test]
    fn every_figure_is_a_column_of_its_kind() {
        let plan = fake::plan(&["ipi"], &[4]);
        let spec = &plan.specs()[0];
        let result = fake::result(spec);
        for (name, value) in cells(&result, interval::of_run(spec, &result)) {
            let expected = match value {
                Value::Null => continue,
                Value::Count(_) => Kind::Count,
                Value::Number(_) => Kind::Number,
                Value::Text(_) => Kind::Text,
            };
            assert_eq!(kind(&name), expected, "{name}");
        }
        let results = sample();
        for name in [
            "share_lock_wait",
            "latency_flush_p99_ns",
            "latency_flush_count",
            "diagnosis",
        ] {
            assert!(results.column(name).is_some(), "{name}: {:?}", results.columns);
        }
        assert_eq!(results.columns.last().map(String::as_str), Some(ERROR));
    }
}
