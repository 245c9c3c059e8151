//! Frames of bursts as text, in writes of some 64 KiB.

use crate::{Frame, Options, Printer};
use linerate_burst::{Burst, Interface};

/// Minimum number of bytes per write.
const PART: usize = 1 << 16;

/// Prints the frames of bursts.
#[derive(Debug)]
pub struct BurstPrinter {
    printer: Printer,
    lines: Vec<u8>,
    /// End positions of the lines of each frame.
    ends: Vec<usize>,
    has_ports: bool,
    /// Number of the last frame, if frames are numbered.
    number: Option<u64>,
}

impl BurstPrinter {
    /// Creates a printer. With `has_ports` each line names its interface, otherwise only where a burst has several of
    /// different names; with `is_numbered` each line begins with the number of its frame.
    pub fn new(options: Options, has_ports: bool, is_numbered: bool) -> Self {
        let lines = Vec::with_capacity(2 * PART);
        BurstPrinter {
            printer: Printer::new(options),
            lines,
            ends: Vec::new(),
            has_ports,
            number: is_numbered.then_some(0),
        }
    }

    /// Passes the lines of all frames to `write`, which returns how many bytes it took: less than all if nothing can be
    /// written any more. Returns the number of frames written in full.
    pub fn print(
        &mut self,
        burst: Burst<'_>,
        interfaces: &[Interface],
        write: &mut dyn FnMut(&[u8]) -> usize,
    ) -> usize {
        let has_names = self.has_ports || interfaces.windows(2).any(|pair| pair[0].name != pair[1].name);
        let mut written = 0;
        for (desc, bytes) in burst.iter() {
            let interface = interfaces.get(usize::from(desc.interface));
            let frame = Frame {
                time: desc.time.0,
                interface: interface.filter(|_| has_names).map_or("", |interface| &interface.name),
                link: interface.map_or(0, |interface| interface.link.0),
                bytes,
                wire: desc.wire,
            };
            if let Some(number) = &mut self.number {
                *number += 1;
                self.lines.extend_from_slice(format!("{number:5}  ").as_bytes());
            }
            self.printer.line(&frame, &mut self.lines);
            self.ends.push(self.lines.len());
            if self.lines.len() >= PART {
                let (taken, all) = self.pass_on(write);
                written += taken;
                if taken < all {
                    return written;
                }
            }
        }
        written + self.pass_on(write).0
    }

    /// Returns for how many frames that succeeded, and the number of frames.
    fn pass_on(&mut self, write: &mut dyn FnMut(&[u8]) -> usize) -> (usize, usize) {
        let bytes = if self.lines.is_empty() { 0 } else { write(&self.lines) };
        let taken = self.ends.iter().take_while(|end| **end <= bytes).count();
        let all = self.ends.len();
        self.lines.clear();
        self.ends.clear();
        (taken, all)
    }
}
