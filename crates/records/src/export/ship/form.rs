//! What batches are written as.

use super::Refusal;
use super::journal::Batch;
use crate::encode::{Origin, json, rowbinary};
use linerate_meter::Flow;
use std::io::Result;

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
    pub fn of(batch: &Batch) -> std::result::Result<Form, Refusal> {
        let form = FORMS.get(usize::from(batch.form)).copied();
        form.ok_or_else(|| Refusal::Never("it is of a form that this version does not know".to_owned()))
    }

    pub fn name(self) -> &'static str {
        match self {
            Form::Parquet => "parquet",
            Form::Json => "jsonl",
            Form::RowBinary => "rowbinary",
        }
    }

    /// How files end.
    pub fn ending(self) -> &'static str {
        self.name()
    }

    pub fn in_clickhouse(self) -> &'static str {
        match self {
            Form::Parquet => "Parquet",
            Form::Json => "JSONEachRow",
            Form::RowBinary => "RowBinary",
        }
    }

    /// Flows as a batch of this origin.
    pub fn encode(self, flows: &[&Flow], origin: Origin) -> Result<Vec<u8>> {
        match self {
            #[cfg(feature = "parquet")]
            Form::Parquet => {
                let mut writer = crate::encode::parquet::Writer::from(Vec::new(), origin)?;
                writer.write(flows)?;
                writer.finish()
            }
            #[cfg(not(feature = "parquet"))]
            Form::Parquet => {
                Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "this program was built without Parquet"))
            }
            Form::Json => Ok(json::lines_from(flows, &origin)),
            Form::RowBinary => Ok(rowbinary::rows_from(flows, &origin)),
        }
    }
}
