//! `linerate find`: packets of recorded captures by time and filter, reading only the parts that can have matches.

mod index;
mod report;

use self::report::FindJson;
use super::capture::FileFormat;
use super::capture_files::{SearchFiles, no_such_file, search};
use super::inputs::{UserArgs, check_filter, check_output};
use super::print_options::PrintArgs;
use super::tcpdump_compat::TcpdumpArgs;
use super::units::count;
use crate::exit::{Exit, usage};
use crate::privileges::{READING, folders_of};
use crate::signals::{opening, stop_on_signals, waiting};
use crate::view::terminal::{fail, print_stderr, result, result_document, show, shown};
use anyhow::Context;
use linerate_burst::block::{BLOCK_BYTES, BLOCK_FRAMES};
use linerate_burst::{Block, Ledger, Nanos, Sink, SinkError};
use linerate_engine::LineWriter;
use linerate_index::{ENDING, Search};
use linerate_pcap::{Format, Output, Reader, Writer};
use linerate_port::Spec;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Instant, SystemTime};

/// Options of `linerate find`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # record with an index, then find a connection
  linerate capture eth0 -w /captures/all.pcapng --index
  linerate find /captures 'host 10.1.2.3 and port 443' -w one.pcapng
  # the last ten minutes; a day of DNS for tshark
  linerate find /captures --since -10m -w last.pcapng
  linerate find /captures --since 2026-11-22 --until 2026-11-23 -w - \\
    udp port 53 | tshark -r -
  # print packets: a host; names asked for, in hex and ASCII
  linerate find /captures host 10.1.2.3
  linerate find /captures -X udp port 53
  # all files of a directory as one, in order of time
  linerate export /captures -w all.pcapng.zst
  # the number of packets; indexes for files without one
  linerate find /captures --count net 192.0.2.0/24
  linerate find /captures --make-index
Directories are searched with all below: files called .pcap, .pcapng or .cap,
also with .gz, .zst or .lz4. Times are UTC: 2026-11-22, 2026-11-22T10:00:00.5,
...Z, ...+02:00, seconds since 1970, now, or a time ago: -90s, -10m, -2h, -1d.
No match exits with status 0 too; use --count in scripts. linerate export is
another name of find.")]
pub struct Args {
    /// Capture files and directories of them; then the filter
    #[arg(value_name = "DIR|FILE|FILTER", required_unless_present = "read")]
    words: Vec<String>,
    /// Search this file or directory; repeatable, same as an argument
    #[arg(short = 'r', long, value_name = "FILE")]
    read: Vec<String>,
    /// Take packets at this time or later, such as 2026-11-22T10:00 or -10m
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    since: Option<String>,
    /// Take packets before this time
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    until: Option<String>,
    /// Filter text (pcap-filter(7)), instead of trailing arguments
    #[arg(short = 'f', long, value_name = "TEXT")]
    filter: Option<String>,
    /// Stop after N packets; 0 for no limit
    #[arg(short = 'c', long, value_name = "N", value_parser = count)]
    packets: Option<u64>,
    /// Write packets to a file (- for standard output): pcap for .pcap and - (pcapng for several link types), else
    /// pcapng; compressed if .gz, .zst or .lz4 follows
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<String>,
    /// Format, instead of that of the file name
    #[arg(long, value_name = "FORMAT")]
    format: Option<FileFormat>,
    /// Print only the number of packets
    #[arg(long, conflicts_with_all = ["json", "write", "print"])]
    count: bool,
    /// Build missing or outdated indexes and exit
    #[arg(long)]
    make_index: bool,
    /// Print one JSON document at the end (schema linerate/find/1)
    #[arg(long)]
    json: bool,
    /// Print errors only, and less of each packet, like tcpdump -q
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    print: PrintArgs,
    /// Print more of each packet, like tcpdump -v
    #[arg(short = 'v', long, help_heading = "Printed packets")]
    verbose: bool,
    #[command(flatten)]
    tcpdump: TcpdumpArgs,
    #[command(flatten)]
    user: UserArgs,
}

