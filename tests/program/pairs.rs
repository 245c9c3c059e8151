//! Every two options of a verb: together they do what neither does alone, or are refused.

use linerate_tests::support::program::{linerate, run};
use linerate_tests::support::records::Record;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, frames, may_make_labs, records};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What options are tried with; all that are not in [`APART`] are here, some behind the verb whose they are.
const VALUES: &[(&str, &[&str])] = &[
    ("filter", &["--filter", "ip or vlan"]),
    ("frames", &["--frames", "40"]),
    ("duration", &["--duration", "0.15"]),
    ("format", &["--format", "pcap-micros"]),
    ("comment", &["--comment", "hello"]),
    ("index", &["--index"]),
    ("from", &["--from", "1700000000.01"]),
    ("find to", &["--to", "1700000000.15"]),
    ("snap", &["--snap", "40"]),
    ("slice", &["--slice", "l3"]),
    ("filter-for", &["--filter-for", "write=not tcp"]),
    ("slice-for", &["--slice-for", "write=44"]),
    ("shard-for", &["--shard-for", "write=2/2"]),
    ("shard", &["--shard", "1/2"]),
    ("shard-inner", &["--shard-inner"]),
    ("dedup", &["--dedup=500"]),
    ("share", &["--share", "RING"]),
    ("share-memory", &["--share-memory", "8MiB"]),
    ("share-block", &["--share-block", "512KiB"]),
    ("share-group", &["--share-group", "root"]),
    ("lossless-readers", &["--lossless-readers"]),
    ("share-patience", &["--share-patience", "2"]),
    ("share-node", &["--share-node", "0"]),
    ("share-lock", &["--share-lock"]),
    ("share-small-pages", &["--share-small-pages"]),
    ("copy-threads", &["--copy-threads", "2"]),
    ("lag", &["--lag", "5"]),
    ("flows", &["--flows", "flows.jsonl"]),
    ("count", &["--count"]),
    ("print", &["--print=link"]),
    ("print-time", &["--print-time", "epoch"]),
    ("print-bytes", &["--print-bytes", "hex"]),
    ("capture rotate", &["--rotate", "0.03"]),
    ("rotate", &["--rotate", "5"]),
    ("rotate-size", &["--rotate-size", "2KiB"]),
    ("keep-files", &["--keep-files", "1"]),
    ("keep-size", &["--keep-size", "3KiB"]),
    ("on-full", &["--on-full", "go-on"]),
    ("direct", &["--direct"]),
    ("compress-threads", &["--compress-threads", "2"]),
    ("before", &["--before", "0.01", "--trigger", "udp"]),
    ("before-memory", &["--before-memory", "3MiB"]),
    ("after", &["--after", "0.005"]),
    ("trigger", &["--trigger", "udp"]),
    ("trigger-rate", &["--trigger-rate", "300pps"]),
    ("sync", &["--sync", "file"]),
    ("append", &["--append"]),
    ("level", &["--level", "stats"]),
    ("first-packets", &["--first-packets", "1"]),
    ("idle", &["--idle", "0.0005"]),
    ("active", &["--active", "0.02"]),
    ("max-flows", &["--max-flows", "9"]),
    ("id-seed", &["--id-seed", "x"]),
    ("vlans", &["--vlans"]),
    ("macs", &["--macs"]),
    ("tunnels", &["--tunnels", "outer"]),
    ("checksums", &["--checksums"]),
    ("json", &["--json"]),
    ("interval", &["--interval", "30"]),
    ("quiet", &["--quiet"]),
    ("ledger", &["--ledger"]),
    ("no-promiscuous", &["--no-promiscuous"]),
    ("lossless", &["--lossless"]),
    ("take", &["--take"]),
    ("spin", &["--spin"]),
    ("sleep", &["--sleep"]),
    ("user", &["--user", "root"]),
    ("follow", &["--follow", "0"]),
    ("form", &["--form", "hex"]),
    ("gaps", &["--gaps", "mark"]),
    ("overlap", &["--overlap", "last"]),
    ("gap-wait", &["--gap-wait", "0.5"]),
    ("held-memory", &["--held-memory", "1KiB"]),
    ("stream-memory", &["--stream-memory", "1KiB"]),
    ("max-connections", &["--max-connections", "1"]),
    ("max-files", &["--max-files", "1"]),
    ("protocols", &["--protocols"]),
    ("bursts", &["--bursts"]),
    ("check", &["--check"]),
    ("rows", &["--rows", "1"]),
    ("streams", &["--streams", "1"]),
    ("max-streams", &["--max-streams", "1"]),
    ("rate", &["--rate", "2kpps"]),
    ("line", &["--line", "10gbps"]),
    ("threads", &["--threads", "2"]),
    ("keep", &["--keep", "2"]),
    ("dry-run", &["--dry-run", "60"]),
    ("faults", &["--faults", "drop=1%"]),
    ("faults-back", &["--faults-back", "repeat=2%"]),
    ("rounds", &["--rounds", "2"]),
    ("ports", &["--ports", "2"]),
    ("no-reader", &["--no-reader"]),
    ("folder", &["--folder", "."]),
    ("bench size", &["--size", "64"]),
    ("bench flows", &["--flows", "256"]),
    ("size", &["--size", "100"]),
    ("burst", &["--burst", "3/1ms"]),
    ("poisson", &["--poisson"]),
    ("seed", &["--seed", "5"]),
    ("src-mac", &["--src-mac", "02:00:00:00:00:77"]),
    ("dst-mac", &["--dst-mac", "02:00:00:00:00:78"]),
    ("src-ip", &["--src-ip", "10.0.0.7"]),
    ("dst-ip", &["--dst-ip", "10.0.0.8"]),
    ("src-port", &["--src-port", "7"]),
    ("dst-port", &["--dst-port", "8"]),
    ("loops", &["--loops", "2"]),
    ("loop-delay", &["--loop-delay", "9ms"]),
    ("speed", &["--speed", "3"]),
    ("preload", &["--preload"]),
    ("split", &["--split", "0/2"]),
    ("to-server", &["--to-server", "pcap:server.pcap"]),
    ("split-by", &["--split-by", "port"]),
    ("rewrite", &["--rewrite", "ttl=5"]),
    ("rewrite-inner", &["--rewrite-inner"]),
    ("shift-ips", &["--shift-ips", "3"]),
    ("fix-checksums", &["--fix-checksums"]),
    ("pad", &["--pad"]),
    ("answer", &["--answer"]),
    ("answer-for", &["--answer-for", "10.0.0.0/24@02:00:00:00:00:01"]),
    ("answer-rate", &["--answer-rate", "5"]),
    ("gateway", &["--gateway", "10.0.0.1"]),
    ("resolve", &["--resolve"]),
    ("yes", &["--yes"]),
];

