//! Parquet: row group by row group. Nothing here opens a file.

use super::columns::{Column, columns};
use super::{Encoder, Origin, Settings};
use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use linerate_meter::Flow;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use std::io::{Error, Result, Write};
use std::sync::Arc;

/// Rows of a group, which is what a query reads or leaves out as a whole: many enough for columns to compress, few
/// enough for several threads to share a file.
pub const GROUP_ROWS: usize = 1 << 17;

/// Flows whose columns are made at a time: they stay in the cache while column after column is made of them.
const BATCH: usize = 1024;

/// Writes flows as a Parquet file, with zstd.
///
/// Every file has the same columns; those that a level of detail does not have are null. Within one call of
/// [`write`](Writer::write) flows are to come in the order of their first packets: each row group says it is sorted so.
pub struct Writer<W: Write + Send> {
    columns: Vec<Column>,
    schema: SchemaRef,
    writer: ArrowWriter<W>,
    /// Where rows are from, and how many there are.
    origin: Option<(Origin, u32)>,
}

impl<W: Write + Send> Writer<W> {
    /// A file of no rows yet, written to `out`.
    ///
    /// # Errors
    /// Those of writing.
    pub fn new(out: W) -> Result<Self> {
        Writer::over(out, None)
    }

    /// The same, with columns that say where each row is from, and without `community_id`, which any store can compute.
    ///
    /// # Errors
    /// Those of writing.
    pub fn from(out: W, origin: Origin) -> Result<Self> {
        Writer::over(out, Some((origin, 0)))
    }

    fn over(out: W, origin: Option<(Origin, u32)>) -> Result<Self> {
        let mut columns = columns();
        if origin.is_some() {
            columns.retain(|column| column.field.name() != "community_id");
        }
        let mut fields: Vec<_> = columns.iter().map(|column| column.field.clone()).collect();
        if origin.is_some() {
            fields.extend(ORIGIN.map(|(name, kind)| Field::new(name, kind, false)));
        }
        let schema = Arc::new(Schema::new(fields));
        let options = ArrowWriterOptions::new().with_properties(properties(&columns)).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(out, Arc::clone(&schema), options).map_err(io)?;
        Ok(Writer { columns, schema, writer, origin })
    }

    /// Adds flows, in row groups of their own.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&mut self, flows: &[&Flow]) -> Result<()> {
        for flows in flows.chunks(BATCH) {
            let mut arrays: Vec<ArrayRef> = self.columns.iter().map(|column| column.array(flows)).collect();
            if let Some((origin, rows)) = &mut self.origin {
                arrays.extend(origin_of(origin, *rows, flows.len()));
                *rows += flows.len() as u32;
            }
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays).map_err(Error::other)?;
            self.writer.write(&batch).map_err(io)?;
        }
        self.writer.flush().map_err(io)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(self) -> Result<W> {
        self.writer.into_inner().map_err(io)
    }
}

/// Columns that say where a row is from.
const ORIGIN: [(&str, DataType); 4] =
    [("sensor", DataType::Utf8), ("run", DataType::UInt64), ("batch", DataType::UInt64), ("row", DataType::UInt32)];

fn origin_of(origin: &Origin, rows: u32, count: usize) -> [ArrayRef; 4] {
    [
        Arc::new(StringArray::from(vec![origin.sensor.as_str(); count])),
        Arc::new(UInt64Array::from(vec![origin.run; count])),
        Arc::new(UInt64Array::from(vec![origin.batch; count])),
        Arc::new((rows..).take(count).collect::<UInt32Array>()),
    ]
}

pub(super) fn start(out: Box<dyn Write + Send>, _: &Settings) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(Writer::new(out)?))
}

impl Encoder for Writer<Box<dyn Write + Send>> {
    fn write(&mut self, flows: &[&Flow]) -> Result<()> {
        Writer::write(self, flows)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Writer::finish(*self)?.flush()
    }
}

fn properties(columns: &[Column]) -> WriterProperties {
    let place = columns.iter().position(|column| column.field.name() == "first_time").unwrap_or_default();
    let sorted = SortingColumn { column_idx: place as i32, descending: false, nulls_first: false };
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_sorting_columns(Some(vec![sorted]))
        .set_created_by(concat!("linerate version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new("schema".to_owned(), "linerate/flow/1".to_owned())]));
    // Of values that hardly repeat a dictionary is made in vain.
    for column in columns.iter().filter(|column| column.is_of_times() || column.field.name() == "id") {
        let path = ColumnPath::from(column.field.name().as_str());
        properties = properties.set_column_dictionary_enabled(path.clone(), false);
        if column.is_of_times() {
            properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

/// What the system said, where it said something.
fn io(error: ParquetError) -> Error {
    match error {
        ParquetError::External(error) => match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => Error::other(error),
        },
        error => Error::other(error),
    }
}
