//! `--print`: a line a frame on standard output, and the options that say how it looks.

use super::super::inputs::is_file;
use super::Asked;
use crate::exit::usage;
use crate::view::terminal::show_bytes;
use linerate_burst::{Burst, Interface};
use linerate_engine::{Lines, Printing};
use linerate_print::{Bytes, Frame, Options, Printer, Time};
use std::str::FromStr;

/// Options of `--print`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Frames as text, one line each, as tcpdump -n prints them")]
pub(super) struct PrintArgs {
    /// Print a line a frame to standard output, as it is kept; what is said of the run goes to standard error. With link
    /// headers (link), more of each header (verbose), less (brief), TCP numbers as they are (absolute), nanoseconds
    /// (nanos)
    #[arg(long, value_name = "WITH,...", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    print: Option<With>,
    /// Print times, all UTC, as clock, date, epoch (seconds since 1970), first (since the first frame), delta (since the
    /// one before), or none
    #[arg(long, value_name = "FORM", default_value = "clock", hide_possible_values = true)]
    print_time: Form,
    /// Print bytes too, in lines behind that of the frame: hex, ascii, or hex,ascii; with link the link header among them
    #[arg(long, value_name = "FORM,...")]
    print_bytes: Option<Shape>,
}

/// What lines are to have; bytes and times are said by other options.
#[derive(Clone, Copy, Debug)]
struct With(Options);

/// How times look.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    Clock,
    Date,
    Epoch,
    First,
    Delta,
    None,
}

#[derive(Clone, Copy, Debug)]
struct Shape(Bytes);

impl PrintArgs {
    /// Whether frames are printed.
    pub(super) fn is_wanted(&self) -> bool {
        self.print.is_some()
    }

    /// Finds words that contradict each other.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self.print {
            Some(With(Options { verbose: true, brief: true, .. })) => {
                Err(usage("--print=verbose,brief: more of each header, or less?"))
            }
            Some(With(Options { absolute: true, brief: true, .. })) => {
                Err(usage("--print=absolute,brief: brief lines have no numbers of TCP"))
            }
            _ => Ok(()),
        }
    }

    /// What prints them; it waits for nobody where live frames have other outputs too.
    pub(super) fn printing(&self, asked: &Asked, has_others: bool) -> Printing<Screen> {
        let specs = &asked.inputs.specs;
        let time = match self.print_time {
            Form::Clock => Time::Clock,
            Form::Date => Time::Date,
            Form::Epoch => Time::Epoch,
            Form::First => Time::First,
            Form::Delta => Time::Delta,
            Form::None => Time::None,
        };
        let bytes = self.print_bytes.map_or(Bytes::default(), |shape| shape.0);
        let options = Options { time, bytes, ..self.print.map_or(Options::default(), |with| with.0) };
        let screen = Screen {
            printer: Printer::new(options),
            lines: Vec::with_capacity(2 * PART),
            ends: Vec::new(),
            has_ports: specs.len() > 1,
        };
        Printing::new(asked.print.clone(), screen, has_others && !specs.iter().all(is_file))
    }
}

/// Bytes of lines that are written at once, at least.
const PART: usize = 1 << 16;

/// Standard output.
pub(super) struct Screen {
    printer: Printer,
    lines: Vec<u8>,
    /// Where the lines of each frame end.
    ends: Vec<usize>,
    /// There are several ports, so each line says which.
    has_ports: bool,
}

impl Lines for Screen {
    fn write(&mut self, burst: Burst<'_>, interfaces: &[Interface]) -> usize {
        let has_names = self.has_ports || interfaces.len() > 1;
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

impl Screen {
    /// Prints the lines; of how many frames, of all that there are: fewer once nothing can be written any more.
    fn show(&mut self) -> (usize, usize) {
        let bytes = show_bytes(&self.lines);
        let shown = self.ends.iter().take_while(|end| **end <= bytes).count();
        let all = self.ends.len();
        self.lines.clear();
        self.ends.clear();
        (shown, all)
    }
}

/// Sets what each word of a list names.
fn words<T>(text: &str, mut value: T, known: &str, set: impl Fn(&mut T, &str) -> bool) -> Result<T, String> {
    for word in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
        if !set(&mut value, word) {
            return Err(format!("{word:?} is none of {known}"));
        }
    }
    Ok(value)
}

impl FromStr for With {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = "link, verbose, brief, absolute, nanos";
        let options = words(text, Options::default(), known, |options, word| {
            let option = match word {
                "link" => &mut options.link,
                "verbose" => &mut options.verbose,
                "brief" => &mut options.brief,
                "absolute" => &mut options.absolute,
                "nanos" => &mut options.nanos,
                _ => return false,
            };
            *option = true;
            true
        });
        options.map(With)
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = words(text, Bytes::default(), "hex, ascii, link", |bytes, word| {
            let option = match word {
                "hex" => &mut bytes.hex,
                "ascii" => &mut bytes.ascii,
                "link" => &mut bytes.link,
                _ => return false,
            };
            *option = true;
            true
        })?;
        if bytes.hex || bytes.ascii { Ok(Shape(bytes)) } else { Err("say hex, ascii, or both".to_owned()) }
    }
}
