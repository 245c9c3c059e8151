//! Rows of Parquet files, by the names of their columns.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use linerate_meter::Quality;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Non-null columns of a row, by name.
pub(super) type Row = BTreeMap<String, Value>;

/// Returns all rows of a file.
pub(super) fn read(path: &Path) -> Vec<Row> {
    let file = File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let batches = reader.build().unwrap().map(|batch| batch.unwrap_or_else(|error| panic!("{path:?}: {error}")));
    batches.flat_map(|batch| (0..batch.num_rows()).map(move |row| one(&batch, row)).collect::<Vec<_>>()).collect()
}

/// Counts the rows of a file by reading all of them.
pub(super) fn count(path: &Path) -> usize {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap());
    let reader = reader.unwrap_or_else(|error| panic!("{path:?}: {error}")).build().unwrap();
    reader.map(|batch| batch.unwrap_or_else(|error| panic!("{path:?}: {error}")).num_rows()).sum()
}

/// Returns the number of rows in each row group.
pub(super) fn groups(path: &Path) -> Vec<i64> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect()
}

/// Converts a JSON line to the equivalent row.
pub(super) fn flat(line: &Value) -> Row {
    let mut row = Row::new();
    flatten("", line, &mut row);
    assert_eq!(row.remove("schema"), Some("linerate/flow/1".into()));
    for name in ["id", "tunnel_parent"] {
        if let Some(id) = row.get_mut(name) {
            *id = u64::from_str_radix(id.as_str().unwrap(), 16).unwrap().into();
        }
    }
    for prefix in ["", "orig_", "resp_"] {
        for name in ["first_time", "last_time"] {
            if let Some(time) = row.remove(&format!("{prefix}{name}_ns")) {
                row.insert(format!("{prefix}{name}"), time);
            }
        }
    }
    let quality = line["quality"].as_array().unwrap();
    for (_, name) in Quality::NAMES {
        row.insert(format!("quality_{name}"), quality.contains(&name.into()).into());
    }
    row.remove("quality");
    row
}

fn flatten(path: &str, value: &Value, row: &mut Row) {
    match value {
        Value::Null => {}
        Value::Array(list) if list.is_empty() => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}_{name}") };
                flatten(&path, value, row);
            }
        }
        value => {
            row.insert(path.to_owned(), value.clone());
        }
    }
}

fn one(batch: &RecordBatch, row: usize) -> Row {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let known = columns.filter(|(_, column)| !column.is_null(row));
    known.map(|(field, column)| (field.name().clone(), value(column, row))).collect()
}

fn value(column: &ArrayRef, row: usize) -> Value {
    match column.data_type() {
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => {
            column.as_primitive::<TimestampNanosecondType>().value(row).into()
        }
        DataType::List(_) => {
            let list = column.as_list::<i32>().value(row);
            list.as_primitive::<UInt64Type>().values().iter().map(|value| Value::from(*value)).collect()
        }
        other => panic!("a column of {other}"),
    }
}
