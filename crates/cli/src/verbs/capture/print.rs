//! Packets as text on standard output, with the options of tcpdump.

use super::super::inputs::is_file;
use super::CaptureOptions;
use crate::exit::usage;
use crate::view::terminal::show_bytes;
use clap::ArgAction;
use linerate_burst::{Burst, Interface};
use linerate_engine::{LineWriter, PrintConsumer};
use linerate_print::{Bytes, Frame, Options, Printer, Time};

/// Options of printed packets.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Printed packets")]
pub(super) struct PrintArgs {
    /// Print packets next to other outputs too; without other outputs they are printed anyway
    #[arg(long)]
    print: bool,
    /// Print the link-layer header
    #[arg(short = 'e', long)]
    link_header: bool,
    /// Time format; -t: no time, -tt: seconds since 1970, -ttt: since the previous packet, -tttt: with the date, -ttttt: since
    /// the first packet [default: time of day, UTC]
    #[arg(short = 't', action = ArgAction::Count)]
    time: u8,
    /// Print nanoseconds
    #[arg(long)]
    nano: bool,
    /// Print the bytes in hex; -xx with the link-layer header
    #[arg(short = 'x', action = ArgAction::Count)]
    hex: u8,
    /// Print the bytes in hex and ASCII; -XX with the link-layer header
    #[arg(short = 'X', action = ArgAction::Count)]
    hex_ascii: u8,
    /// Print the bytes in ASCII; -AA with the link-layer header
    #[arg(short = 'A', action = ArgAction::Count)]
    ascii: u8,
    /// Print absolute TCP sequence numbers
    #[arg(short = 'S', long)]
    absolute_tcp_sequence_numbers: bool,
    /// Number the lines
    #[arg(short = '#', long)]
    number: bool,
}

/// Forms of time by the number of `-t`.
const TIMES: [Time; 6] = [Time::Clock, Time::None, Time::Epoch, Time::Delta, Time::Date, Time::First];

impl PrintArgs {
    /// Returns whether packets are printed.
    pub(super) fn is_wanted(&self) -> bool {
        self.print
    }

    /// Prints packets if the run has no other output.
    pub(super) fn print_unless(&mut self, has_output: bool) {
        self.print |= !has_output;
    }

    /// Refuses options without effect.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let given = [
            ("-e", self.link_header),
            ("-t", self.time > 0),
            ("--nano", self.nano),
            ("-x", self.hex > 0),
            ("-X", self.hex_ascii > 0),
            ("-A", self.ascii > 0),
            ("-S", self.absolute_tcp_sequence_numbers),
            ("--number", self.number),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given && !self.print) {
            Some((option, _)) => Err(usage(format!("{option} needs --print next to other outputs"))),
            None if usize::from(self.time) >= TIMES.len() => Err(usage("-t: at most five times, -ttttt")),
            None => Ok(()),
        }
    }

    /// Starts printing, with more (`is_verbose`) or less (`is_brief`) of each header. With `has_others`, live packets
    /// are never held up by a slow reader of the lines.
    pub(super) fn printing(
        &self,
        asked: &CaptureOptions,
        (is_verbose, is_brief): (bool, bool),
        has_others: bool,
    ) -> PrintConsumer<TextPrinter> {
        let specs = &asked.inputs.specs;
        let bytes = Bytes {
            hex: self.hex + self.hex_ascii > 0,
            ascii: self.ascii + self.hex_ascii > 0,
            link: self.hex.max(self.hex_ascii).max(self.ascii) > 1,
        };
        let options = Options {
            link: self.link_header,
            verbose: is_verbose,
            brief: is_brief,
            absolute: self.absolute_tcp_sequence_numbers,
            nanos: self.nano,
            time: TIMES[usize::from(self.time)],
            bytes,
        };
        let screen = TextPrinter {
            printer: Printer::new(options),
            lines: Vec::with_capacity(2 * PART),
            ends: Vec::new(),
            has_ports: specs.len() > 1,
            number: self.number.then_some(0),
        };
        PrintConsumer::new(asked.print.clone(), screen, has_others && !specs.iter().all(is_file))
    }
}

/// Minimum number of bytes per write.
const PART: usize = 1 << 16;

/// Standard output.
pub(super) struct TextPrinter {
    printer: Printer,
    lines: Vec<u8>,
    /// End positions of the lines of each frame.
    ends: Vec<usize>,
    /// There are several ports, so each line names its own.
    has_ports: bool,
    /// Number of the last line, if lines are numbered.
    number: Option<u64>,
}

impl LineWriter for TextPrinter {
    fn write(&mut self, burst: Burst<'_>, interfaces: &[Interface]) -> usize {
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
                let (shown, all) = self.show();
                written += shown;
                if shown < all {
                    return written;
                }
            }
        }
        written + self.show().0
    }
}

impl TextPrinter {
    /// Prints the lines. Returns for how many packets that succeeded, and the number of packets.
    fn show(&mut self) -> (usize, usize) {
        let bytes = show_bytes(&self.lines);
        let shown = self.ends.iter().take_while(|end| **end <= bytes).count();
        let all = self.ends.len();
        self.lines.clear();
        self.ends.clear();
        (shown, all)
    }
}