/// What is not tried, and why.
const APART: &[(&str, &str)] = &[
    ("help", "it is answered"),
    ("version", "it is answered"),
    ("read", "it stands in every line"),
    ("port", "no interface is touched here"),
    ("list-ports", "it stands alone"),
    ("write", "it stands in every line"),
    ("to", "it stands in every line"),
    ("packet", "it is one of three that are sent here"),
    ("udp", "the same"),
    ("src-ports", "it stands beside --udp"),
    ("replay", "the same"),
    ("share-wait", "it waits for readers"),
    ("stamp", "it puts the time into frames"),
    ("key", "it goes with --stamp"),
    ("workers", "which flows are whose is by chance"),
    ("verbose", "it counts waits, which are others each time"),
    ("memory", "it stands in every line"),
    ("quick", "the same"),
    ("netns", "the same"),
    ("make-index", "others would find what it made"),
];

/// What changes nothing that can be seen of a run over this file, and why it may be given all the same.
const UNSEEN: &[(&str, &str)] = &[
    ("spin", "how it waits"),
    ("sleep", "how it waits"),
    ("user", "whose rights it has"),
    ("lossless", "nothing is lost here"),
    ("yes", "a permission"),
    ("interval", "the run is over before"),
    ("copy-threads", "the frames are the same"),
    ("preload", "the frames are the same"),
    ("threads", "a file has one queue"),
    ("id-seed", "ids are random without it"),
    ("quiet", "--json is quiet by itself"),
    ("rows", "no streams are here"),
    ("share", "it is over before anybody reads"),
    ("share-group", "nobody attaches"),
    ("lossless-readers", "nobody attaches"),
    ("share-node", "where memory lies"),
    ("share-lock", "what memory is like"),
    ("shard-inner", "there are no tunnels here"),
    ("tunnels", "there are no tunnels here"),
    ("rewrite-inner", "there are no tunnels here"),
    ("pad", "no frame was cut"),
    ("seed", "it is of what is random alone"),
    ("active", "flows of this file are short"),
    ("duration", "a file is read to its end before"),
    ("ledger", "another word of it may say the same"),
    ("no-reader", "how fast it is"),
    ("on-full", "the disk is not full"),
    ("direct", "how the same is written"),
    ("before-memory", "there is more than it takes"),
    ("sync", "there is no power cut"),
    ("gaps", "no byte is missing"),
    ("overlap", "no bytes differ"),
    ("gap-wait", "nothing waits"),
    ("held-memory", "nothing waits"),
    ("stream-memory", "nothing waits"),
];

