//! Parquet: `linerate-columns`, which is built with the feature `parquet`.

use super::form::Encode;
use linerate_columns::Writer;
use linerate_meter::Flow;
use std::io::{self, Write};

pub(super) fn start(out: Box<dyn Write + Send>) -> io::Result<Box<dyn Encode>> {
    Ok(Box::new(Writer::new(out)?))
}

impl Encode for Writer<Box<dyn Write + Send>> {
    fn write(&mut self, flows: &[&Flow]) -> io::Result<()> {
        Writer::write(self, flows)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        Writer::finish(*self)?.flush()
    }
}
