//! Parquet writer, row group by row group. It opens no files.

mod workers;

use super::columns::{Column, columns};
use super::{Encoder, Origin, Settings};
use crate::fields::PresentParts;
use arrow_array::{ArrayRef, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use linerate_meter::Flow;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, ArrowWriterOptions};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use std::io::{Error, Result, Write};
use std::sync::Arc;

/// Rows per row group, the unit that a query reads or skips: large enough for columns to compress well, small enough
/// for several threads to share a file.
pub const GROUP_ROWS: usize = 1 << 17;

/// Flows per batch of column building, so that they stay in the cache while all columns are built.
const BATCH: usize = 1024;

/// Writes flows as a Parquet file, compressed with zstd.
///
/// Every file has the same columns; those above the level of the flows are null. Within one call of
/// [`write`](Writer::write) flows must be sorted by their first packet: each row group declares that order.
pub struct Writer<W: Write + Send> {
    columns: Vec<Column>,
    schema: SchemaRef,
    writer: SerializedFileWriter<W>,
    groups: ArrowRowGroupWriterFactory,
    /// Number of threads that build columns.
    threads: usize,
    /// Origin of the rows, and the number of rows so far.
    origin: Option<(Origin, u32)>,
}

impl<W: Write + Send> Writer<W> {
    /// Starts an empty file, written to `out`.
    ///
    /// # Errors
    /// Write errors.
    pub fn new(out: W) -> Result<Self> {
        Writer::over(out, None)
    }

    /// Starts a file with columns for the origin of each row, and without `community_id`, which any database can
    /// compute.
    ///
    /// # Errors
    /// Write errors.
    pub fn from(out: W, origin: Origin) -> Result<Self> {
        Writer::over(out, Some((origin, 0)))
    }

    fn over(out: W, origin: Option<(Origin, u32)>) -> Result<Self> {
        let columns = if origin.is_some() { columns_from() } else { columns() };
        let mut fields: Vec<_> = columns.iter().map(|column| column.field.clone()).collect();
        if origin.is_some() {
            fields.extend(ORIGIN.map(|(name, kind)| Field::new(name, kind, false)));
        }
        let schema = Arc::new(Schema::new(fields));
        let options = ArrowWriterOptions::new().with_properties(properties(&columns)).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(out, Arc::clone(&schema), options).map_err(io)?;
        let (writer, groups) = writer.into_serialized_writer().map_err(io)?;
        Ok(Writer { columns, schema, writer, groups, threads: 1, origin })
    }

    /// Sets the number of threads that build columns, including the calling one. It does not change the output.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Writer { threads: threads.max(1), ..self }
    }

    /// Adds flows, in row groups of their own.
    ///
    /// # Errors
    /// Write errors.
    pub fn write(&mut self, flows: &[&Flow]) -> Result<()> {
        flows.chunks(GROUP_ROWS).try_for_each(|flows| self.write_group(flows))
    }

    fn write_group(&mut self, flows: &[&Flow]) -> Result<()> {
        let number = self.writer.flushed_row_groups().len();
        let writers = self.groups.create_column_writers(number).map_err(io)?;
        let (columns, origin) = (&self.columns, &self.origin);
        let arrays = |column: usize, first: usize, flows: &[&Flow], has: PresentParts| -> Option<ArrayRef> {
            match (columns.get(column), origin) {
                (Some(column), _) => column.array(flows, has),
                (None, Some((origin, rows))) => {
                    Some(origin_of(origin, column - columns.len(), rows + first as u32, flows.len()))
                }
                // All columns are written.
                (None, None) => None,
            }
        };
        let chunks = workers::encode(flows, self.schema.fields(), writers, self.threads, arrays)?;
        let mut group = self.writer.next_row_group().map_err(io)?;
        chunks.into_iter().try_for_each(|chunk| chunk.append_to_row_group(&mut group)).map_err(io)?;
        group.close().map_err(io)?;
        if let Some((_, rows)) = &mut self.origin {
            *rows += flows.len() as u32;
        }
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// Write errors.
    pub fn finish(self) -> Result<W> {
        self.writer.into_inner().map_err(io)
    }
}

/// Splits a file with row origins in two: its first `rows` rows, and the rest.
///
/// # Errors
/// The bytes are not such a file.
pub(crate) fn split(bytes: &[u8], rows: usize) -> Result<[Vec<u8>; 2]> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::copy_from_slice(bytes)).map_err(io)?;
    let schema = Arc::clone(reader.schema());
    let of = columns_from();
    let begin = || {
        let options = ArrowWriterOptions::new().with_properties(properties(&of)).with_skip_arrow_metadata(true);
        ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&schema), options).map_err(io)
    };
    let (mut one, mut other, mut left) = (begin()?, begin()?, rows);
    for batch in reader.build().map_err(io)? {
        let batch = batch.map_err(Error::other)?;
        let own = left.min(batch.num_rows());
        left -= own;
        one.write(&batch.slice(0, own)).map_err(io)?;
        other.write(&batch.slice(own, batch.num_rows() - own)).map_err(io)?;
    }
    Ok([one.into_inner().map_err(io)?, other.into_inner().map_err(io)?])
}

