//! `-h`: the usual options and four examples, on one screen. `--help` and the manual have all.

use clap::Command;

/// Examples that `-h` shows.
const EXAMPLES: usize = 4;

/// The usual options of verbs with many.
const USUAL: &[(&str, &[&str])] = &[
    (
        "capture",
        &[
            "ports",
            "read",
            "packets",
            "duration",
            "write",
            "snap",
            "rotate_size",
            "rotate",
            "link_header",
            "time",
            "hex_ascii",
            "flows",
            "quiet",
            "ledger",
        ],
    ),
    ("print", &["ports", "read", "packets", "duration", "link_header", "time", "hex", "hex_ascii", "ledger", "quiet"]),
    (
        "convert",
        &["write", "format", "index", "packets", "snap", "slice", "dedup", "rotate_size", "quiet", "ledger", "json"],
    ),
    (
        "merge",
        &["write", "format", "index", "packets", "snap", "slice", "dedup", "rotate_size", "quiet", "ledger", "json"],
    ),
    ("count", &["ports", "read", "packets", "duration", "protocols", "bursts", "json", "interval", "quiet", "ledger"]),
    ("check", &["ports", "read", "packets", "duration", "rows", "lossless", "json", "interval"]),
    ("flows", &["ports", "read", "duration", "write", "level", "names", "by", "top", "sort", "json"]),
    (
        "find",
        &["since", "until", "packets", "write", "count", "make_index", "link_header", "time", "hex_ascii", "json"],
    ),
    ("query", &["since", "until", "by", "top", "sort", "sum", "every", "csv", "write", "json", "quiet"]),
    ("collect", &["duration", "write", "tls", "by", "top", "sort", "json", "quiet"]),
    ("top", &["ports", "from", "duration", "by", "sort", "top", "names", "interval", "once", "json"]),
    ("streams", &["ports", "read", "duration", "write", "follow", "form", "top", "json", "quiet"]),
    (
        "generate",
        &[
            "to", "packet", "streams", "udp", "rate", "size", "count", "duration", "check", "answer", "gateway",
            "dry_run", "json",
        ],
    ),
    ("replay", &["read", "to", "to_server", "rate", "speed", "loops", "packets", "duration", "rewrite", "json"]),
    (
        "measure",
        &[
            "to", "check", "both", "packet", "size", "method", "goal", "rate", "max", "dry_run", "write", "answer",
            "json",
        ],
    ),
    ("serve", &["ports", "listen", "streams", "token", "files", "tls_cert", "tls_key", "user"]),
    ("send", &["udp", "size", "duration", "read", "chunk", "connections", "rate", "json"]),
    ("receive", &["tcp", "udp", "write", "check", "frames", "frame_size", "share", "streams", "duration", "json"]),
    ("frames", &["write", "check", "duration", "json", "quiet"]),
    ("bridge", &["faults", "faults_reverse", "seed", "duration", "yes", "json", "ledger"]),
    ("switch", &["rule", "rules", "vlan", "mac_age", "control", "duration", "inspect", "json"]),
    ("inline", &["share", "engine", "on_death", "on_overload", "duration", "json", "ledger"]),
];

/// Shortens `-h` of every verb.
pub(super) fn shorten(program: Command) -> Command {
    program.mut_subcommands(|verb| {
        let Some((_, usual)) = USUAL.iter().find(|(name, _)| *name == verb.get_name()) else { return verb };
        let long = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        let verb = verb.mut_args(|option| {
            let is_usual = option.is_positional() || usual.contains(&option.get_id().as_str());
            option.hide_short_help(!is_usual)
        });
        verb.after_help(examples(&long)).after_long_help(long)
    })
}

/// The first examples of a text; each begins with a comment.
fn examples(text: &str) -> String {
    let mut comments = 0;
    let lines = text.lines().take_while(|line| {
        comments += usize::from(line.starts_with("  # "));
        comments <= EXAMPLES && (line.starts_with("  ") || line.starts_with("Examples:"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::command;

    #[test]
    fn short_help_fits_a_screen() {
        let program = command();
        for verb in program.get_subcommands() {
            let text = verb.clone().term_width(80).render_help().to_string();
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{}: {long:#?}", verb.get_name());
            assert!(text.lines().count() <= 60, "{}: {} lines\n{text}", verb.get_name(), text.lines().count());
        }
    }

    #[test]
    fn usual_options_exist() {
        let program = command();
        for (name, usual) in USUAL {
            let Some(verb) = program.find_subcommand(name) else { continue };
            for option in *usual {
                assert!(verb.get_arguments().any(|argument| argument.get_id() == option), "{name}: {option}");
            }
        }
    }
}
