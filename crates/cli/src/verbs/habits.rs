//! Options of tcpdump that are none here, and what there is instead.

use crate::exit::usage;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs that somebody takes for tcpdump.
const VERBS: &[&str] = &["capture", "count", "flows"];

/// What is typed, and what to type.
const HABITS: &[(&[&str], &str)] = &[
    (&["-D"], "linerate ports lists interfaces"),
    (&["-n"], "leave it out: names are never looked up"),
    (&["-l", "-U", "--immediate-mode"], "leave it out: what is captured is handed on at once"),
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
];

/// What to say of an option that was not known, if it is one of tcpdump's.
pub fn instead(error: &clap::Error, verb: Option<&str>) -> Option<anyhow::Error> {
    let is_unknown = error.kind() == ErrorKind::UnknownArgument && VERBS.contains(&verb?);
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let (_, advice) = HABITS.iter().find(|(options, _)| is_unknown && options.contains(&option.as_str()))?;
    Some(usage(format!("{option} is an option of tcpdump: {advice}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Program;
    use clap::CommandFactory;

    #[test]
    fn habits_are_no_options_here() {
        let mut program = Program::command();
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
}