/// What one of two is or does anyway.
const IMPLIED: &[(&str, &str)] = &[
    // It is over before the second one.
    ("duration", "loops"),
    // The first frames are before that.
    ("frames", "to"),
    // One file is smaller.
    ("keep-files", "keep-size"),
    // The one comes first, and all that follows is written.
    ("trigger", "trigger-rate"),
    ("before", "trigger-rate"),
    // The first frames are over sooner than any silence, and no segment of these has a right checksum.
    ("frames", "idle"),
    ("checksums", "idle"),
    ("checksums", "max-files"),
    // Nothing is said, and no frame comes to the wire here.
    ("quiet", "faults"),
    ("quiet", "faults-back"),
];

/// Commands that options are added to.
const BASES: &[(&str, &[&str])] = &[
    ("capture", &["-r", "IN", "-w", "out.cap"]),
    ("capture", &["-r", "IN", "-w", "./%s.cap", "-C", "1KiB"]),
    ("count", &["-r", "IN"]),
    ("flows", &["-r", "IN", "-w", "out.jsonl"]),
    ("streams", &["-r", "IN"]),
    ("streams", &["-r", "IN", "-w", "out"]),
    ("generate", &["--to", "pcap:out.pcap", "-k", "ip(dst=10.0.0.1..10.0.0.9)/udp(sport=random(1024..60000))"]),
    ("generate", &["--to", "pcap:out.pcap", "--udp", "--src-ports", "4"]),
    ("generate", &["--to", "pcap:out.pcap", "--replay", "IN"]),
    ("find", &["IN", "-w", "out.cap"]),
    ("find", &["IN"]),
    ("wire", &["ONE", "OTHER", "-t", "0.1"]),
    ("demo", &["--memory", "--replay", "IN"]),
    ("ports", &["--netns", "NETNS"]),
    ("bench", &["--quick", "render"]),
    ("bench", &["--quick", "burst", "--size", "64", "--ports", "1"]),
    ("bench", &["--quick", "flows", "--flows", "256"]),
];

/// What words of [`BASES`] and [`VALUES`] stand for.
struct Names {
    input: String,
    /// Two ports that no frame comes to; those who may not make any go without.
    wire: Option<Wire>,
}

