//! Text lines, one per flow: common to all text formats.

use super::Encoder;
use linerate_meter::Flow;
use std::io::{self, Write};

/// Appends the line of a flow, without a newline.
type Line = fn(&Flow, &mut Vec<u8>);

/// File of lines; writes only whole lines.
pub(super) struct Lines {
    out: Box<dyn Write + Send>,
    line: Line,
    /// Empty between calls; keeps its allocation.
    text: Vec<u8>,
}

impl Lines {
    /// Starts a file with `head`, which may be empty.
    pub(super) fn start(mut out: Box<dyn Write + Send>, head: &str, line: Line) -> io::Result<Box<dyn Encoder>> {
        if !head.is_empty() {
            out.write_all(head.as_bytes())?;
            out.flush()?;
        }
        Ok(Box::new(Lines { out, line, text: Vec::new() }))
    }
}

impl Encoder for Lines {
    fn write(&mut self, flows: &[&Flow]) -> io::Result<()> {
        self.text.clear();
        for flow in flows {
            (self.line)(flow, &mut self.text);
            self.text.push(b'\n');
        }
        self.out.write_all(&self.text)?;
        self.out.flush()
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}
