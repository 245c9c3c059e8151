//! Rules for options that need other options, or have no effect with them.
//!
//! An option without effect is refused, with the reason, before anything is opened. Options that exclude each other are
//! declared with `conflicts_with`. `requires` is not used for options with conflicts: clap ignores it if the required
//! option conflicts with a given one.

use crate::exit::usage;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// A rule about options of a verb.
struct Rule {
    verb: &'static str,
    /// Names of their fields; the rule holds for each.
    options: &'static [&'static str],
    condition: Condition,
    reason: &'static str,
}

/// Condition on the other options.
enum Condition {
    /// One of these must be given.
    OneOf(&'static [&'static str]),
    /// If one of the first is given, one of the second must be given.
    With(&'static [&'static str], &'static [&'static str]),
    /// None of these may be given.
    NoneOf(&'static [&'static str]),
}

use Condition::{NoneOf, OneOf, With};

/// Options of metering.
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

const RULES: &[Rule] = &[
    rule("capture", METER, OneOf(&["flows"]), "flows are not metered"),
    rule(
        "capture",
        &["write", "share", "flows", "stats", "count", "json"],
        NoneOf(&["dump_filter", "list_link_types"]),
        "it reads no packets",
    ),
    rule("capture", &["rotate"], OneOf(&["write", "flows"]), "no file is written"),
    rule(
        "capture",
        &["rotate_size", "keep_files", "keep_size", "on_full", "direct", "sync"],
        OneOf(&["write"]),
        "no capture file is written",
    ),
    rule("capture", &["before", "trigger", "trigger_rate"], OneOf(&["write"]), "no capture file is written"),
    rule("capture", &["after", "before_memory"], OneOf(&["before", "trigger", "trigger_rate"]), "no trigger is set"),
    rule("capture", &["before_memory"], OneOf(&["before"]), "packets before a trigger are not kept"),
    rule(
        "capture",
        &["format", "comments", "compress_threads", "index"],
        OneOf(&["write"]),
        "no capture file is written",
    ),
    rule(
        "capture",
        &["snap", "slice", "shard", "dedup", "copy_threads"],
        With(&["flows", "stats"], &["write", "share", "print"]),
        "no packets are kept, and flows and statistics use whole packets",
    ),
    rule("capture", &["shard_inner"], OneOf(&["shard", "shard_for"]), "the traffic is not divided"),
    rule("capture", &["share_timeout"], OneOf(&["lossless_readers"]), "readers never block the capture"),
    rule(
        "generate",
        &["src_mac", "dst_mac", "src_ip", "dst_ip", "src_port", "src_ports", "dst_port"],
        OneOf(&["udp"]),
        "packets and streams define their addresses, as in 'ip(dst=10.0.0.1)/udp(dport=53)'",
    ),
    rule(
        "generate",
        &["size", "count", "burst", "poisson", "seed", "stamp", "key"],
        NoneOf(&["streams"]),
        "the file of streams sets it",
    ),
    rule(
        "measure",
        &["device", "take", "learn", "threads", "answer", "write", "json", "quiet"],
        NoneOf(&["dry_run"]),
        "--dry-run sends nothing",
    ),
    rule("measure", &["loss"], OneOf(&["goal", "method"]), "the default goals have their own; use --goal own"),
    rule("measure", &["exceed"], OneOf(&["goal"]), "the default goals have their own; use --goal own"),
    rule("measure", &["answer_rate"], OneOf(&["answer", "answer_for"]), "no requests are answered"),
    rule("replay", &["loop_delay", "shift_ips"], OneOf(&["loops"]), "the file is sent once"),
    rule("replay", &["split_by"], OneOf(&["to_server"]), "all packets go to one port"),
    rule("replay", &["rewrite_inner"], OneOf(&["rewrite"]), "nothing is rewritten"),
    rule("replay", &["line"], OneOf(&["rate"]), "no rate is relative to the line rate"),
    rule("generate", &["key"], OneOf(&["stamp", "check"]), "no trailers are sent"),
    rule("generate", &["line"], OneOf(&["rate", "streams"]), "no rate is relative to the line rate"),
    rule("generate", &["take"], OneOf(&["check"]), "nothing is received"),
    rule("generate", &["answer_rate"], OneOf(&["answer", "answer_for"]), "no requests are answered"),
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
        ],
        NoneOf(&["dry_run"]),
        "--dry-run sends nothing",
    ),
    rule("streams", &["form"], OneOf(&["follow"]), "no conversation is shown"),
    rule("streams", &["gaps", "max_files"], OneOf(&["write"]), "no file is written"),
    rule("doctor", &["command"], OneOf(&["fix"]), "no fix is applied during the command"),
    rule("doctor", &["yes"], OneOf(&["fix", "self_test"]), "nothing is changed or sent"),
    rule("demo", &["verbose"], NoneOf(&["json"]), "the document has no packet accounting"),
    rule("find", &["format"], OneOf(&["write"]), "no capture file is written"),
    rule(
        "find",
        &["since", "until", "filter", "packets", "write", "format", "count", "print"],
        NoneOf(&["make_index"]),
        "--make-index does not search",
    ),
    rule("send", &["chunks"], OneOf(&["chunk"]), "nothing is sent in chunks"),
    rule("send", &["datagram", "rate"], OneOf(&["udp"]), "TCP sends as fast as it is acknowledged"),
    rule("send", &["chunk", "chunks", "congestion", "silence"], NoneOf(&["udp"]), "datagrams are not acknowledged"),
    rule("send", &["pattern", "key", "connections"], NoneOf(&["read"]), "the file is sent once"),
    rule("send", &["pattern", "key"], OneOf(&["size", "duration", "chunk"]), "standard input is sent"),
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
    rule("receive", &["share_group", "share_timeout", "share_small_pages"], OneOf(&["share"]), "no frames are shared"),
    rule("receive", &["route", "convert"], OneOf(&["to"]), "frames stay in the memory of this host"),
    rule("frames", &["per_frame", "direct"], OneOf(&["write"]), "no file is written"),
    rule("frames", &["key"], OneOf(&["check"]), "nothing is verified"),
    rule("frames", &["rows"], NoneOf(&["quiet", "json"]), "no table is shown"),
    rule("receive", &["per_frame", "direct"], OneOf(&["write"]), "no file is written"),
    rule("receive", &["key"], OneOf(&["check"]), "nothing is verified"),
    rule("receive", &["rows"], NoneOf(&["quiet", "json"]), "no table is shown"),
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
        "packets are not inspected",
    ),
    rule("bridge", &["seed"], OneOf(&["faults", "faults_reverse"]), "no random fault is set"),
];

