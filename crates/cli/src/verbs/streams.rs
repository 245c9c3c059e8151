//! `linerate streams`: reassembles TCP streams of captured traffic.

mod report;

use self::report::{SummaryJson, summary};
use super::inputs::{InputArgs, InputRequirements, ReceiveArgs, check_output, listed, span};
use super::report_options::ShowArgs;
use super::units::count;
use crate::exit::{Exit, usage};
use crate::signals::stop_on_signals;
use crate::view::ledger::{self, is_void};
use crate::view::live::{Live, answer};
use crate::view::terminal::{is_watched, print_stderr, records, result, result_document, shown};
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use linerate_engine::follow::{
    Conversation, ConversationFormat, FilesOptions, Gaps, NullOutput, StreamFiles, StreamOutput, StreamRecords,
};
use linerate_engine::{FollowConsumer, Progress};
use linerate_port::spec::parse_size;
use linerate_transport::follow::{Config, Overlap};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Options of `linerate streams`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # list streams, largest first
  linerate streams -r trace.pcap
  # write one file per direction, and an index
  linerate streams -r trace.pcap -w streams/
  # follow one connection as text, and another as raw bytes
  linerate streams -r trace.pcap --follow 3 --form ascii
  linerate streams -r trace.pcap --follow 4 > both
  # record streams of port 80 for a minute
  linerate streams eth0 -T 60 -w web/ tcp port 80
  # pipe all streams to another program as records
  linerate streams -r trace.pcap.zst -w - | ./reads-records
A stream is one direction of a connection, as received by its endpoint. Bytes
that were not captured are gaps, listed in the index with offset and length.
The index and the records are described in docs/follow.md")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Write one file per stream and streams.jsonl to this new or empty directory, or all streams as records to standard
    /// output (-)
    #[arg(help_heading = "Streams", short = 'w', long, value_name = "DIR/|-")]
    write: Option<String>,
    /// Write both directions of connection N to standard output, in order of arrival; numbers start at 0
    #[arg(help_heading = "Streams", long, value_name = "N", conflicts_with = "write")]
    follow: Option<u64>,
    /// Format of --follow
    #[arg(help_heading = "Streams", long, value_name = "FORM", default_value = "raw")]
    form: FormArg,
    /// Content of files for missing bytes
    #[arg(help_heading = "Streams", long, value_name = "WHAT", default_value = "zeros")]
    gaps: GapsArg,
    /// Data to keep where overlapping segments differ: that of the first or last one, or as the given operating system
    /// does
    #[arg(help_heading = "Streams", long, value_name = "POLICY", default_value = "first",
          value_parser = PossibleValuesParser::new(Overlap::NAMES.map(|(name, _)| name)))]
    overlap: String,
    /// Skip segments with a wrong checksum (captures on the sending host may contain unfinished checksums)
    #[arg(help_heading = "Streams", long)]
    checksums: bool,
    /// Seconds to wait for missing bytes that the receiver has acknowledged
    #[arg(help_heading = "Streams", long, value_name = "S", default_value = "1")]
    gap_wait: f64,
    /// Idle timeout of a connection in seconds
    #[arg(help_heading = "Streams", long, value_name = "S", default_value = "3600")]
    idle: f64,
    /// Maximum memory for out-of-order data of all streams
    #[arg(help_heading = "Streams", long, value_name = "SIZE", default_value = "256MiB")]
    held_memory: String,
    /// Maximum memory for out-of-order data of one stream
    #[arg(help_heading = "Streams", long, value_name = "SIZE", default_value = "16MiB")]
    stream_memory: String,
    /// Maximum number of tracked connections; when full, ended ones are evicted first, then those without data, then the
    /// least recently active
    #[arg(help_heading = "Streams", long, value_name = "N", default_value_t = 1 << 18, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    max_connections: u32,
    /// Maximum number of files; later streams are not written, and the exit status is 1
    #[arg(help_heading = "Streams", long, value_name = "N", default_value_t = 1_000_000, value_parser = count)]
    max_files: u64,
    /// List N streams, those with most bytes (1 to 10000) [default: 10]
    #[arg(help_heading = "Streams", long, value_name = "N", conflicts_with = "follow",
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    top: Option<u16>,
    /// Print the summary as one JSON document (schema linerate/streams/1)
    #[arg(help_heading = "Report", long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Formats of a followed connection.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormArg {
    /// Raw bytes
    Raw,
    /// Hex dump with offsets and text; the responder is indented
    Hex,
    /// Text, with a dot for each non-printable byte
    Ascii,
}

/// Content of files for missing bytes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum GapsArg {
    /// Zero bytes, sparse on most file systems
    Zeros,
    /// Nothing
    Skip,
    /// A line with the number of bytes
    Mark,
}

