//! Words of tcpdump and other programs: options that change nothing here, and what stands for those that there are not.

use super::command;
use crate::exit::usage;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args};
use std::error::Error;

/// Verbs that somebody takes for tcpdump.
const VERBS: &[&str] = &["capture", "count", "flows"];

/// Options of tcpdump that ask for what is always so here.
#[derive(Debug, Args)]
pub(super) struct Accepted {
    /// No names are looked up
    #[arg(short = 'n', hide = true, action = ArgAction::Count)]
    no_names: u8,
    /// Lines are printed at once
    #[arg(short = 'l', hide = true, action = ArgAction::Count)]
    line_buffered: u8,
    /// Packets are written at once
    #[arg(short = 'U', hide = true, action = ArgAction::Count)]
    packet_buffered: u8,
    /// Packets are delivered at once
    #[arg(long = "immediate-mode", hide = true, action = ArgAction::Count)]
    immediate: u8,
    /// No checksums are verified
    #[arg(short = 'K', long = "dont-verify-checksums", hide = true, action = ArgAction::Count)]
    no_checksums: u8,
}

/// What is typed, and what to type.
const HABITS: &[(&[&str], &str)] = &[
    (&["-D"], "linerate ports lists interfaces"),
    (&["-e"], "frames are printed with their link header by linerate capture ... --print=link"),
    (&["-S"], "frames are printed with absolute numbers by linerate capture ... --print=absolute"),
    (&["-x", "-xx"], "bytes are printed by linerate capture ... --print --print-bytes hex (or hex,link)"),
    (&["-X", "-XX"], "bytes are printed by linerate capture ... --print --print-bytes hex,ascii (or hex,ascii,link)"),
    (&["-A"], "bytes are printed by linerate capture ... --print --print-bytes ascii"),
    (&["-B"], "write the port as 'packet:eth0?ring=1GiB'"),
    (&["-F"], "write -f \"$(cat FILE)\""),
    (&["-C", "-W"], "it is of capture, where files are written; records of flows are in a folder, -w DIR/ and -G"),
    (&["-G"], "nothing is written"),
    (&["-z"], "a file called .gz or .zst is compressed while it is written"),
    (&["-j", "--time-stamp-type"], "write the port as 'packet:eth0?stamp=hardware'"),
    (&["-J", "-L", "-y", "-I", "-E", "-M", "-T"], "there is nothing like it here"),
    (&["-d", "-dd", "-ddd"], "tcpdump -d shows the program of a filter; libpcap compiles the same one here"),
    (&["-O", "-H", "-N", "-a", "-b", "-#", "--number"], "there is nothing like it here"),
];

/// Commands that somebody looks for, and what does their job.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["merge", "mergecap", "convert", "editcap", "slice", "dedup", "filter", "dump", "record", "sniff"], "capture"),
    (&["print", "show", "read", "cat", "tcpdump", "view", "decode"], "capture --print"),
    (&["replay", "tcpreplay", "transmit", "tx", "traffic", "gen"], "generate"),
    (&["interfaces", "list", "devices", "ifaces"], "ports"),
    (&["search", "grep", "query", "extract", "index"], "find"),
    (&["stats", "info", "capinfos", "rates"], "count"),
    (&["netflow", "ipfix", "meter", "conversations"], "flows"),
    (&["follow", "tcp", "reassemble"], "streams"),
    (&["test", "rfc2544", "throughput"], "measure"),
    (&["check", "diagnose"], "doctor"),
    (&["bridge", "ovs"], "switch"),
    (&["version"], "--version"),
];

/// Commands that this program lacks, and the remedy; `serve` and `top` are missing only where it was built without them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bench", "now a program of its own, linerate-bench (make bench builds and runs it)"),
    ("serve", "not in this program, built without the feature serve; make builds all"),
    ("top", "not in this program, built without the feature tui; make builds all"),
];

