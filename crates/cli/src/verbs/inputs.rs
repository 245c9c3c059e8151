//! Input of a run: ports, files, filter, reception.

mod any;
pub(super) mod file_conflicts;
mod hints;
mod kinds;
mod open_ports;
mod other_inputs;

pub(super) use self::file_conflicts::{check_distinct, check_output};
pub(super) use self::hints::notes_of;
pub(super) use self::kinds::{are_live, check_filter, is_file, is_port, link};
pub(super) use self::open_ports::check_take;
use super::capture_files;
use super::tcpdump_compat::TcpdumpArgs;
use super::units::count;
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::signals::read_text;
use crate::view::file_progress::FileProgress;
use crate::view::rates::grouped;
use crate::view::terminal::fail;
use linerate_backends::REGISTRY;
use linerate_engine::{Receive, RunReport, Selection, Stop, WaitStrategy};
use linerate_port::{RxOptions, RxPort, Spec};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of names in a line.
const MOST_LISTED: usize = 4;

/// Options of the input.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Input")]
pub(super) struct InputArgs {
    /// Ports, capture files or directories of them, unless given by -i or -r; then the filter (pcap-filter(7))
    #[arg(value_name = "PORT|FILE|FILTER", help_heading = None::<&str>)]
    words: Vec<String>,
    /// Port to receive from; repeatable, or several with commas; any is every interface that is up
    #[arg(short = 'i', long = "port", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,
    /// Capture file (also .gz, .zst, .lz4) or directory to read instead; - for standard input; repeatable
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: Vec<String>,
    /// Filter text, instead of trailing arguments
    #[arg(short = 'f', long, value_name = "TEXT")]
    filter: Option<String>,
    /// Read the filter text from a file
    #[arg(short = 'F', long, value_name = "FILE", conflicts_with = "filter")]
    filter_file: Option<PathBuf>,
    /// Take packets that interfaces receive, that this host sends, or both [default: inout]
    #[arg(short = 'Q', long, value_name = "DIRECTION", value_parser = ["in", "out", "inout"])]
    direction: Option<String>,
    /// Stop after N packets, such as 1000 or 10k; 0 for no limit
    #[arg(short = 'c', long, value_name = "N", value_parser = count)]
    packets: Option<u64>,
    /// Stop after S seconds, or 500ms, 5m, 1h
    #[arg(short = 'T', long = "duration", value_name = "S")]
    duration: Option<f64>,
    #[command(flatten)]
    pub tcpdump: TcpdumpArgs,
}

/// Options of reception.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reception")]
pub(super) struct ReceiveArgs {
    /// Do not put interfaces into promiscuous mode
    #[arg(short = 'p', long = "no-promiscuous")]
    no_promiscuous: bool,
    /// Exit with status 3 if a packet was or may have been lost; use the largest buffers
    #[arg(long)]
    pub lossless: bool,
    /// Let xdp: ports take packets away from this host even if it uses the interface
    #[arg(long)]
    take: bool,
    /// Poll without sleeping: lowest latency, one full core
    #[arg(long, conflicts_with = "sleep")]
    spin: bool,
    /// Always sleep between packets: least CPU time
    #[arg(long)]
    sleep: bool,
    #[command(flatten)]
    user: UserArgs,
}

/// Option of the user that a run switches to.
#[derive(Debug, clap::Args)]
pub(super) struct UserArgs {
    /// Drop privileges to USER after opening the ports; files are written as USER [default: the user of sudo, doas or
    /// pkexec, else linerate or nobody]
    #[arg(short = 'Z', long, value_name = "USER", help_heading = "Privileges")]
    user: Option<String>,
}

impl UserArgs {
    /// Chooses the user; `is_live`: interfaces are opened.
    pub(super) fn identity(&self, is_live: bool) -> anyhow::Result<Identity> {
        Identity::choose(self.user.as_deref(), is_live)
    }
}

