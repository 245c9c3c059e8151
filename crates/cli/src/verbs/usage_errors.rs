//! Errors of the command line in the form of all others: one line with object, problem and remedy.

use super::inputs::is_port;
use super::tcpdump_compat::{SENDERS, habit, no_command};
use crate::exit::usage;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;

/// Returns an error of the command line in the form of all others; `None` for help, which clap reports as errors.
pub(super) fn instead(error: &clap::Error, verb: Option<&str>) -> Option<anyhow::Error> {
    use ErrorKind as Kind;
    if matches!(error.kind(), Kind::DisplayHelp | Kind::DisplayVersion)
        || error.kind() == Kind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        return None;
    }
    let rest = || {
        let text = error.render().to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    };
    Some(usage(described(error, verb).unwrap_or_else(rest)))
}

/// Returns object, problem and remedy of an error, if it is of a known kind.
fn described(error: &clap::Error, verb: Option<&str>) -> Option<String> {
    let all = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.as_str()],
        Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let text = |kind| all(kind).first().copied();
    let help = match verb.filter(|verb| !verb.starts_with('-')) {
        Some(verb) => format!("linerate {verb} --help"),
        None => "linerate --help".to_owned(),
    };
    let option = || text(ContextKind::InvalidArg);
    Some(match error.kind() {
        ErrorKind::UnknownArgument => {
            let option = option()?;
            if let Some(remedy) = verb.and_then(|verb| habit(verb, option)) {
                return Some(format!("{option}: {remedy}"));
            }
            let meant = text(ContextKind::SuggestedArg).map(|near| format!(" (did you mean {near}?)"));
            if !option.starts_with('-') {
                let remedy = match verb {
                    Some(verb) if SENDERS.contains(&verb) && is_port(option) => {
                        format!("name the port with --to {option}")
                    }
                    _ => format!("{help} shows the usage"),
                };
                return Some(format!("{option}: unexpected argument; {remedy}"));
            }
            format!("{option}: no such option{}; {help} lists them", meant.unwrap_or_default())
        }
        ErrorKind::InvalidSubcommand => match (text(ContextKind::InvalidSubcommand)?, verb) {
            (name, Some(verb)) if name != verb => {
                let meant = text(ContextKind::SuggestedSubcommand).map(|near| format!(" (did you mean {near}?)"));
                format!("{name}: no such command{}; {help} lists them", meant.unwrap_or_default())
            }
            (name, _) => no_command(name),
        },
        ErrorKind::MissingSubcommand => format!("missing command; {help} lists them"),
        ErrorKind::MissingRequiredArgument => {
            format!("missing {}; {help} shows the usage", all(ContextKind::InvalidArg).join(", "))
        }
        ErrorKind::ArgumentConflict => match (option()?, all(ContextKind::PriorArg).join(", ")) {
            (option, prior) if prior.is_empty() => format!("{option}: cannot be used with other arguments"),
            (option, prior) if prior == option => format!("{option}: given twice; leave one out"),
            (option, prior) => format!("{option}: cannot be used with {prior}"),
        },
        ErrorKind::InvalidValue => {
            let known = all(ContextKind::ValidValue).join(", ");
            let expected = if known.is_empty() { String::new() } else { format!("; expected {known}") };
            match text(ContextKind::InvalidValue)? {
                "" => format!("{}: missing value{expected}", option()?),
                value => format!("{}: invalid value {value:?}{expected}", option()?),
            }
        }
        ErrorKind::ValueValidation => {
            let (option, value) = (option()?, text(ContextKind::InvalidValue)?);
            let reason = error.source()?.to_string();
            match plainly(&reason) {
                Some(expected) => format!("{option}: invalid value {value:?}; expected {expected}"),
                None if reason.starts_with(value) || reason.contains(&format!("{value:?}")) => {
                    format!("{option}: {reason}")
                }
                None => format!("{option}: invalid value {value:?}: {reason}"),
            }
        }
        _ => return None,
    })
}

/// Returns what was expected, for an error of the standard library or of a range.
fn plainly(reason: &str) -> Option<String> {
    if let Some((_, range)) = reason.split_once(" is not in ") {
        let (least, most) = range.split_once("..")?;
        let most = most.trim_start_matches('=');
        let is_bound = most.parse::<u64>().is_ok_and(|most| most <= u32::MAX.into());
        return Some(if is_bound { format!("{least} to {most}") } else { format!("at least {least}") });
    }
    let expected = match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => "a whole number",
        "invalid float literal" | "cannot parse float from empty string" => "a number",
        "number too large to fit in target type" => "a smaller number",
        "invalid IP address syntax" | "invalid IPv4 address syntax" => "an IP address, such as 10.0.0.1",
        "invalid socket address syntax" => "ADDRESS:PORT, such as 127.0.0.1:8080",
        _ => return None,
    };
    Some(expected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::command;

    fn error_of(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let error = command().try_get_matches_from(&words).expect_err(line);
        instead(&error, words.get(1).copied()).map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn errors_name_the_intended_option() {
        for (line, text) in [
            ("x count -X eth0", "-X: linerate capture has it"),
            ("x flows -tttt eth0", "-t: linerate capture has it; -T S stops"),
            ("x capture -y EN10MB eth0", "-y: not supported"),
            ("x capture --wrte f eth0", "--wrte: no such option (did you mean --write?); linerate capture --help"),
            ("x mergecap a", "mergecap: no such command (did you mean linerate merge?)"),
            ("x read a", "read: no such command (did you mean linerate print?)"),
            ("x captrue a", "captrue: no such command (did you mean linerate capture?)"),
            ("x bench", "bench: now a program of its own, linerate-bench (make bench builds and runs it)"),
            ("x nosuch", "nosuch: no such command; linerate --help"),
            ("x find", "missing <DIR|FILE|FILTER>...; linerate find --help shows the usage"),
            (
                "x capture --format pcapgn",
                "--format <FORMAT>: invalid value \"pcapgn\"; expected pcap, pcap-micros, pcapng",
            ),
            ("x capture eth0 -w", "--write <FILE>: missing value"),
            ("x ctl x", "missing command; linerate ctl --help"),
            ("x ctl x dump-flow", "dump-flow: no such command (did you mean dump-"),
            ("x capture -b filesize:100", "-b: -C SIZE, -G S and -W N rotate"),
            ("x generate --rate foo", "--rate <RATE>: invalid rate \"foo\"; expected"),
            ("x find a --count --json", "--count: cannot be used with --json"),
            ("x find a -w b -w c", "--write <FILE>: given twice; leave one out"),
            ("x capture eth0 -c 10y", "--packets <N>: "),
            ("x capture eth0 --compress-threads 9", "--compress-threads <N>: invalid value \"9\"; expected 1 to 8"),
        ] {
            assert!(error_of(line).starts_with(text), "{line}: {}", error_of(line));
        }
    }
}