/// What to say instead of what the parser says, where that is no help.
pub(super) fn instead(error: &clap::Error, verb: Option<&str>) -> Option<anyhow::Error> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    let is_like_tcpdump = verb.is_some_and(|verb| VERBS.contains(&verb));
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let option = text(ContextKind::InvalidArg)?;
            let habit = HABITS.iter().find(|(options, _)| is_like_tcpdump && options.contains(&option));
            if let Some((_, advice)) = habit {
                return Some(usage(format!("{option} is an option of tcpdump: {advice}")));
            }
            let verb = verb.filter(|verb| !verb.starts_with('-')).map_or(String::new(), |verb| format!("{verb} "));
            let meant = text(ContextKind::SuggestedArg).map(|near| format!(" (did you mean {near}?)"));
            let help = format!("linerate {verb}--help lists them");
            Some(usage(format!("{option}: no such option{}; {help}", meant.unwrap_or_default())))
        }
        ErrorKind::InvalidSubcommand => Some(no_command(text(ContextKind::InvalidSubcommand)?)),
        ErrorKind::ValueValidation => {
            let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
            if is_like_tcpdump && option.starts_with("--duration") && value.bytes().all(|byte| byte == b't') {
                return Some(usage(format!(
                    "-t{value} is an option of tcpdump: times are printed as --print-time says"
                )));
            }
            let expected = plainly(&error.source()?.to_string())?;
            Some(usage(format!("{option}: invalid value {value:?}; expected {expected}")))
        }
        _ => None,
    }
}

/// What was expected, where the standard library says what was wrong.
fn plainly(reason: &str) -> Option<&'static str> {
    match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => Some("a whole number"),
        "invalid float literal" | "cannot parse float from empty string" => Some("a number"),
        "number too large to fit in target type" => Some("a smaller number"),
        "invalid IP address syntax" | "invalid IPv4 address syntax" => Some("an IP address, such as 10.0.0.1"),
        "invalid socket address syntax" => Some("ADDRESS:PORT, such as 127.0.0.1:8080"),
        _ => None,
    }
}

fn no_command(name: &str) -> anyhow::Error {
    if let Some((_, reason)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == name) {
        return usage(format!("{name}: {reason}"));
    }
    let usual = COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, meant)| (*meant).to_owned());
    let meant = usual.or_else(|| {
        let program = command();
        let known: Vec<&str> =
            program.get_subcommands().filter(|verb| !verb.is_hide_set()).map(|verb| verb.get_name()).collect();
        // Other words of a few letters are near to one by chance.
        let near = linerate_generate::nearest(name, &known).filter(|near| near.len() > 4 && name.len() > 3);
        near.map(str::to_owned)
    });
    let meant = meant.map_or_else(String::new, |meant| format!(" (did you mean linerate {meant}?)"));
    usage(format!("{name}: no such command{meant}; linerate --help lists them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let error = command().try_get_matches_from(&words).expect_err(line);
        instead(&error, words.get(1).copied()).map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn habits_are_no_options_here() {
        let mut program = command();
        program.build();
        for verb in VERBS {
            let verb = program.find_subcommand(verb).unwrap();
            // A capture and records of flows are in files, which follow each other as tcpdump has them.
            let is_same = |option: &str| match verb.get_name() {
                "capture" => ["-C", "-G", "-W"].contains(&option),
                "flows" => option == "-G",
                _ => false,
            };
            for option in HABITS.iter().flat_map(|(options, _)| *options).filter(|option| !is_same(option)) {
                let is_there = |argument: &clap::Arg| match option.strip_prefix("--") {
                    Some(long) => argument.get_long() == Some(long),
                    None => argument.get_short() == option.chars().nth(1),
                };
                let is_known = verb.get_arguments().any(is_there);
                assert_eq!(is_known, (verb.get_name(), *option) == ("capture", "-D"), "{} {option}", verb.get_name());
            }
        }
    }

    #[test]
    fn options_that_change_nothing_are_accepted() {
        for line in [
            "x capture -n -r f",
            "x capture -nn -r f",
            "x capture -nni eth0",
            "x capture -lUK --immediate-mode eth0",
            "x capture -vv eth0",
            "x count -n -l eth0",
            "x flows -n eth0",
        ] {
            assert!(command().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_meant() {
        for (line, text) in [
            ("x capture -tttt -r f", "-tttt is an option of tcpdump: times"),
            ("x capture -y EN10MB eth0", "-y is an option of tcpdump"),
            ("x capture --wrte f eth0", "--wrte: no such option (did you mean --write?); linerate capture --help"),
            ("x merge a", "merge: no such command (did you mean linerate capture?)"),
            ("x print a", "print: no such command (did you mean linerate capture --print?)"),
            ("x captrue a", "captrue: no such command (did you mean linerate capture?)"),
            ("x bench", "bench: now a program of its own, linerate-bench (make bench builds and runs it)"),
            ("x nosuch", "nosuch: no such command; linerate --help"),
        ] {
            assert!(said(line).starts_with(text), "{line}: {}", said(line));
        }
    }
}
