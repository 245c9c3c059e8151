//! What a run reads, how it receives that, and that it does not write over it.

mod any;
mod collected;
mod opened;
mod outputs;
mod told;

pub(super) use self::collected::{Collected, Held};
pub(super) use self::opened::check_take;
pub(super) use self::outputs::{check_distinct, check_output};
pub(super) use self::told::notes_of;
use super::habits::Accepted;
use super::units::count;
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::view::reading::Reading;
use crate::view::terminal::fail;
use linerate_backends::REGISTRY;
use linerate_backends::inventory::is_here;
use linerate_burst::LinkType;
use linerate_engine::{Receive, Received, Selection, Stop, Waiting};
use linerate_filter::Filter;
use linerate_port::{RxOptions, RxPort, Spec, Target};
use std::path::Path;
use std::time::Duration;

/// Options that say what a verb reads.
#[derive(Debug, clap::Args)]
pub(super) struct InputArgs {
    /// Ports (comma or blank between several), unless -i or -r is given; then filter text
    #[arg(value_name = "PORT|FILTER")]
    words: Vec<String>,
    /// A port to receive from, pcap:FILE among them; may be given several times, or with commas; any is every interface
    /// that is up
    #[arg(short = 'i', long = "port", visible_alias = "from", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,
    /// A capture file to read instead (- for standard input), also compressed by gzip, zstd or lz4; may be given
    /// several times
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: Vec<String>,
    /// Filter text as tcpdump takes it, instead of trailing arguments
    #[arg(short = 'f', long, value_name = "TEXT")]
    filter: Option<String>,
    /// Direction of the packets to take at interfaces: received, sent by this host, or both [default: inout]
    #[arg(short = 'Q', long, value_name = "DIRECTION", value_parser = ["in", "out", "inout"])]
    direction: Option<String>,
    /// Stop after this many frames, as in 1000 or 10k; 0 for no limit
    #[arg(short = 'c', long, value_name = "N", value_parser = count)]
    frames: Option<u64>,
    /// Stop after this many seconds, or as in 500ms, 5m, 1h
    #[arg(short = 't', long = "duration", alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    #[command(flatten)]
    _accepted: Accepted,
}

/// Options that say how a verb receives.
#[derive(Debug, clap::Args)]
pub(super) struct ReceiveArgs {
    /// Do not ask interfaces for frames to other hosts
    #[arg(short = 'p', long = "no-promiscuous")]
    no_promiscuous: bool,
    /// End with status 3 if a frame was lost, or may have been; buffers are chosen as large as that takes
    #[arg(long)]
    pub lossless: bool,
    /// Let xdp: ports take frames away from this host even where it uses the interface itself, and would get them too
    #[arg(long)]
    take: bool,
    /// Never sleep while waiting for frames: least delay, a whole core
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

/// What a verb needs of the frames.
#[derive(Clone, Copy, Default)]
pub(super) struct Needs {
    /// How many bytes of each; 0 for all.
    pub snap: u32,
    /// How late they may be.
    pub lag: Option<Duration>,
    /// How many there are, and of which sizes, alone.
    pub tally: bool,
    /// Frames of a test, which the host itself does not send.
    pub tests: bool,
    /// Whether packets of all ports are put in order of time.
    pub is_merged: bool,
}

/// What is read, checked.
pub(super) struct Inputs {
    pub specs: Vec<Spec>,
    pub filter: String,
    /// Most frames.
    pub frames: Option<u64>,
    pub duration: Option<Duration>,
    /// Interfaces that `any` does not mean, and why.
    left_out: Vec<String>,
}

impl InputArgs {
    /// Finds ports among the words, and mistakes before anything is opened.
    pub(super) fn check(&self) -> anyhow::Result<Inputs> {
        let mut left_out = Vec::new();
        let (mut specs, filter) =
            ports_and_filter(&self.words, &self.ports, &self.read, self.filter.as_deref(), &mut left_out)?;
        if let Some(direction) = &self.direction {
            any::set_direction(&mut specs, direction)?;
        }
        check_filter(&filter, &specs).map_err(|error| told::stray(&self.words, is_port).map_or(error, usage))?;
        let duration = self.duration.map(|s| span("--duration", s)).transpose()?;
        Ok(Inputs { specs, filter, frames: self.frames.filter(|frames| *frames > 0), duration, left_out })
    }

    /// The number that stands where filter text begins, or a port: perhaps it was meant for the option in front of it.
    pub(super) fn stray_number(&self) -> Option<&str> {
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        let names_port = self.ports.is_empty() && self.read.is_empty();
        let is_passed = |(at, word): &(usize, &String)| (*at == 0 && names_port && !is_number(word)) || is_port(word);
        let (_, word) = self.words.iter().enumerate().find(|word| !is_passed(word))?;
        is_number(word).then_some(word)
    }
}

impl Inputs {
    /// All that is asked for of frames.
    pub(super) fn selection(&self) -> Selection {
        Selection { filter: self.filter.clone(), frames: self.frames, ..Selection::default() }
    }

    /// How much of them is read, where they are files that end.
    pub(super) fn reading(&self) -> Option<Reading> {
        let files: Option<Vec<String>> = self.specs.iter().map(|spec| REGISTRY.file(spec)).collect();
        Reading::of(&files?)
    }

    /// Whether all frames come from capture files, at their own times.
    pub(super) fn are_files(&self) -> bool {
        self.specs.iter().all(is_file)
    }

    /// The ports as the user named them.
    pub(super) fn names(&self) -> Vec<String> {
        self.specs.iter().map(ToString::to_string).collect()
    }
}

impl ReceiveArgs {
    /// Who the run is once ports are open.
    pub(super) fn identity(&self, inputs: &Inputs) -> anyhow::Result<Identity> {
        Identity::choose(self.user.as_deref(), are_live(&inputs.specs))
    }