const fn rule(
    verb: &'static str,
    options: &'static [&'static str],
    condition: Condition,
    reason: &'static str,
) -> Rule {
    Rule { verb, options, condition, reason }
}

/// Refuses options of a verb that have no effect with the others given.
pub(super) fn check(command: &Command, matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((verb, given)) = matches.subcommand() else { return Ok(()) };
    let Some(command) = command.find_subcommand(verb) else { return Ok(()) };
    let is_given = |option: &&&str| given.value_source(option) == Some(ValueSource::CommandLine);
    let rules = if ["print", "convert", "merge"].contains(&verb) { "capture" } else { verb };
    for rule in RULES.iter().filter(|rule| rule.verb == rules) {
        let Some(option) = rule.options.iter().find(is_given) else { continue };
        let has_one = |others: &[&str]| others.iter().any(|other| is_given(&other));
        let problem = match rule.condition {
            OneOf(others) => (!has_one(others)).then(|| needs(command, others)),
            With(these, others) => {
                let this = these.iter().find(is_given).filter(|_| !has_one(others));
                this.map(|this| format!("{} with {}", needs(command, others), name(command, this)))
            }
            NoneOf(others) => {
                others.iter().find(is_given).map(|other| format!("has no effect with {}", name(command, other)))
            }
        };
        if let Some(problem) = problem {
            return Err(usage(format!("{} {problem}: {}", name(command, option), rule.reason)));
        }
    }
    Ok(())
}

fn needs(command: &Command, options: &[&str]) -> String {
    let names: Vec<String> = options.iter().map(|option| name(command, option)).collect();
    format!("needs {}", names.join(" or "))
}

/// Returns an option as the user writes it.
fn name(command: &Command, option: &str) -> String {
    let argument = command.get_arguments().find(|argument| argument.get_id() == option);
    let long = argument.and_then(|argument| Some(format!("--{}", argument.get_long()?)));
    let short = || argument.and_then(|argument| Some(format!("-{}", argument.get_short()?)));
    long.or_else(short).unwrap_or_else(|| option.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Program;
    use clap::CommandFactory;

    #[test]
    fn rules_name_existing_options() {
        let program = Program::command();
        for rule in RULES {
            let verb = program.find_subcommand(rule.verb).unwrap();
            let others = match rule.condition {
                OneOf(others) | NoneOf(others) => others.to_vec(),
                With(these, others) => [these, others].concat(),
            };
            for option in rule.options.iter().chain(&others) {
                assert!(verb.get_arguments().any(|argument| argument.get_id() == option), "{}: {option}", rule.verb);
            }
        }
    }

    #[test]
    fn options_without_effect_are_rejected_with_the_reason() {
        let error_of = |line: &str| {
            let mut command = Program::command();
            let matches = command.try_get_matches_from_mut(line.split(' ')).unwrap();
            check(&command, &matches).err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (line, text) in [
            ("x generate --to y -k ip/udp --dst-ip 1.2.3.4", "--dst-ip needs --udp: packets"),
            ("x replay f --to y --split-by port", "--split-by needs --to-server: all packets"),
            ("x capture y --flows f --slice l4", "--slice needs --write or --share or --print with --flows: no"),
            ("x capture y --level tcp", "--level needs --flows: flows are not metered"),
            ("x convert f -w g -d", "--write has no effect with -d: it reads no packets"),
            ("x demo --json -v", "--verbose has no effect with --json: the document"),
        ] {
            assert!(error_of(line).starts_with(text), "{line}: {}", error_of(line));
        }
        for line in [
            "x capture y --flows f --slice l4 -w g",
            "x generate --to y --udp --dst-ip 1.2.3.4",
            // Scripts give these to every verb.
            "x capture y -q --interval 0",
            "x capture y -q --json --interval 2",
            "x count y -q --interval 0",
            "x generate --to y -k udp --interval 0 --dry-run",
            "x capture y -q --stats",
        ] {
            assert_eq!(error_of(line), "", "{line}");
        }
    }
}
