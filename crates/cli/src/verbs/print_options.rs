//! Packets as text on standard output, with the options of tcpdump.

use crate::exit::usage;
use crate::view::terminal::show_bytes;
use clap::ArgAction;
use linerate_burst::{Burst, Interface};
use linerate_engine::LineWriter;
use linerate_print::{BurstPrinter, Bytes, Options, Time};

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
    /// True for -K, which stands among the input options.
    #[arg(skip)]
    pub unverified: bool,
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

    /// Returns the writer of the lines, with more (`is_verbose`) or less (`is_brief`) of each header; each line names
    /// its port if `has_ports`.
    pub(super) fn lines(&self, (is_verbose, is_brief): (bool, bool), has_ports: bool) -> PrintedLines {
        let bytes = Bytes {
            hex: self.hex + self.hex_ascii > 0,
            ascii: self.ascii + self.hex_ascii > 0,
            link: self.hex.max(self.hex_ascii).max(self.ascii) > 1,
        };
        let options = Options {
            link: self.link_header,
            verbose: is_verbose,
            unverified: self.unverified,
            brief: is_brief,
            absolute: self.absolute_tcp_sequence_numbers,
            nanos: self.nano,
            time: TIMES[usize::from(self.time)],
            bytes,
        };
        PrintedLines(BurstPrinter::new(options, has_ports, self.number))
    }
}

/// Lines on standard output.
pub(super) struct PrintedLines(BurstPrinter);

impl LineWriter for PrintedLines {
    fn write(&mut self, burst: Burst<'_>, interfaces: &[Interface]) -> usize {
        self.0.print(burst, interfaces, &mut |lines| show_bytes(lines))
    }
}