    /// Opens the ports for a verb with these needs; what was chosen, for people.
    pub(super) fn open(&self, inputs: &Inputs, needs: Needs) -> anyhow::Result<(Vec<RxPort>, Vec<String>)> {
        let Needs { snap, lag, tally, tests, is_merged } = needs;
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
        let ports = opened::open(&inputs.specs, &options, is_merged)?;
        let notes = ports.iter().flat_map(notes_of);
        let notes = notes.chain(inputs.left_out.iter().cloned()).collect();
        Ok((ports, notes))
    }

    /// The run.
    pub(super) fn run(&self, inputs: &Inputs, ports: Vec<RxPort>, stop: Stop) -> Receive {
        let waiting = match (self.spin, self.sleep) {
            (true, _) => Waiting::Spin,
            (_, true) => Waiting::Sleep,
            _ => Waiting::Adaptive,
        };
        Receive { ports, waiting, duration: inputs.duration, stop }
    }

    /// How it ended.
    pub(super) fn conclude(&self, run: &Received) -> Exit {
        if let Some(failure) = &run.failure {
            fail(failure);
            return Exit::Failed;
        }
        let proven = run.quiesced && run.ledger.lost() == 0 && run.ledger.imbalances().is_empty();
        if self.lossless && !proven { Exit::Lost } else { Exit::Done }
    }
}

/// Link types that filters differ on: Ethernet, IP without a link header, Linux cooked, 802.11. A text that is
/// right for none of them is right for no file.
const LINK_TYPES: [LinkType; 4] = [LinkType::ETHERNET, LinkType::RAW, LinkType(113), LinkType(105)];

/// Finds mistakes in filter text before anything is opened; which link types files have shows only later.
pub(super) fn check_filter(filter: &str, specs: &[Spec]) -> anyhow::Result<()> {
    let files_only = specs.iter().all(is_file);
    let links = if files_only { &LINK_TYPES[..] } else { &LINK_TYPES[..1] };
    let mut errors: Vec<_> = links.iter().filter_map(|link| Filter::compile(filter, link.0).err()).collect();
    if errors.len() < links.len() { Ok(()) } else { Err(usage(errors.swap_remove(0))) }
}

/// A number of seconds given as an option.
pub(super) fn span(option: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| usage(format!("{option}: {seconds} is no span of time")))
}

/// Ports and filter text, of words that are ports as long as they look like it, ports that were named as such, files, and
/// filter text that was given as such. What a port called any does not mean goes to `left_out`.
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
        let first =
            words.first().ok_or_else(|| usage("which port? as in eth0 (linerate ports lists them), or -r FILE"))?;
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
            return Err(usage(
                "the name of a port is empty; expected an interface, such as eth0 (linerate ports lists them)",
            ));
        }
        let spec = Spec::parse(name).map_err(usage)?;
        if any::is_meant(&spec) {
            specs.extend(any::all_up(&spec, left_out)?);
            continue;
        }
        if !name.contains(':') && !is_port(name) && Path::new(name).is_file() {
            return Err(usage(told::no_port(name)));
        }
        specs.push(spec);
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

/// Whether a word is a port, not filter text: it begins with the name of a backend, or is an interface here.
fn is_port(word: &str) -> bool {
    let Ok(spec) = Spec::parse(word) else { return false };
    if word.starts_with(&format!("{}:", spec.scheme)) {
        return REGISTRY.backends().iter().any(|backend| backend.scheme == spec.scheme);
    }
    let Some(at) = REGISTRY.interface(&spec) else { return false };
    let is_name = !at.target.starts_with('.') && !at.target.contains('/');
    is_name && is_here(&at.target)
}

/// Whether frames come from, or go to, interfaces of this machine.
pub(super) fn are_live<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> bool {
    let is_tunnel = |spec| REGISTRY.innermost(spec).is_ok_and(|(backend, _)| matches!(backend.target, Target::Tunnel));
    specs.into_iter().any(|spec| REGISTRY.interface(spec).is_some() || is_tunnel(spec))
}

/// Whether it is a capture file, behind whatever wrappers. To be written it is opened by whoever the program becomes.
pub(super) fn is_file(spec: &Spec) -> bool {
    REGISTRY.file(spec).is_some()
}

/// What frames of a port begin with.
pub(super) fn link(spec: &Spec) -> LinkType {
    let is_tunnel = REGISTRY
        .innermost(spec)
        .is_ok_and(|(backend, at)| matches!(backend.target, Target::Tunnel) && at.option("mode") != Some("tap"));
    if is_tunnel { LinkType::RAW } else { LinkType::ETHERNET }
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
            ("x0 packet:y0?lanes=1 pcap:f,mem:m ip", &["packet:x0", "packet:y0?lanes=1", "pcap:f", "mem:m"], "ip"),
            ("x0 ether host 02:00:00:00:00:01", &["packet:x0"], "ether host 02:00:00:00:00:01"),
            ("x0 ip6 host fe80::1", &["packet:x0"], "ip6 host fe80::1"),
            ("-i x0 -r f ip", &["pcap:f", "packet:x0"], "ip"),
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
            assert!(is_refused(&format!("pcap:{file}"), &written), "before there is an index");
            std::fs::write(name("a.pcap.idx"), "index").unwrap();
            assert!(is_refused(&format!("pcap:{file}"), &written), "beside an index");
        }
        assert!(!is_refused(&format!("pcap:{file}"), &name("b.pcap.idx")));
        assert!(!is_refused(&format!("packet:{file}"), &file));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
