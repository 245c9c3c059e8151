//! `linerate count`: what is on these ports right now, by port and queue; nothing is kept.

mod check;
mod json;
mod rows;
mod screen;
mod text;

use self::json::SummaryJson;
use self::rows::Subject;
use super::capture::{check_filter, span};
use super::inputs::are_live;
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, confine};
use crate::signals::stop_on_signals;
use crate::view::ledger::is_void;
use crate::view::live::Live;
use crate::view::terminal::{fail, show, show_line, shown, tell};
use linerate_backends::{REGISTRY, open_rx};
use linerate_engine::{CheckWatch, Checking, CountReport, Counting, Selection, Stop, Waiting, Watch};
use linerate_generate::check::{Check, Options};
use linerate_generate::trailer::Key;
use linerate_port::{RxOptions, RxPort, Spec};
use std::path::Path;
use std::time::Duration;

/// Options of `linerate count`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  linerate count eth0                               what eth0 receives, now and in all
  linerate count eth0 eth1 -t 10 udp port 53        two ports for ten seconds, some of their frames
  linerate count -r trace.pcap --protocols          a file, at the rates of its own time
  linerate count eth0 --check                       loss, order, damage and latency of what generate sends
  linerate count eth0 --json --interval 0.1         a JSON line ten times a second, a last one in the end
Arguments are ports as long as they are scheme:target or name an interface; the rest is filter text.
Sizes count the FCS (64 means 60 bytes in a capture file) and fall into the buckets of RFC 2819. Rates of files are
over the time from the first frame counted to the last, others over the time of the run; the peak is the most in
one second of the clock, by the frames' own times.")]
pub struct Args {
    /// Ports (comma or blank between several), unless -i or -r is given; then filter text
    #[arg(value_name = "PORT|FILTER")]
    words: Vec<String>,
    /// A port to count on; may be given several times, or with commas
    #[arg(short = 'i', long = "port", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,
    /// A capture file to count instead (- for standard input); may be given several times
    #[arg(short = 'r', long = "read", alias = "from", value_name = "FILE")]
    read: Vec<String>,
    /// Filter text, instead of trailing arguments
    #[arg(short = 'f', long, value_name = "TEXT")]
    filter: Option<String>,
    /// Stop after this many frames
    #[arg(short = 'c', long = "count", value_name = "N")]
    count: Option<u64>,
    /// Stop after this many seconds
    #[arg(short = 't', long = "duration", alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    /// Show what happens every so many seconds; 0 for nothing until the end
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    interval: f64,
    /// Look into the frames and count their protocols too
    #[arg(long)]
    protocols: bool,
    /// Account for the frames of every stream by the trailers that generate puts into them
    #[arg(long, conflicts_with = "protocols")]
    check: bool,
    /// What the trailers are under, where the sender was given a key
    #[arg(long, value_name = "K", requires = "check")]
    key: Option<Key>,
    /// With --check, how many streams to show, those with most losses first; or all
    #[arg(long, value_name = "N", requires = "check", default_value = "10", value_parser = check::rows)]
    streams: check::Rows,
    /// With --check, the most streams that are told apart, 2 KiB each: frames of others are counted alone. Anybody can send
    /// frames of any stream
    #[arg(long, value_name = "N", requires = "check", default_value_t = 65_536,
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_streams: u32,
    /// Do not ask interfaces for frames to other hosts
    #[arg(short = 'p', long = "no-promiscuous")]
    no_promiscuous: bool,
    /// End with status 3 if a frame was lost, or may have been; buffers are chosen as large as that takes
    #[arg(long)]
    lossless: bool,
    /// Let xdp: ports take frames away from this host even where it uses the interface itself
    #[arg(long)]
    take: bool,
    /// Print JSON lines (schema linerate/count/1): one an interval, and a summary
    #[arg(long)]
    json: bool,
    /// Nothing while it runs, only the summary
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Never sleep while waiting for frames: a whole core
    #[arg(long, conflicts_with = "sleep")]
    spin: bool,
    /// Always sleep while waiting for frames: least work
    #[arg(long)]
    sleep: bool,
    /// Go on as this user once ports are open; files are written with its rights (default: whoever called sudo, doas or
    /// pkexec; of root at interfaces linerate, or nobody)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
}