/// Returns the columns of files with row origins.
fn columns_from() -> Vec<Column> {
    let mut columns = columns();
    columns.retain(|column| column.field.name() != "community_id");
    columns
}

/// Columns for the origin of a row.
const ORIGIN: [(&str, DataType); 4] =
    [("sensor", DataType::Utf8), ("run", DataType::UInt64), ("batch", DataType::UInt64), ("row", DataType::UInt32)];

/// Returns the values of an origin column.
fn origin_of(origin: &Origin, column: usize, rows: u32, count: usize) -> ArrayRef {
    match column {
        0 => Arc::new(StringArray::from(vec![origin.sensor.as_str(); count])),
        1 => Arc::new(UInt64Array::from(vec![origin.run; count])),
        2 => Arc::new(UInt64Array::from(vec![origin.batch; count])),
        _ => Arc::new((rows..).take(count).collect::<UInt32Array>()),
    }
}

pub(super) fn start(out: Box<dyn Write + Send>, settings: &Settings) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(Writer::new(out)?.threads(settings.threads)))
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
    // A dictionary is useless for values that rarely repeat.
    let rising = columns.iter().filter(|column| column.is_of_times()).map(|column| column.field.name().as_str());
    for name in rising.chain(["row"]) {
        let path = ColumnPath::from(name);
        properties = properties.set_column_dictionary_enabled(path.clone(), false);
        properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    for name in ["id", "community_id", "duration_ns", "orig_port"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    properties.build()
}

/// Returns the underlying system error, if any.
fn io(error: ParquetError) -> Error {
    match error {
        ParquetError::External(error) => match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => Error::other(error),
        },
        error => Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file, whole or split, declares its sort column.
    #[test]
    fn halves_declare_their_sort_column() {
        let origin = || Origin { sensor: "s".into(), run: 1, batch: 2 };
        let flow = |id: u64| Flow { id, ..crate::tests::flow() };
        let flows: Vec<Flow> = (0..30).map(flow).collect();
        let flows: Vec<&Flow> = flows.iter().collect();
        let file = |mut writer: Writer<Vec<u8>>| {
            writer.write(&flows).unwrap();
            writer.finish().unwrap()
        };
        let (whole, plain) =
            (file(Writer::from(Vec::new(), origin()).unwrap()), file(Writer::new(Vec::new()).unwrap()));
        let [one, other] = split(&whole, 10).unwrap();
        for (bytes, rows) in [(plain, 30), (whole, 30), (one, 10), (other, 20)] {
            let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap();
            let group = reader.metadata().row_group(0);
            assert_eq!((group.num_rows(), reader.metadata().num_row_groups()), (rows, 1));
            let sorted = &group.sorting_columns().unwrap()[0];
            assert_eq!(group.column(sorted.column_idx as usize).column_path().string(), "first_time");
        }
    }

    /// The file is identical for any number of threads.
    #[test]
    fn output_does_not_depend_on_threads() {
        let flow = |id: u64| {
            let mut flow = crate::tests::flow();
            flow.id = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            flow.ends[0].port = id as u16;
            flow.ends[1].address = std::net::Ipv4Addr::from((id % 777) as u32).into();
            flow.sides[0].packets = id % 19;
            flow
        };
        let flows: Vec<Flow> = (0..5000).map(flow).collect();
        let flows: Vec<&Flow> = flows.iter().collect();
        let file = |threads: usize, origin: Option<Origin>| {
            let mut writer = Writer::over(Vec::new(), origin.map(|origin| (origin, 0))).unwrap().threads(threads);
            writer.write(&flows[..3000]).unwrap();
            writer.write(&[]).unwrap();
            writer.write(&flows[3000..]).unwrap();
            writer.finish().unwrap()
        };
        for origin in [None, Some(Origin { sensor: "s".into(), run: 1, batch: 2 })] {
            let one = file(1, origin.clone());
            assert!(one.len() > 50_000);
            (2..6).for_each(|threads| assert!(file(threads, origin.clone()) == one, "{threads}"));
        }
        let empty = Writer::new(Vec::new()).unwrap().threads(3).finish().unwrap();
        assert!(empty.starts_with(b"PAR1") && empty.ends_with(b"PAR1"));
    }
}
