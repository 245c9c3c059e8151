//! What batches are written as.

use super::Refusal;
use super::journal::Batch;
use crate::encode::{Origin, json, rowbinary};
use linerate_meter::Flow;
use std::io::{Error, ErrorKind, Result};

/// What a batch is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "built without"))]
    Parquet,
    Json,
    RowBinary,
}

/// By the number that a journal has of each.
pub(super) const FORMS: [Form; 3] = [Form::Parquet, Form::Json, Form::RowBinary];

impl Form {
    /// That of a batch.
    pub(super) fn of(batch: &Batch) -> std::result::Result<Form, Refusal> {
        let form = FORMS.get(usize::from(batch.form)).copied();
        form.ok_or_else(|| Refusal::Never("it is of a form that this version does not know".to_owned()))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Parquet => "parquet",
            Form::Json => "jsonl",
            Form::RowBinary => "rowbinary",
        }
    }

    /// How files end.
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

    /// Flows as a batch of this origin.
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

    /// The first so many rows of a batch, and the others.
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
        let none = || Error::new(ErrorKind::InvalidData, "there are fewer rows");
        let (one, other) = at.and_then(|at| bytes.split_at_checked(at)).ok_or_else(none)?;
        Ok([one.to_vec(), other.to_vec()])
    }
}

/// Reads bytes as batches of rows.
pub(super) fn read_anything(bytes: &[u8]) {
    for form in [Form::Json, Form::RowBinary] {
        let halves = form.split(bytes, 3);
        assert!(halves.is_err() || halves.is_ok_and(|[one, other]| one.len() + other.len() == bytes.len()));
    }
}

/// Two batches with their bytes.
pub(super) type Halves = [(Batch, Vec<u8>); 2];

/// A batch as two; `None`: it is of one record, or halved too often.
pub(super) fn halves(batch: &Batch, bytes: &[u8]) -> Result<Option<Halves>> {
    let (Some(ids), Some(form), 2..) = (batch.id.halves(), FORMS.get(usize::from(batch.form)), batch.rows) else {
        return Ok(None);
    };
    let rows = [batch.rows / 2, batch.rows - batch.rows / 2];
    let [one, other] = form.split(bytes, rows[0] as usize)?;
    let half = |which: usize| Batch { id: ids[which], rows: rows[which], ..*batch };
    Ok(Some([(half(0), one), (half(1), other)]))
}