/// What was asked for, checked.
struct Asked {
    specs: Vec<Spec>,
    filter: String,
    duration: Option<Duration>,
    interval: Duration,
}

/// Bytes of a frame that are asked for where nobody looks at them; lengths are told all the same.
const UNSEEN: u32 = 64;

/// Counts.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let asked = args.check()?;
    let identity = Identity::choose(args.user.as_deref(), are_live(&asked.specs))?;
    let ports = args.open_ports(&asked)?;
    let mut notes: Vec<String> =
        ports.iter().flat_map(|port| port.notes.iter().map(|note| format!("{}: {note}", port.name))).collect();
    identity.assume()?;
    notes.extend(identity.note());
    notes.extend(confine(&[]));
    let stop = Stop::new();
    stop_on_signals(&stop)?;

    let subject = Subject::new(&asked.specs);
    if !args.quiet && !args.json {
        announce(&subject, &notes);
    }
    if args.check {
        if !args.quiet && !args.json {
            check::announce(&args.check_options());
        }
        return args.run_check(&asked, ports, stop);
    }
    let watch = Watch::new();
    let live = args.start_live(&asked, &subject, &watch, &stop);
    let report = Counting {
        ports,
        selection: Selection { filter: asked.filter.clone(), frames: args.count, ..Selection::default() },
        protocols: args.protocols,
        waiting: args.waiting(),
        duration: asked.duration,
        stop,
        watch,
    }
    .run();
    drop(live);
    args.conclude(&asked, &subject, &report)
}

impl Args {
    fn check(&self) -> anyhow::Result<Asked> {
        let (specs, filter) = ports_and_filter(&self.words, &self.ports, &self.read, self.filter.as_deref())?;
        check_filter(&filter, &specs)?;
        let duration = self.duration.map(|s| span("--duration", s)).transpose()?;
        Ok(Asked { specs, filter, duration, interval: span("--interval", self.interval)? })
    }

    fn open_ports(&self, asked: &Asked) -> anyhow::Result<Vec<RxPort>> {
        let looks = self.protocols || self.check || !asked.filter.is_empty();
        let options = RxOptions {
            snap: if looks { 0 } else { UNSEEN },
            promiscuous: !self.no_promiscuous,
            lag: None,
            lanes: 0,
            lossless: self.lossless,
            take: self.take,
            filter: asked.filter.clone(),
        };
        Ok(asked.specs.iter().map(|spec| open_rx(spec, &options)).collect::<Result<Vec<_>, _>>()?)
    }

    fn check_options(&self) -> Options {
        Options { streams: self.max_streams as usize, ..Options::default() }
    }

    fn run_check(&self, asked: &Asked, ports: Vec<RxPort>, stop: Stop) -> anyhow::Result<Exit> {
        let watch = CheckWatch::new();
        let live = check::start_live(self, asked.interval, &watch, &stop);
        let report = Checking {
            ports,
            check: Check::new(self.key.unwrap_or_default(), self.check_options()),
            selection: Selection { filter: asked.filter.clone(), frames: self.count, ..Selection::default() },
            waiting: self.waiting(),
            duration: asked.duration,
            stop,
            watch,
        }
        .run();
        drop(live);
        check::conclude(self, &report)
    }

    fn waiting(&self) -> Waiting {
        match (self.spin, self.sleep) {
            (true, _) => Waiting::Spin,
            (_, true) => Waiting::Sleep,
            _ => Waiting::Adaptive,
        }
    }

    fn start_live(&self, asked: &Asked, subject: &Subject, watch: &Watch, stop: &Stop) -> Live {
        let (subject, watch, stop) = (subject.clone(), watch.clone(), stop.clone());
        if self.quiet || asked.interval.is_zero() {
            Live::none()
        } else if self.json {
            Live::every(asked.interval, json::ticker(subject, watch, stop))
        } else {
            Live::every(asked.interval, screen::ticker(subject, watch))
        }
    }