/// Requirements of a verb on the received packets.
#[derive(Clone, Copy, Default)]
pub(super) struct InputRequirements {
    /// Bytes of each packet; 0 for all.
    pub snap: u32,
    /// Reordering window.
    pub lag: Option<Duration>,
    /// Only counts and sizes are needed.
    pub tally: bool,
    /// Only test packets from the wire are needed, not those that this host sends.
    pub tests: bool,
    /// Packets of all ports are merged in order of time.
    pub is_merged: bool,
}

/// Checked input.
pub(super) struct Inputs {
    pub specs: Vec<Spec>,
    pub filter: String,
    /// Maximum number of packets.
    pub frames: Option<u64>,
    pub duration: Option<Duration>,
    /// Interfaces that `any` skips, with the reason.
    left_out: Vec<String>,
}

impl InputArgs {
    /// Finds ports among the words, and mistakes before anything is opened.
    pub(super) fn check(&self) -> anyhow::Result<Inputs> {
        let given = self.filter_text()?;
        let (files, words) = self.words.split_at(self.leading_files());
        // Indexes are next to their files, as in `print DIR/*`.
        let files = files.iter().filter(|file| !file.ends_with(".idx"));
        let read: Vec<String> = self.read.iter().chain(files).cloned().collect();
        let (read, mut left_out) = capture_files::expand(read)?;
        if self.ports.is_empty() && read.is_empty() {
            hints::missing_file(words)?;
        }
        let (mut specs, filter) = ports_and_filter(words, &self.ports, &read, given.as_deref(), &mut left_out)?;
        if let Some(direction) = &self.direction {
            any::set_direction(&mut specs, direction)?;
        }
        kinds::check_mixed(&specs)?;
        check_filter(&filter, &specs).map_err(|error| hints::misplaced(words, is_port).map_or(error, usage))?;
        let duration = self.duration.map(|s| span("--duration", s)).transpose()?;
        Ok(Inputs { specs, filter, frames: self.packets.filter(|packets| *packets > 0), duration, left_out })
    }

    /// Reads words without a port as a filter for Ethernet, if neither port nor file is named.
    pub(super) fn filter_only(&mut self) {
        let is_named = !self.ports.is_empty() || !self.read.is_empty();
        let is_input = |word: &String| word.split(',').all(is_port) || hints::is_capture_file(word);
        if !is_named && !self.words.first().is_some_and(is_input) {
            self.ports.push("null:filter".to_owned());
        }
    }

    /// Returns the number of leading words that are capture files, such as those of `-r *.pcap`; none next to `-i`.
    fn leading_files(&self) -> usize {
        // After `-r FILE`, a word is rather part of the filter than a file of this name.
        let exists = if self.read.is_empty() { hints::is_file } else { hints::is_capture_file };
        let is_directory = |at| hints::is_directory(&self.words[at..], at == 0);
        let is_input = |(at, word): &(usize, &String)| (exists(word) || is_directory(*at)) && !is_port(word);
        let files = self.words.iter().enumerate().take_while(is_input).count();
        if self.ports.is_empty() { files } else { 0 }
    }

    /// Returns the filter text given by an option.
    fn filter_text(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.filter_file else { return Ok(self.filter.clone()) };
        let text = read_text(path).map_err(|error| usage(format!("-F: filter file {}: {error}", path.display())))?;
        // As in tcpdump, lines are joined and `#` starts a comment.
        let words = text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
        Ok(Some(words.collect::<Vec<_>>().join(" ")))
    }

    /// Returns a number in place of the filter or a port: perhaps it was meant for the option before it.
    pub(super) fn misplaced_number(&self) -> Option<&str> {
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        let names_port = self.ports.is_empty() && self.read.is_empty() && self.leading_files() == 0;
        let is_passed = |(at, word): &(usize, &String)| (*at == 0 && names_port && !is_number(word)) || is_port(word);
        let (_, word) = self.words.iter().skip(self.leading_files()).enumerate().find(|word| !is_passed(word))?;
        is_number(word).then_some(word)
    }
}

impl Inputs {
    /// Returns the selection of packets.
    pub(super) fn selection(&self) -> Selection {
        Selection { filter: self.filter.clone(), frames: self.frames, ..Selection::default() }
    }

