//! Every pair of options of a verb: each option changes the result next to the other, or the pair is rejected.
//!
//! All pairs take thousands of runs, so each test run draws an eighth of them, seeded by `PROPTEST_RNG_SEED` if set.
//! `LINERATE_PAIRS=all` runs all of them.

mod tables;

use self::tables::{APART, BASES, IMPLIED, NO_FRAMES, UNSEEN, VALUES};
use linerate_tests::support::program::{linerate, run};
use linerate_tests::support::records::Record;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, frames, may_make_labs, records, tool};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values of the placeholders in [`BASES`] and [`VALUES`].
struct Names {
    input: String,
    /// Two ports without traffic; `None` if labs cannot be created.
    wire: Option<Wire>,
    /// Address of a TCP sink.
    sink: String,
    datagrams: UdpSocket,
}

impl Names {
    /// Replaces the placeholders; `None` if one needs a wire that does not exist.
    fn resolved(&self, words: &[&str]) -> Option<Vec<String>> {
        let wire = self.wire.as_ref();
        let word = |word: &&str| match *word {
            "IN" => Some(self.input.clone()),
            "ONE" => Some(wire?.port("a", "eth0", "")),
            "OTHER" => Some(wire?.port("b", "eth0", "")),
            "SINK" => Some(self.sink.clone()),
            "DATAGRAMS" => Some(self.datagrams.local_addr().unwrap().to_string()),
            "NETNS" => Some(wire?.namespace("a")),
            word => Some(word.to_owned()),
        };
        words.iter().map(word).collect()
    }
}

/// Beginning of some payloads.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";

#[test]
fn every_option_pair_has_an_effect_or_is_rejected() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    let mut sample: Vec<Record> = frames::sample();
    // Several hosts; some packets are duplicated.
    sample.iter_mut().enumerate().for_each(|(place, record)| record.bytes[11] = place as u8 % 16);
    // Some payloads name their protocol.
    for record in sample.iter_mut().filter(|record| (540..640).contains(&record.bytes.len())) {
        let begin = record.bytes.len() - 500;
        record.bytes[begin..begin + REQUEST.len()].copy_from_slice(REQUEST);
    }
    let doubled = sample.chunks(5).flat_map(|some| [&some[..1], some].concat());
    records::write(&input, &doubled.collect::<Vec<_>>());
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let wire = may_make_labs().then(|| Wire::of(&["a:eth0,b:eth0"]));
    let names = Names { input, wire, sink: sink(), datagrams };
    let (mut wrong, mut excused) = (Vec::new(), BTreeSet::new());
    let drawn = Drawn::new();
    for (number, (verb, words)) in BASES.iter().enumerate() {
        let Some(base) = names.resolved(words) else { continue };
        let options: Vec<String> =
            options(verb).into_iter().filter(|name| !APART.iter().any(|(apart, _)| apart == name)).collect();
        let mut lines: Vec<Vec<String>> = options.iter().map(|one| vec![one.clone()]).collect();
        for (place, one) in options.iter().enumerate() {
            let others = options[place + 1..].iter().filter(|other| drawn.has(number, one, other));
            lines.extend(others.map(|other| vec![one.clone(), other.clone()]));
        }
        let mut done = all(&lines, |line| done_of(verb, &base, line, number));
        for line in lines.iter().filter(|line| line.len() == 1) {
            let again = done_of(verb, &base, line, number + 100);
            if done[line] == again {
                continue;
            }
            // A busy machine may disturb one run: the result that occurs twice counts.
            let third = done_of(verb, &base, line, number + 200);
            if third == again {
                done.insert(line.clone(), again);
            } else if third != done[line] {
                wrong.push(format!("{verb} {} {line:?}: result differs between runs", words.join(" ")));
            }
        }
        for line in lines.iter().filter(|line| line.len() == 2) {
            let Some(both) = &done[line] else { continue };
            for (one, other) in [(&line[0], &line[1]), (&line[1], &line[0])] {
                let is_implied =
                    IMPLIED.contains(&(one.as_str(), other.as_str())) || one == "quiet" && NO_FRAMES.contains(verb);
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
    if drawn.is_all() {
        check_excuses(&excused);
    }
}

/// Fails for rows of [`UNSEEN`] that no pair needs.
fn check_excuses(excused: &BTreeSet<&str>) {
    let unused: Vec<&str> = UNSEEN.iter().map(|(name, _)| *name).filter(|name| !excused.contains(name)).collect();
    assert!(unused.is_empty(), "rows of UNSEEN without a pair that needs them: {unused:?}");
}

/// Selection of the pairs that are run.
struct Drawn {
    /// Seed of the selection; `None` selects all.
    seed: Option<u64>,
}

impl Drawn {
    fn new() -> Drawn {
        if std::env::var("LINERATE_PAIRS").is_ok_and(|which| which == "all") {
            return Drawn { seed: None };
        }
        let given = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
        Drawn { seed: Some(given.unwrap_or_else(|| RandomState::new().hash_one(0))) }
    }

    fn is_all(&self) -> bool {
        self.seed.is_none()
    }

    fn has(&self, base: usize, one: &str, other: &str) -> bool {
        let Some(seed) = self.seed else { return true };
        let mut hasher = DefaultHasher::new();
        (seed, base, one, other).hash(&mut hasher);
        hasher.finish().is_multiple_of(8)
    }
}

/// Starts a TCP server that discards all data, for the lifetime of this process.
fn sink() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut std::io::sink()));
        }
    });
    address
}

