//! Which options mean something beside which others.
//!
//! An option that would change nothing is refused, with the reason, before anything is opened. What cannot be given together at all
//! is said where options are declared (`conflicts_with`); `requires` is not for options that conflict with others: clap leaves
//! it out where what is required conflicts with what is given.

use crate::exit::usage;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// A rule about options of a verb.
struct Rule {
    verb: &'static str,
    /// Each of them, by the names of their fields.
    options: &'static [&'static str],
    beside: Beside,
    reason: &'static str,
}

/// What they stand beside.
enum Beside {
    /// One of these is to be given.
    OneOf(&'static [&'static str]),
    /// One of the second, where one of the first is given.
    Where(&'static [&'static str], &'static [&'static str]),
    /// None of these.
    None(&'static [&'static str]),
}

use Beside::{OneOf, Where};

/// Options of how flows are metered.
const METER: &[&str] = &[
    "append",
    "ipfix",
    "ship",
    "export_threads",
    "tls",
    "level",
    "first_packets",
    "idle",
    "active",
    "max_flows",
    "workers",
    "id_seed",
    "vlans",
    "macs",
    "names",
    "tunnels",
    "checksums",
];

/// All rules, a row each.
const RULES: &[Rule] = &[
    rule("capture", METER, OneOf(&["flows"]), "nothing is metered"),
    rule("capture", &["rotate"], OneOf(&["write", "flows"]), "no file is written"),
    rule(
        "capture",
        &["rotate_size", "keep_files", "keep_size", "on_full", "direct", "sync"],
        OneOf(&["write"]),
        "no capture file is written",
    ),
    rule("capture", &["before", "trigger", "trigger_rate"], OneOf(&["write"]), "no capture file is written"),
    rule(
        "capture",
        &["after", "before_memory"],
        OneOf(&["before", "trigger", "trigger_rate"]),
        "nothing waits for a trigger",
    ),
    rule("capture", &["before_memory"], OneOf(&["before"]), "nothing is kept before a trigger"),
    rule(
        "capture",
        &["format", "comments", "compress_threads", "index"],
        OneOf(&["write"]),
        "no capture file is written",
    ),
    rule(
        "capture",
        &["snap", "slice", "shard", "dedup", "copy_threads"],
        Where(&["flows", "count"], &["write", "share", "print"]),
        "flows and counts are of whole frames, and nothing is kept of these",
    ),
    rule("capture", &["print_time", "print_bytes"], OneOf(&["print"]), "nothing is printed"),
    rule("capture", &["shard_inner"], OneOf(&["shard", "shard_for"]), "all of the traffic is taken"),
    rule("capture", &["share_patience"], OneOf(&["lossless_readers"]), "nobody is waited for"),
    rule("count", &["key", "rows", "max_streams"], OneOf(&["check"]), "no trailers are looked at"),
    rule(
        "generate",
        &["src_mac", "dst_mac", "src_ip", "dst_ip", "src_port", "src_ports", "dst_port"],
        OneOf(&["udp"]),
        "packets and streams name their addresses themselves, as in 'ip(dst=10.0.0.1)/udp(dport=53)'; --rewrite changes recordings",
    ),
    rule(
        "generate",
        &[
            "loops",
            "loop_delay",
            "speed",
            "preload",
            "split",
            "to_server",
            "rewrite",
            "rewrite_inner",
            "shift_ips",
            "fix_checksums",
            "pad",
        ],
        OneOf(&["replay"]),
        "no recording is sent",
    ),
    rule("generate", &["loop_delay", "shift_ips"], OneOf(&["loops"]), "the recording is sent once"),
    rule("generate", &["split_by"], OneOf(&["to_server"]), "all goes to one port"),
    rule("generate", &["rewrite_inner"], OneOf(&["rewrite"]), "nothing is rewritten"),
    rule(
        "generate",
        &["size", "count", "burst", "poisson", "seed", "stamp", "key"],
        Beside::None(&["streams"]),
        "the file of streams says it for each of them",
    ),
    rule(
        "generate",
        &["size", "count", "burst", "poisson", "seed", "stamp", "key", "check", "keep", "threads", "control"],
        Beside::None(&["replay"]),
        "a recording is sent as it is, by one thread",
    ),
    rule(
        "generate",
        &["answer", "answer_for", "answer_rate", "gateway", "resolve"],
        Beside::None(&["replay"]),
        "its frames name their hosts, and nobody is answered",
    ),
    rule("measure", &["loss"], OneOf(&["goal", "method"]), "the usual goals have theirs: --goal own"),
    rule("measure", &["exceed"], OneOf(&["goal"]), "the usual goals have theirs: --goal own"),
    rule("measure", &["answer_rate"], OneOf(&["answer", "answer_for"]), "nobody is answered"),
    rule("generate", &["key"], OneOf(&["stamp", "check"]), "no trailers are sent"),
    rule("generate", &["line"], OneOf(&["rate", "streams"]), "no rate is a share of it"),
    rule("generate", &["take"], OneOf(&["check"]), "nothing is received"),
    rule("generate", &["answer_rate"], OneOf(&["answer", "answer_for"]), "nobody is answered"),
    rule(
        "generate",
        &[
            "take",
            "threads",
            "keep",
            "control",
            "answer",
            "answer_for",
            "answer_rate",
            "gateway",
            "resolve",
            "lossless",
            "json",
            "user",
            "replay",
        ],
        Beside::None(&["dry_run"]),
        "--dry-run sends nothing, and shows frames of packets and streams alone",
    ),
    rule("streams", &["form"], OneOf(&["follow"]), "no conversation is shown"),
    rule("streams", &["gaps", "max_files"], OneOf(&["write"]), "no file is written"),
    rule("doctor", &["command"], OneOf(&["fix"]), "nothing is mended meanwhile"),
    rule("doctor", &["yes"], OneOf(&["fix", "self_test"]), "nothing is changed, and nothing sent"),
    rule("demo", &["verbose"], Beside::None(&["json"]), "the document has no ledgers"),
    rule("find", &["format"], OneOf(&["write"]), "no capture file is written"),
    rule("find", &["quiet"], OneOf(&["write", "make_index"]), "what is found is said alone"),
    rule(
        "find",
        &["from", "to", "filter", "frames", "write", "format", "count"],
        Beside::None(&["make_index"]),
        "--make-index searches nothing",
    ),
    rule("send", &["count"], OneOf(&["chunk"]), "nothing is sent in chunks"),
    rule("send", &["datagram", "rate"], OneOf(&["udp"]), "TCP sends as fast as it is acknowledged"),
    rule(
        "send",
        &["chunk", "count", "congestion", "silence"],
        Beside::None(&["udp"]),
        "datagrams are not acknowledged",
    ),
    rule("send", &["pattern", "key", "connections"], Beside::None(&["read"]), "the file is sent, once"),
    rule("send", &["pattern", "key"], OneOf(&["size", "duration", "chunk"]), "standard input is what is sent"),
    rule(
        "receive",
        &["mtu", "window", "acks", "max_connections", "idle", "silent"],
        OneOf(&["tcp"]),
        "no TCP is received",
    ),
    rule(
        "receive",
        &["sequence", "open_frames", "frame_timeout", "drop"],
        OneOf(&["udp"]),
        "no datagrams are received",
    ),
    rule("receive", &["share_group", "share_patience", "share_small_pages"], OneOf(&["share"]), "no frames are shared"),
    rule("receive", &["route", "convert"], OneOf(&["to"]), "frames stay in memory of this host"),
    rule("frames", &["per_frame", "direct"], OneOf(&["write"]), "no file is written"),
    rule("frames", &["key"], OneOf(&["check"]), "nothing is verified"),
    rule("frames", &["rows"], Beside::None(&["quiet", "json"]), "no table is shown"),
    rule("receive", &["per_frame", "direct"], OneOf(&["write"]), "no file is written"),
    rule("receive", &["key"], OneOf(&["check"]), "nothing is verified"),
    rule("receive", &["rows"], Beside::None(&["quiet", "json"]), "no table is shown"),
    rule(
        "switch",
        &[
            "share_memory",
            "share_block",
            "share_group",
            "engine",
            "on_death",
            "on_overload",
            "hold",
            "budget",
            "order",
            "inject_limit",
        ],
        OneOf(&["inspect"]),
        "nobody decides about frames",
    ),
    rule("wire", &["seed"], OneOf(&["faults", "faults_back"]), "nothing is drawn from it"),
];