    /// Returns the progress of reading, if all inputs are files that end.
    pub(super) fn reading(&self) -> Option<FileProgress> {
        let files: Option<Vec<String>> = self.specs.iter().map(|spec| REGISTRY.file(spec)).collect();
        FileProgress::of(&files?)
    }

    /// Returns the action on packets, for reports.
    pub(super) fn done(&self) -> &'static str {
        if self.are_files() { "read" } else { "captured" }
    }

    /// Returns whether all packets are from capture files, with the timestamps of these.
    pub(super) fn are_files(&self) -> bool {
        self.specs.iter().all(is_file)
    }

    /// Returns the ports as the user named them.
    pub(super) fn names(&self) -> Vec<String> {
        self.specs.iter().map(ToString::to_string).collect()
    }
}

impl ReceiveArgs {
    /// Chooses the user of the run after the ports are open.
    pub(super) fn identity(&self, inputs: &Inputs) -> anyhow::Result<Identity> {
        self.user.identity(are_live(&inputs.specs))
    }

    /// Opens the ports for a verb with these needs. Returns them with notes for the user.
    pub(super) fn open(&self, inputs: &Inputs, needs: InputRequirements) -> anyhow::Result<(Vec<RxPort>, Vec<String>)> {
        let InputRequirements { snap, lag, tally, tests, is_merged } = needs;
        let options = RxOptions {
            snap,
            promiscuous: !self.no_promiscuous,
            lag,
            lossless: self.lossless,
            take: self.take,
            shared: true,
            outgoing: !tests,
            tally,
            filter: inputs.filter.clone(),
            ..RxOptions::default()
        };
        check_take(self.take, &inputs.specs)?;
        let ports = open_ports::open(&inputs.specs, &options, is_merged)?;
        let notes: Vec<String> = ports.iter().flat_map(notes_of).chain(inputs.left_out.iter().cloned()).collect();
        Ok((ports, notes))
    }

    /// Returns the run.
    pub(super) fn run(&self, inputs: &Inputs, ports: Vec<RxPort>, stop: Stop) -> Receive {
        let waiting = match (self.spin, self.sleep) {
            (true, _) => WaitStrategy::Spin,
            (_, true) => WaitStrategy::Sleep,
            _ => WaitStrategy::Adaptive,
        };
        Receive { ports, waiting, duration: inputs.duration, stop }
    }

    /// Returns the exit status.
    pub(super) fn conclude(&self, run: &RunReport) -> Exit {
        if let Some(failure) = &run.failure {
            fail(failure);
            return Exit::Failed;
        }
        let proven = run.quiesced && run.ledger.lost() == 0 && run.ledger.imbalances().is_empty();
        if self.lossless && !proven { Exit::Lost } else { Exit::Done }
    }
}

/// Lists the first names in one line, and states the number of others: a directory may have thousands of files.
pub(super) fn listed(names: &[String]) -> String {
    let few = names[..names.len().min(MOST_LISTED)].join(", ");
    let rest = names.len().saturating_sub(MOST_LISTED) as u64;
    if rest > 0 { format!("{few} and {} more", grouped(rest)) } else { few }
}

/// Converts seconds given as an option.
pub(super) fn span(option: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        usage(format!("{option}: invalid duration {seconds}; expected seconds or a unit, such as 30, 500ms, 5m"))
    })
}