impl Names {
    /// Its words, where there is what they name.
    fn known(&self, words: &[&str]) -> Option<Vec<String>> {
        let wire = self.wire.as_ref();
        let word = |word: &&str| match *word {
            "IN" => Some(self.input.clone()),
            "ONE" => Some(wire?.port("a", "eth0", "")),
            "OTHER" => Some(wire?.port("b", "eth0", "")),
            "NETNS" => Some(wire?.namespace("a")),
            word => Some(word.to_owned()),
        };
        words.iter().map(word).collect()
    }
}

#[test]
fn every_two_options_of_a_verb_change_something_or_are_refused() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    let mut sample: Vec<Record> = frames::sample();
    // Of several hosts, and some come twice.
    sample.iter_mut().enumerate().for_each(|(place, record)| record.bytes[11] = place as u8 % 16);
    let doubled = sample.chunks(5).flat_map(|some| [&some[..1], some].concat());
    records::write(&input, &doubled.collect::<Vec<_>>());
    let names = Names { input, wire: may_make_labs().then(|| Wire::of(&["a:eth0,b:eth0"])) };
    let (mut wrong, mut excused) = (Vec::new(), BTreeSet::new());
    for (number, (verb, words)) in BASES.iter().enumerate() {
        let Some(base) = names.known(words) else { continue };
        let options: Vec<String> =
            options(verb).into_iter().filter(|name| !APART.iter().any(|(apart, _)| apart == name)).collect();
        let mut lines: Vec<Vec<String>> = options.iter().map(|one| vec![one.clone()]).collect();
        for (place, one) in options.iter().enumerate() {
            lines.extend(options[place + 1..].iter().map(|other| vec![one.clone(), other.clone()]));
        }
        let done = all(&lines, |line| done_of(verb, &base, line, number));
        for line in lines.iter().filter(|line| line.len() == 1) {
            let again = done_of(verb, &base, line, number + 100);
            if done[line] != again {
                wrong.push(format!("{verb} {} {line:?}: it is not the same each time", words.join(" ")));
            }
        }
        for line in lines.iter().filter(|line| line.len() == 2) {
            let Some(both) = &done[line] else { continue };
            for (one, other) in [(&line[0], &line[1]), (&line[1], &line[0])] {
                let is_implied = IMPLIED.contains(&(one.as_str(), other.as_str()));
                if is_implied || done[&vec![one.clone()]].as_ref() != Some(both) {
                    continue;
                }
                match UNSEEN.iter().find(|(name, _)| name == other) {
                    Some((name, _)) => drop(excused.insert(*name)),
                    None => wrong.push(format!("{verb} {} --{one}: --{other} changes nothing", words.join(" "))),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong.join("\n"));
    let unused: Vec<&str> = UNSEEN.iter().map(|(name, _)| *name).filter(|name| !excused.contains(name)).collect();
    assert!(unused.is_empty(), "always seen, and no longer to be excused: {unused:?}");
}

/// The long names of its options, as its help has them.
fn options(verb: &str) -> Vec<String> {
    let help = run(&[verb, "--help"]).good().output;
    let lines = help.split("\nExamples:").next().unwrap_or_default().lines().map(str::trim_start);
    let names = lines.filter_map(|line| {
        // `-x, --name`
        let line = if line.starts_with('-') && line.get(2..4) == Some(", ") { &line[4..] } else { line };
        let name = line.strip_prefix("--")?;
        Some(name.split(|c: char| !c.is_ascii_lowercase() && c != '-').next()?.to_owned())
    });
    let names: Vec<String> = names.collect();
    assert!(names.len() > 3, "{help}");
    for name in &names {
        let is_known = value(verb, name).is_some() || APART.iter().any(|(known, _)| known == name);
        assert!(is_known, "{verb} --{name}: say in VALUES what it is tried with");
    }
    names
}

/// What an option of a verb is tried with.
fn value(verb: &str, name: &str) -> Option<&'static [&'static str]> {
    let of_verb = format!("{verb} {name}");
    let find = |wanted: &str| VALUES.iter().find(|(known, _)| *known == wanted).map(|(_, words)| *words);
    find(&of_verb).or_else(|| find(name))
}

/// What came of all of them, some at a time.
fn all<T: Send>(lines: &[Vec<String>], work: impl Fn(&[String]) -> T + Sync) -> HashMap<Vec<String>, T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(HashMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(line);
                    done.lock().unwrap().insert(line.clone(), result);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// What can be seen of a run: status, words, files, without times; nothing where it was refused.
fn done_of(verb: &str, base: &[String], options: &[String], number: usize) -> Option<String> {
    let folder = Scratch::new();
    let ring = format!("pairs-{}-{number}-{}", std::process::id(), options.join("-"));
    let values = options.iter().flat_map(|name| value(verb, name).unwrap().iter().copied());
    let words = std::iter::once(verb).chain(base.iter().map(String::as_str)).chain(values);
    let words: Vec<&str> = words.map(|word| if word == "RING" { &ring } else { word }).collect();
    let out = linerate(&words).current_dir(folder.file("")).output().unwrap();
    if out.status.code() == Some(2) {
        return None;
    }
    let mut seen = format!("{:?}\n", out.status.code());
    for text in [out.stdout, out.stderr] {
        // A slow machine shows a line meanwhile.
        let is_live =
            |line: &&str| line.trim_start().split_once(" s ").is_some_and(|(at, _)| at.parse::<u32>().is_ok());
        let text = String::from_utf8_lossy(&text).replace(&ring, "RING");
        seen += &timeless(&text.lines().filter(|line| !is_live(line)).collect::<Vec<_>>().join("\n"));
    }
    let files: BTreeMap<String, String> =
        folder.names().into_iter().map(|name| (name.clone(), content(&folder.file(&name)))).collect();
    Some(format!("{seen}{files:?}"))
}

/// Text without what is of the time it was made at.
fn timeless(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split_inclusive(|c: char| " ,:;\n\"}]".contains(c)) {
        let plain = word.trim_end_matches(|c: char| " ,:;\n\"}]".contains(c));
        // Times of --dry-run have six digits.
        let is_due = plain.rsplit_once('.').is_some_and(|(_, digits)| digits.len() == 6);
        let is_number = plain.contains('.') && plain.parse::<f64>().is_ok() && !is_due;
        let is_id = plain.len() == 16 && plain.chars().all(|c| c.is_ascii_hexdigit());
        // A whole number of frames a second, or of thousands of them.
        let is_unit = ["k", "M", "G", "frames/s", "kb/s", "Mb/s", "Gb/s"].contains(&plain);
        if !is_number && !is_id && !is_unit && !plain.is_empty() {
            words.push(plain.to_owned());
        }
    }
    words.join(" ")
}

/// What is in a file: of captures frames and the gaps between them.
fn content(path: &str) -> String {
    if std::fs::metadata(path).unwrap().is_dir() {
        let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let names = names.iter().map(|name| name.to_str().unwrap());
        return names.map(|name| format!("{name}: {}\n", content(&format!("{path}/{name}")))).collect();
    }
    let bytes = std::fs::read(path).unwrap();
    if path.ends_with(".cap") || bytes.is_empty() {
        return format!("{bytes:x?}");
    }
    if !path.ends_with(".pcap") {
        // Records have no order of their own.
        let mut lines: Vec<String> = String::from_utf8_lossy(&bytes).lines().map(timeless).collect();
        lines.sort_unstable();
        return lines.join("\n");
    }
    let frames = records::parse(&bytes);
    let gaps: Vec<u64> = frames.windows(2).map(|pair| pair[1].time.wrapping_sub(pair[0].time)).collect();
    format!("{gaps:?} {:?}", frames.iter().map(Record::content).collect::<Vec<_>>())
}