    fn conclude(&self, asked: &Asked, subject: &Subject, report: &CountReport) -> anyhow::Result<Exit> {
        if self.json {
            show_line(&SummaryJson::new(subject, &asked.filter, self.protocols, report))?;
        } else if !is_void(&report.ledger, report.failure.as_ref()) {
            show(text::summary(subject, self.protocols, report));
        }
        if let Some(failure) = &report.failure {
            fail(failure);
            return Ok(Exit::Failed);
        }
        let proven = report.quiesced && report.ledger.lost() == 0 && report.ledger.imbalances().is_empty();
        Ok(if self.lossless && !proven { Exit::Lost } else { Exit::Done })
    }
}

/// Ports and filter text, of words that are ports as long as they look like it, ports that were named as such, files, and
/// filter text that was given as such.
pub(super) fn ports_and_filter(
    words: &[String],
    ports: &[String],
    read: &[String],
    filter: Option<&str>,
) -> anyhow::Result<(Vec<Spec>, String)> {
    let mut words = words;
    let mut specs: Vec<Spec> = read.iter().map(|path| Spec::file(path)).collect();
    let mut names: Vec<&str> = ports.iter().map(String::as_str).collect();
    if names.is_empty() && specs.is_empty() {
        let first =
            words.first().ok_or_else(|| usage("which port? as in eth0 (linerate ports lists them), or -r FILE"))?;
        names = first.split(',').collect();
        words = &words[1..];
        while let Some((word, rest)) = words.split_first()
            && word.split(',').all(is_port)
        {
            names.extend(word.split(','));
            words = rest;
        }
    }
    for name in names {
        specs.push(Spec::parse(name).map_err(usage)?);
    }
    let filter = match (filter, words) {
        (Some(_), [word, ..]) => {
            return Err(usage(format!("filter text is given twice: with --filter and as {word:?}")));
        }
        (Some(text), []) => text.to_owned(),
        (None, words) => words.join(" "),
    };
    Ok((specs, filter))
}

fn announce(subject: &Subject, notes: &[String]) {
    tell(format_args!("counting {}\n", shown(&subject.names.join(", "))));
    for note in notes {
        tell(format_args!("  {}\n", shown(note)));
    }
}

/// Whether a word is a port, not filter text: it begins with the name of a backend, or is an interface here.
fn is_port(word: &str) -> bool {
    let Ok(spec) = Spec::parse(word) else { return false };
    if word.starts_with(&format!("{}:", spec.scheme)) {
        return REGISTRY.backends().iter().any(|backend| backend.scheme == spec.scheme);
    }
    let Some(at) = REGISTRY.interface(&spec) else { return false };
    let is_name = !at.target.starts_with('.') && !at.target.contains('/');
    is_name && Path::new("/sys/class/net").join(&at.target).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn asked(line: &str) -> (Vec<String>, String) {
        let words = std::iter::once("count").chain(line.split(' '));
        let asked = Line::try_parse_from(words).unwrap().args.check().unwrap();
        (asked.specs.iter().map(ToString::to_string).collect(), asked.filter)
    }

    #[test]
    fn ports_come_first_and_the_rest_is_filter_text() {
        for (line, ports, filter) in [
            ("x0", &["packet:x0"][..], ""),
            ("lo lo", &["packet:lo", "packet:lo"], ""),
            ("x0,y0@0-3 tcp or udp", &["packet:x0", "packet:y0@0-3"], "tcp or udp"),
            ("x0 packet:y0?lanes=1 pcap:f,mem:m ip", &["packet:x0", "packet:y0?lanes=1", "pcap:f", "mem:m"], "ip"),
            ("x0 ether host 02:00:00:00:00:01", &["packet:x0"], "ether host 02:00:00:00:00:01"),
            ("x0 ip6 host fe80::1", &["packet:x0"], "ip6 host fe80::1"),
            ("-i x0 -r f ip", &["pcap:f", "packet:x0"], "ip"),
        ] {
            assert_eq!(asked(line), (ports.iter().map(|port| port.to_string()).collect(), filter.into()), "{line}");
        }
    }
}