/// Maximum number of open files, within the usual limit of a process.
const OPEN: usize = 256;

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let inputs = args.input.check()?;
    let config = args.config()?;
    let identity = args.receive.identity(&inputs)?;
    args.write.iter().try_for_each(|target| check_output(&inputs.specs, target))?;
    let (ports, mut notes) =
        args.receive.open(&inputs, InputRequirements { is_merged: true, ..InputRequirements::default() })?;
    let assumed = identity.assume()?;
    let (out, folder) = assumed.open(|| args.outlet())?;
    let session = assumed.confine(&folder.into_iter().collect::<Vec<_>>());
    let stop = stop_on_signals(&session)?;
    notes.extend_from_slice(session.notes());

    // A summary must not be mixed with streams on standard output.
    let is_nowhere = args.write.is_none() && args.follow.is_none();
    let is_mixed = args.follow.is_some() || args.write.as_deref() == Some("-");
    let is_silent = args.show.quiet || args.json || is_mixed;
    if !is_silent {
        print_stderr(format_args!(
            "reassembling streams of {}: {}\n",
            shown(&listed(&inputs.names())),
            args.bounds(&config)
        ));
        notes.iter().for_each(|note| print_stderr(format_args!("  {}\n", shown(note))));
    }
    let progress = Progress::new();
    let interval = args.show.interval(is_silent || !is_watched() && !args.show.has_interval())?;
    let news = args.show.news(is_silent);
    let live = Live::start_reading(&progress, "followed", interval, inputs.reading());
    let answers = answer(&progress, "followed", String::new)?;
    let mut following = FollowConsumer::new(config, inputs.selection(), out).progress(Arc::clone(&progress));
    if let Some(most) = args.top {
        following = following.top(most.into());
    }
    let run = args.receive.run(&inputs, ports, stop).run(&mut [&mut following]);
    drop((live, answers, news));
    let followed = following.done();
    if args.json {
        result_document(&SummaryJson::new(&inputs, &config, &followed, &run), is_mixed)?;
    } else if (!args.show.quiet || is_nowhere) && !is_void(&run.ledger, run.failure.as_ref()) {
        result(ledger::run(&run, &summary(&followed, args.write.as_deref()), args.show.ledger), is_mixed);
    }
    Ok(args.receive.conclude(&run))
}

impl Args {
    fn config(&self) -> anyhow::Result<Config> {
        let overlap = Overlap::NAMES.into_iter().find(|(name, _)| *name == self.overlap);
        let is_folder = self.write.as_deref().is_some_and(|target| target != "-");
        if self.write.is_some() && !is_folder && (!matches!(self.gaps, GapsArg::Zeros)) {
            return Err(usage("--gaps has no effect with -w -: records contain the gaps"));
        }
        if self.top.is_some() && is_folder && self.show.quiet && !self.json {
            return Err(usage("--top has no effect with --quiet: no streams are listed"));
        }
        Ok(Config {
            overlap: overlap.map(|(_, overlap)| overlap).unwrap_or_default(),
            connections: self.max_connections as usize,
            memory: size("--held-memory", &self.held_memory)?,
            stream_memory: size("--stream-memory", &self.stream_memory)?,
            patience: span("--gap-wait", self.gap_wait)?,
            idle: span("--idle", self.idle)?,
            checksums: self.checksums,
        })
    }

    /// Opens the output; returns it with its folder.
    fn outlet(&self) -> anyhow::Result<(Box<dyn StreamOutput>, Option<OwnedFd>)> {
        if let Some(number) = self.follow {
            let form = match self.form {
                FormArg::Raw => ConversationFormat::Raw,
                FormArg::Hex => ConversationFormat::Hex,
                FormArg::Ascii => ConversationFormat::Ascii,
            };
            return Ok((Box::new(Conversation::new(records(), number, form)), None));
        }
        match self.write.as_deref() {
            None => Ok((Box::new(NullOutput), None)),
            Some("-") => Ok((Box::new(StreamRecords::new(records(), "standard output")), None)),
            Some(folder) => {
                let gaps = match self.gaps {
                    GapsArg::Zeros => Gaps::Zeros,
                    GapsArg::Skip => Gaps::Skip,
                    GapsArg::Mark => Gaps::Mark,
                };
                let options = FilesOptions { gaps, most: self.max_files, open: OPEN };
                let files = StreamFiles::new(Path::new(folder), options)?;
                let folder = files.folder()?;
                Ok((Box::new(files), Some(folder)))
            }
        }
    }

    /// Returns the limits as text.
    fn bounds(&self, config: &Config) -> String {
        format!(
            "at most {} connections ({} MiB), {} MiB for out-of-order data",
            config.connections,
            config.table_bytes() >> 20,
            config.memory >> 20
        )
    }
}

fn size(option: &str, text: &str) -> anyhow::Result<usize> {
    let size = parse_size(text).filter(|size| *size > 0).and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| usage(format!("{option} {text}: invalid size; expected bytes or a unit, such as 512KiB, 64MiB")))
}