/// Long names of a verb's options, from its help.
fn options(verb: &str) -> Vec<String> {
    let help = run(&[verb, "--help"]).good().output;
    // Help sentences are indented further, and may begin with an option too.
    let is_option = |line: &&str| line.len() - line.trim_start().len() <= 6;
    let options = help.split("\nExamples:").next().unwrap_or_default().lines().filter(is_option);
    let lines = options.map(str::trim_start);
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
        assert!(is_known, "{verb} --{name}: add a value to VALUES");
    }
    names
}

/// Words that set an option of a verb.
fn value(verb: &str, name: &str) -> Option<&'static [&'static str]> {
    let of_verb = format!("{verb} {name}");
    let find = |wanted: &str| VALUES.iter().find(|(known, _)| *known == wanted).map(|(_, words)| *words);
    find(&of_verb).or_else(|| find(name))
}

/// Runs all lines, four at a time, and returns their results.
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

/// Parts of lines whose values depend on the kernel and on time.
const RANDOM: &[&str] = &["min RTT", "resent_segments", "min_rtt_us", "payload copy", "\"started_ns\"", "\"ended_ns\""];

/// Visible result of a run: status, output and files, without times; `None` if the options were rejected.
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
        // A slow machine prints interval lines.
        let is_live =
            |line: &&str| line.trim_start().split_once(" s ").is_some_and(|(at, _)| at.parse::<u32>().is_ok());
        let text = String::from_utf8_lossy(&text).replace(&ring, "RING");
        let is_random = |line: &&str| RANDOM.iter().any(|by| line.contains(by));
        let lines = text.lines().filter(|line| !is_live(line) && !is_random(line));
        seen += &timeless(&lines.map(without_ports).collect::<Vec<_>>().join("\n"));
    }
    // Files kept by a demo contain the times of their creation.
    let is_kept = |path: &str| verb == "demo" && std::fs::metadata(path).unwrap().is_dir();
    let seen_of = |path: &str| if is_kept(path) { "a folder".to_owned() } else { content(path) };
    let files: BTreeMap<String, String> =
        folder.names().into_iter().map(|name| (name.clone(), seen_of(&folder.file(&name)))).collect();
    Some(format!("{seen}{files:?}"))
}

/// Removes the ports after 127.0.0.1.
fn without_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "127.0.0.1" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Removes times, rates and ids from text.
fn timeless(text: &str) -> String {
    let (mut words, is_document) = (Vec::new(), text.contains("\"schema\""));
    for word in text.split_inclusive(|c: char| " ,:;\n\"}]".contains(c)) {
        let plain = word.trim_end_matches(|c: char| " ,:;\n\"}]".contains(c));
        // Times of --dry-run have six decimals; in a JSON document any number may have six.
        let is_due = !is_document && plain.rsplit_once('.').is_some_and(|(_, digits)| digits.len() == 6);
        // JSON prints small numbers as 2e-5.
        let is_number = plain.contains(['.', 'e']) && plain.parse::<f64>().is_ok() && !is_due;
        let is_id = plain.len() == 16 && plain.chars().all(|c| c.is_ascii_hexdigit());
        // Units of a rate without decimals.
        let is_unit = ["k", "M", "G", "packets/s", "frames/s", "kb/s", "Mb/s", "Gb/s"].contains(&plain);
        if ["packets/s", "frames/s"].contains(&plain)
            && words.last().is_some_and(|word: &String| word.parse::<u64>().is_ok())
        {
            // Below 1000 a rate has no prefix: 812 packets/s.
            words.pop();
        }
        if !is_number && !is_id && !is_unit && !plain.is_empty() {
            words.push(plain.to_owned());
        }
    }
    words.join(" ")
}

#[test]
fn timeless_removes_rates_and_times() {
    for (one, other) in [
        ("20 packets in 0.010 s: 2.0 k packets/s, 1.0 Mb/s L1", "20 packets in 0.025 s: 800 packets/s, 812.1 kb/s L1"),
        ("{\"schema\": 1, \"busy_seconds\": 2e-5}", "{\"schema\": 1, \"busy_seconds\": 0.000021}"),
        ("{\"schema\": 1, \"busy_seconds\": 1.25e-5}", "{\"schema\": 1, \"busy_seconds\": 0.5}"),
    ] {
        assert_eq!(timeless(one), timeless(other));
    }
    assert_ne!(timeless("20 frames"), timeless("21 frames"));
}

/// Comparable content of a file; for captures the frames and the gaps between them.
fn content(path: &str) -> String {
    /// Magic number of a frame (RFC 8878, section 3.1.1).
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
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
    if bytes.starts_with(&ZSTD) {
        // Flow ids differ between runs.
        let mut lines: Vec<String> = tool("zstd", &["-dcq", path]).lines().map(timeless).collect();
        lines.sort_unstable();
        return format!("compressed {}", lines.join("\n"));
    }
    if !path.ends_with(".pcap") {
        // Records have no defined order.
        let mut lines: Vec<String> = String::from_utf8_lossy(&bytes).lines().map(timeless).collect();
        lines.sort_unstable();
        return lines.join("\n");
    }
    let frames = records::parse(&bytes);
    let gaps: Vec<u64> = frames.windows(2).map(|pair| pair[1].time.wrapping_sub(pair[0].time)).collect();
    format!("{gaps:?} {:?}", frames.iter().map(Record::content).collect::<Vec<_>>())
}