const fn rule(verb: &'static str, options: &'static [&'static str], beside: Beside, reason: &'static str) -> Rule {
    Rule { verb, options, beside, reason }
}

/// Refuses what was given of a verb and means nothing beside the rest.
pub(super) fn check(command: &Command, matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((verb, given)) = matches.subcommand() else { return Ok(()) };
    let Some(command) = command.find_subcommand(verb) else { return Ok(()) };
    let is_given = |option: &&&str| given.value_source(option) == Some(ValueSource::CommandLine);
    for rule in RULES.iter().filter(|rule| rule.verb == verb) {
        let Some(option) = rule.options.iter().find(is_given) else { continue };
        let wrong = match rule.beside {
            OneOf(others) => (!others.iter().any(|other| is_given(&other))).then(|| without(command, others)),
            Where(these, others) => match these.iter().find(is_given) {
                Some(this) if !others.iter().any(|other| is_given(&other)) => {
                    Some(format!("beside {} {}", name(command, this), without(command, others)))
                }
                _ => None,
            },
            Beside::None(others) => {
                others.iter().find(is_given).map(|other| format!("beside {}", name(command, other)))
            }
        };
        if let Some(wrong) = wrong {
            return Err(usage(format!("{} means nothing {wrong}: {}", name(command, option), rule.reason)));
        }
    }
    Ok(())
}

fn without(command: &Command, options: &[&str]) -> String {
    let names: Vec<String> = options.iter().map(|option| name(command, option)).collect();
    format!("without {}", names.join(" or "))
}

/// As the user writes it.
fn name(command: &Command, option: &str) -> String {
    let argument = command.get_arguments().find(|argument| argument.get_id() == option);
    let long = argument.and_then(clap::Arg::get_long);
    long.map_or_else(|| option.to_owned(), |long| format!("--{long}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Program;
    use clap::CommandFactory;

    #[test]
    fn rules_are_about_options_there_are() {
        let program = Program::command();
        for rule in RULES {
            let verb = program.find_subcommand(rule.verb).unwrap();
            let others = match rule.beside {
                OneOf(others) | Beside::None(others) => others.to_vec(),
                Where(these, others) => [these, others].concat(),
            };
            for option in rule.options.iter().chain(&others) {
                assert!(verb.get_arguments().any(|argument| argument.get_id() == option), "{}: {option}", rule.verb);
            }
        }
    }

    #[test]
    fn what_means_nothing_is_refused_with_the_reason() {
        let said = |line: &str| {
            let mut command = Program::command();
            let matches = command.try_get_matches_from_mut(line.split(' ')).unwrap();
            check(&command, &matches).err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (line, text) in [
            ("x generate --to y -k ip/udp --dst-ip 1.2.3.4", "--dst-ip means nothing without --udp: packets"),
            ("x generate --to y -k ip/udp --rewrite ttl=5", "--rewrite means nothing without --replay"),
            ("x generate --to y --replay f --size 64", "--size means nothing beside --replay"),
            ("x count --protocols y --key 5", "--key means nothing without --check"),
            ("x capture y --flows f --slice l4", "--slice means nothing beside --flows without --write or --share"),
            ("x capture y --level tcp", "--level means nothing without --flows"),
            ("x demo --json -v", "--verbose means nothing beside --json"),
        ] {
            assert!(said(line).starts_with(text), "{line}: {}", said(line));
        }
        for line in [
            "x capture y --flows f --slice l4 -w g",
            "x generate --to y --udp --dst-ip 1.2.3.4",
            // Scripts give these to every verb.
            "x capture y -q --interval 0",
            "x capture y -q --json --interval 2",
            "x count y -q --interval 0",
            "x generate --to y -k udp --interval 0 --dry-run",
            "x capture y -q --count",
        ] {
            assert_eq!(said(line), "", "{line}");
        }
    }
}