/// Checked options.
struct FindOptions {
    found: SearchFiles,
    filter: String,
    from: Nanos,
    /// Latest time to search.
    last: Nanos,
    format: Format,
}

/// Runs the search.
pub fn run(mut args: Args) -> anyhow::Result<Exit> {
    args.print.unverified = args.tcpdump.leaves_checksums();
    args.print.print_unless(args.write.is_some() || args.count || args.json || args.make_index);
    let args = &args;
    let asked = args.check()?;
    let identity = args.user.identity(false)?;
    let places = folders_of(asked.found.files.iter().map(Path::new));
    let assumed = identity.assume_keeping(READING)?;
    if args.make_index {
        let session = assumed.confine_reading(&places, &places);
        // A signal ends it: an index has its name only once it is complete.
        return waiting(|| index::make_all(&asked.found, &identity, session.notes(), args.quiet, args.json));
    }
    let began = Instant::now();
    let (mut writer, folder) = assumed.open(|| args.open_writer(&asked))?;
    let session = assumed.confine_reading(&folder.into_iter().collect::<Vec<_>>(), &places);
    let stop = stop_on_signals(&session)?;
    let mut notes = report::Notes::new(args.quiet);
    notes.others(&asked.found);
    session.notes().iter().for_each(|what| notes.line(what));

    let mut search = Search::new(&asked.filter, asked.from..=asked.last);
    for path in &asked.found.files {
        search.add(path);
        if stop.is_requested() {
            break;
        }
    }
    let mut block = Block::new(BLOCK_BYTES, BLOCK_FRAMES);
    let mut lines = args.print.is_wanted().then(|| args.print.lines((args.verbose, args.quiet), false));
    let limit = args.packets.filter(|packets| *packets > 0).unwrap_or(u64::MAX);
    let (mut failure, mut is_whole) = (None, false);
    let mut taken = 0;
    while failure.is_none() && !stop.is_requested() && taken < limit {
        block.clear();
        let most = limit - taken;
        if !search.fill(&mut block, most)? {
            is_whole = true;
            break;
        }
        notes.all(search.notes());
        taken += block.len() as u64;
        if let Some(writer) = writer.as_mut().filter(|_| !block.is_empty()) {
            failure = writer.accept(block.view(0, search.interfaces())).err();
        }
        lines.take_if(|lines| lines.write(block.burst(), search.interfaces()) < block.len());
        // A reader that closes the pipe has all it wanted; a file is still written to its end.
        if args.print.is_wanted() && lines.is_none() && writer.is_none() {
            break;
        }
    }
    notes.all(search.notes());
    let mut ledger = Ledger::new();
    if let Some(writer) = &mut writer {
        failure = failure.or(args.finish(writer, &asked, &search, taken == 0 && notes.has_failed()).err());
        writer.counters(&mut ledger);
    }
    let is_piped = args.write.as_deref() == Some("-");
    failure.take_if(|error: &mut SinkError| is_piped && error.reason.kind() == ErrorKind::BrokenPipe);
    let is_output = is_piped || args.print.is_wanted();
    let is_stopped = stop.is_requested();
    let mut report = FindJson::new(&asked, &search, &notes, &ledger, began.elapsed(), (is_stopped, is_whole));
    report.failure = failure.as_ref().map(ToString::to_string);
    args.conclude(&report, is_output)?;
    if let Some(failure) = &failure {
        fail(failure);
    }
    Ok(if failure.is_some() || notes.has_failed() { Exit::Failed } else { Exit::Done })
}