/// Returns the ports and the filter. Leading words that look like ports are ports, unless ports or files are given by
/// options. Interfaces that `any` skips are added to `left_out`.
fn ports_and_filter(
    words: &[String],
    ports: &[String],
    read: &[String],
    filter: Option<&str>,
    left_out: &mut Vec<String>,
) -> anyhow::Result<(Vec<Spec>, String)> {
    let mut words = words;
    let mut specs: Vec<Spec> = read.iter().map(|path| Spec::file(path)).collect();
    let mut names: Vec<String> = Spec::joined(ports.iter().map(String::as_str));
    if names.is_empty() && specs.is_empty() {
        let first = words
            .first()
            .ok_or_else(|| usage("no port given; expected one such as eth0 (see linerate ports), or -r FILE"))?;
        names = Spec::joined(first.split(','));
        words = &words[1..];
        while let Some((word, rest)) = words.split_first()
            && Spec::joined(word.split(',')).iter().all(|name| is_port(name))
        {
            names.extend(Spec::joined(word.split(',')));
            words = rest;
        }
    }
    for name in &names {
        if name.is_empty() {
            return Err(usage("empty port name; expected an interface, such as eth0 (see linerate ports)"));
        }
        let spec = Spec::parse(name).map_err(usage)?;
        if any::is_any_interface(&spec) {
            specs.extend(any::all_up(&spec, left_out)?);
            continue;
        }
        if !name.contains(':') && !is_port(name) && Path::new(name).is_file() {
            return Err(usage(hints::no_port(name)));
        }
        specs.push(spec);
    }
    let filter = match (filter, words) {
        (Some(_), [word, ..]) => {
            return Err(usage(format!("filter given twice: with --filter and as {word:?}; leave one out")));
        }
        (Some(text), []) => text.to_owned(),
        (None, words) => words.join(" "),
    };
    Ok((specs, filter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: InputArgs,
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
            ("x0 packet:y0?lanes=1 shm:f,mem:m ip", &["packet:x0", "packet:y0?lanes=1", "shm:f", "mem:m"], "ip"),
            ("x0 ether host 02:00:00:00:00:01", &["packet:x0"], "ether host 02:00:00:00:00:01"),
            ("x0 ip6 host fe80::1", &["packet:x0"], "ip6 host fe80::1"),
            ("dpdk:a0,size=60,copy=1@0-1,x0 ip", &["dpdk:a0,size=60,copy=1@0-1", "packet:x0"], "ip"),
            (
                "-i x0,dpdk:a0,mac=02:00:00:00:00:01,dpdk:b0",
                &["packet:x0", "dpdk:a0,mac=02:00:00:00:00:01", "dpdk:b0"],
                "",
            ),
            ("x0 dpdk:a0,size=60 tcp", &["packet:x0", "dpdk:a0,size=60"], "tcp"),
        ] {
            assert_eq!(asked(line), (ports.iter().map(|port| port.to_string()).collect(), filter.into()), "{line}");
        }
    }

    #[test]
    fn a_file_is_the_same_by_any_name_and_in_any_wrapper() {
        let folder = std::env::temp_dir().join(format!("linerate-inputs-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let name = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let [file, link, hard, other, part] = ["a.pcap", "link", "hard", "b.pcap", "c.part"].map(name);
        for file in [&file, &other, &part] {
            std::fs::write(file, "frames").unwrap();
        }
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::fs::hard_link(&file, &hard).unwrap();
        let is_refused = |port: &str, written: &str| check_output(&[Spec::parse(port).unwrap()], written).is_err();
        for port in
            [format!("pcap:{file}"), format!("faulty:pcap:{file}"), format!("faulty:faulty:pcap:{link}?drop=1%")]
        {
            for written in [&file, &link, &hard, &name("./a.pcap")] {
                assert!(is_refused(&port, written), "{port} {written}");
            }
            for written in [&other, &name("new.pcap"), &format!("{}/", folder.display()), "/dev/null", "null"] {
                assert!(!is_refused(&port, written), "{port} {written}");
            }
        }
        assert!(is_refused(&format!("pcap:{part}"), &name("c")));
        for written in [name("a.pcap.idx"), name("./a.pcap.idx")] {
            assert!(is_refused(&format!("pcap:{file}"), &written), "no index yet");
            std::fs::write(name("a.pcap.idx"), "index").unwrap();
            assert!(is_refused(&format!("pcap:{file}"), &written), "with an index");
        }
        assert!(!is_refused(&format!("pcap:{file}"), &name("b.pcap.idx")));
        assert!(!is_refused(&format!("packet:{file}"), &file));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
