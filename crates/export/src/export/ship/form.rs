//! Encodings of batches.

use super::Refusal;
use super::journal::Batch;
use crate::encode::{Origin, json, rowbinary};
use linerate_meter::Flow;
use std::io::{Error, ErrorKind, Result};

/// Encoding of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "built without"))]
    Parquet,
    Json,
    RowBinary,
}

/// Encodings by their number in the journal.
pub(super) const FORMS: [Form; 3] = [Form::Parquet, Form::Json, Form::RowBinary];

impl Form {
    /// Returns the encoding of a batch.
    pub(super) fn of(batch: &Batch) -> std::result::Result<Form, Refusal> {
        let form = FORMS.get(usize::from(batch.form)).copied();
        form.ok_or_else(|| Refusal::Never("its format is unknown to this version".to_owned()))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Parquet => "parquet",
            Form::Json => "jsonl",
            Form::RowBinary => "rowbinary",
        }
    }

    /// Returns the file extension.
    pub(super) fn ending(self) -> &'static str {
        self.name()
    }

    pub(super) fn in_clickhouse(self) -> &'static str {
        match self {
            Form::Parquet => "Parquet",
            Form::Json => "JSONEachRow",
            Form::RowBinary => "RowBinary",
        }
    }

    /// Encodes flows as a batch with this origin.
    pub(super) fn encode(self, flows: &[&Flow], origin: Origin) -> Result<Vec<u8>> {
        match self {
            #[cfg(feature = "parquet")]
            Form::Parquet => {
                let mut writer = crate::encode::parquet::Writer::from(Vec::new(), origin)?;
                writer.write(flows)?;
                writer.finish()
            }
            #[cfg(not(feature = "parquet"))]
            Form::Parquet => Err(Error::new(ErrorKind::Unsupported, "this program was built without Parquet")),
            Form::Json => Ok(json::lines_from(flows, &origin)),
            Form::RowBinary => Ok(rowbinary::rows_from(flows, &origin)),
        }
    }

    /// Splits a batch in two: its first `rows` rows, and the rest.
    fn split(self, bytes: &[u8], rows: usize) -> Result<[Vec<u8>; 2]> {
        let at = match self {
            #[cfg(feature = "parquet")]
            Form::Parquet => return crate::encode::parquet::split(bytes, rows),
            #[cfg(not(feature = "parquet"))]
            Form::Parquet => None,
            Form::Json => {
                bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(rows - 1).map(|(at, _)| at + 1)
            }
            Form::RowBinary => rowbinary::end_of(bytes, rows),
        };
        let none = || Error::new(ErrorKind::InvalidData, "batch has fewer rows");
        let (one, other) = at.and_then(|at| bytes.split_at_checked(at)).ok_or_else(none)?;
        Ok([one.to_vec(), other.to_vec()])
    }
}

/// Parses bytes as batches of rows.
pub(super) fn read_anything(bytes: &[u8]) {
    for form in [Form::Json, Form::RowBinary] {
        let halves = form.split(bytes, 3);
        assert!(halves.is_err() || halves.is_ok_and(|[one, other]| one.len() + other.len() == bytes.len()));
    }
}

pub(super) type Halves = [(Batch, Vec<u8>); 2];

/// Splits a batch in two; `None` for a single record, or after too many splits.
pub(super) fn halves(batch: &Batch, bytes: &[u8]) -> Result<Option<Halves>> {
    let (Some(ids), Some(form), 2..) = (batch.id.halves(), FORMS.get(usize::from(batch.form)), batch.rows) else {
        return Ok(None);
    };
    let rows = [batch.rows / 2, batch.rows - batch.rows / 2];
    let [one, other] = form.split(bytes, rows[0] as usize)?;
    let half = |which: usize| Batch { id: ids[which], rows: rows[which], ..*batch };
    Ok(Some([(half(0), one), (half(1), other)]))
}