impl Args {
    fn check(&self) -> anyhow::Result<FindOptions> {
        let is_there = |word: &&String| Path::new(word).symlink_metadata().is_ok();
        let named = if self.read.is_empty() { self.words.iter().take_while(is_there).count() } else { 0 };
        let (named, words) = self.words.split_at(named);
        // Indexes are next to their files, as in `find DIR/*`.
        let named = named.iter().filter(|path| !path.ends_with(ENDING));
        let places: Vec<String> = self.read.iter().chain(named).cloned().collect();
        if places.is_empty() {
            let word = self.words.first().map_or("", String::as_str);
            if word.ends_with(ENDING) && Path::new(word).exists() {
                return Err(usage(format!("{word}: an index; name the capture file next to it")));
            }
            anyhow::bail!("{}; files and directories come before the filter", no_such_file(word));
        }
        let filter = match (&self.filter, words) {
            (Some(_), [word, ..]) => {
                return Err(usage(format!("filter given twice: with --filter and as {word:?}; leave one out")));
            }
            (Some(text), []) => text.clone(),
            (None, words) => words.join(" "),
        };
        check_filter(&filter, &[Spec::file("a file")])?;
        self.print.check()?;
        if self.verbose && !self.print.is_wanted() {
            return Err(usage("-v needs --print next to other outputs"));
        }
        if self.print.is_wanted() && self.write.as_deref() == Some("-") {
            return Err(usage("--print and -w - both go to standard output; write to a file"));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Nanos::ZERO.after(now);
        let time = |option: &str, text: &Option<String>| {
            let parse = |text: &String| {
                linerate_pcap::time_parser::parse(text, now).map_err(|error| usage(format!("{option} {text}: {error}")))
            };
            text.as_ref().map(parse).transpose()
        };
        let from = time("--since", &self.since)?.unwrap_or(Nanos::ZERO);
        let last = match time("--until", &self.until)? {
            Some(to) if to <= from => {
                return Err(usage("--until must be after --since"));
            }
            Some(to) => Nanos(to.0 - 1),
            // Includes the latest possible time.
            None => Nanos::MAX,
        };
        let path = self.write.as_deref().unwrap_or("-");
        let format = match self.format {
            Some(format) => format.of(path)?,
            None => Format::of_path(path).map_err(|error| usage(format!("{error}; use another name or --format")))?,
        };
        let found = search(&places)?;
        let specs: Vec<Spec> = found.files.iter().map(|path| Spec::file(path)).collect();
        self.write.iter().try_for_each(|path| check_output(&specs, path))?;
        if self.make_index && !filter.is_empty() {
            return Err(usage("--make-index does not search; leave out the filter"));
        }
        Ok(FindOptions { found, filter, from, last, format })
    }

    /// Opens the output. Returns it with its directory.
    fn open_writer(&self, asked: &FindOptions) -> anyhow::Result<(Option<Writer>, Option<OwnedFd>)> {
        let Some(path) = &self.write else { return Ok((None, None)) };
        let output = opening(path, || Output::open(path)).with_context(|| format!("cannot write {path}"))?;
        let folder = output.folder().map(OwnedFd::try_clone).transpose()?;
        let may_change = path == "-" && self.format.is_none();
        Ok((Some(Writer::new(output, asked.format).or_pcapng(may_change)), folder))
    }

    /// Finishes the output; without packets it has the interfaces of the first file that has some.
    fn finish(
        &self,
        writer: &mut Writer,
        asked: &FindOptions,
        search: &Search,
        is_unused: bool,
    ) -> Result<(), SinkError> {
        if search.interfaces().is_empty() {
            let interfaces = |path: &String| {
                let mut reader = Reader::open(path).ok()?;
                let _ = reader.look();
                (!reader.interfaces().is_empty()).then(|| reader.interfaces().to_vec())
            };
            let interfaces = asked.found.files.iter().find_map(interfaces).unwrap_or_default();
            writer.accept(Block::new(0, 1).view(0, &interfaces))?;
        }
        let run = Ledger::new();
        if is_unused { writer.finish_unused(&run) } else { writer.finish(&run) }
    }

    fn conclude(&self, report: &FindJson<'_>, is_output: bool) -> anyhow::Result<()> {
        if self.json {
            result_document(report, is_output)?;
        } else if self.count {
            show(format_args!("{}\n", report.frames()));
        } else if !self.quiet {
            result(report.text(), is_output);
        }
        for hint in report.left_out() {
            print_stderr(format_args!("{}\n", shown(&hint)));
        }
        Ok(())
    }
}
