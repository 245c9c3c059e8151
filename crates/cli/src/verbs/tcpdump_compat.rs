//! Options and commands of tcpdump and other programs: accepted without effect, or refused with a remedy.

use super::command;
use clap::{ArgAction, Args};
use linerate_burst::text::nearest;

/// Verbs that resemble tcpdump.
const VERBS: &[&str] = &["capture", "print", "convert", "merge", "count", "flows"];
/// Verbs that resemble nfdump.
const QUERY: &[&str] = &["query", "collect"];
/// Verbs that resemble trafgen, TRex and tcpreplay.
pub(super) const SENDERS: &[&str] = &["generate", "replay"];

/// Options of tcpdump for what linerate always does, and -K.
#[derive(Debug, Args)]
pub(super) struct TcpdumpArgs {
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
    /// No checksums of printed packets are verified
    #[arg(short = 'K', long = "dont-verify-checksums", hide = true, action = ArgAction::Count)]
    no_checksums: u8,
}

impl TcpdumpArgs {
    /// Returns whether checksums of printed packets are left unverified.
    pub(super) fn leaves_checksums(&self) -> bool {
        self.no_checksums > 0
    }
}

/// Options of other programs that these verbs lack, and the remedy.
const HABITS: &[(&[&str], &[&str], &str)] = &[
    (
        VERBS,
        &["-A", "-AA", "-e", "-S", "-x", "-xx", "-X", "-XX", "-#", "--number", "--print", "-d", "-L", "-D"],
        "linerate capture has it",
    ),
    (VERBS, &["-t", "-tt", "-ttt", "-tttt", "-ttttt"], "linerate capture has it; -T S stops after S seconds"),
    (&["convert", "merge", "print"], &["-B"], "linerate find FILE --until T ends at a time"),
    (VERBS, &["-B"], "write the port as 'packet:eth0?ring=1GiB'"),
    (&["capture", "count", "flows", "top", "streams", "doctor"], &["--netns"], "write the port as 'eth0?netns=NAME'"),
    (VERBS, &["-C", "-W"], "linerate capture has it; flow records go to files by time with -w DIR/ -G S"),
    (VERBS, &["-G"], "linerate capture and linerate flows have it"),
    (VERBS, &["-z"], "not supported; a file called .gz or .zst is compressed, linerate count FILE shows statistics"),
    (VERBS, &["-j", "--time-stamp-type"], "write the port as 'packet:eth0?stamp=hardware'"),
    (
        &["capture", "print", "convert", "merge"],
        &["--time-stamp-precision"],
        "files have nanoseconds (--format pcap-micros: microseconds); --nano prints them",
    ),
    (
        VERBS,
        &["--since", "--until"],
        "not an option here; linerate find FILE --since T --until T -w OUT selects by time",
    ),
    (VERBS, &["-a", "-b"], "-C SIZE, -G S and -W N rotate, -c N and -T S stop (tcpdump's letters, not dumpcap's)"),
    (VERBS, &["-Y", "-R"], "not supported; filters are those of tcpdump (pcap-filter(7)), such as 'tcp port 443'"),
    (VERBS, &["-E", "-H", "-I", "-J", "-M", "-N", "-O", "-y"], "not supported"),
    (&["find"], &["-B"], "use --since T and --until T, which select by time"),
    (&["find"], &["-s", "--snap", "--dedup", "-C", "-G"], "linerate convert has it, for the file that -w writes"),
    (QUERY, &["-s"], "use --by and --sort, such as --by address --sort bytes"),
    (QUERY, &["-A", "-a"], "use --by, such as --by orig_address/24,protocol"),
    (QUERY, &["-n", "-c"], "use --top N"),
    (QUERY, &["-o", "-O"], "use --json, or -w FILE with the ending of the format, such as .csv"),
    (&["query"], &["-t"], "use --since T and --until T"),
    (&["query"], &["-R", "-M"], "directories are arguments"),
    (SENDERS, &["-x", "--multiplier"], "use --rate R, or --speed N of linerate replay"),
    (SENDERS, &["--pps", "-p"], "use --rate, such as --rate 10kpps"),
    (SENDERS, &["--mbps", "-b", "-M", "--bandwidth"], "use --rate, such as --rate 100mbps"),
    (SENDERS, &["-t"], "use -T S to stop after S seconds, or --rate max for full speed"),
    (SENDERS, &["--topspeed"], "use --rate max"),
    (SENDERS, &["-i", "--intf1"], "use --to PORT"),
    (&["send"], &["-t", "--time"], "use -T S"),
    (&["send"], &["-P", "--parallel"], "use --connections N"),
    (&["send"], &["-n", "--bytes"], "use --size SIZE"),
    (&["send"], &["-l", "--len"], "use --datagram SIZE for datagrams; TCP has no message size"),
    (&["send"], &["-u"], "use --udp, with --rate"),
    (&["send"], &["-b", "--bandwidth"], "use --rate R, with --udp"),
    (
        &["send"],
        &["-c", "-p", "--client", "--port"],
        "the destination is an argument, as in linerate send 10.9.0.2:5001",
    ),
    (&["send"], &["-R", "--reverse", "-d", "--bidir"], "not supported; run linerate send on the other host"),
    (&["receive"], &["-s", "-p", "--server"], "use --tcp ADDR:PORT or --udp ADDR:PORT, with an address of its own"),
    (&["receive"], &["-u"], "use --udp ADDR:PORT"),
    (&["bridge"], &["--delay", "--loss", "--drop"], "use --faults, such as --faults 'delay=20ms,drop=1%'"),
];

/// Names of similar commands, and the verb for the same job.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["dump", "dumpcap", "record", "sniff", "tcpdump"], "capture"),
    (&["show", "read", "cat", "view", "decode", "tshark"], "print"),
    (&["mergecap"], "merge"),
    (&["editcap", "slice", "dedup", "filter", "split"], "convert"),
    (&["tcpreplay", "tcprewrite", "rewrite"], "replay"),
    (&["transmit", "tx", "traffic", "gen", "trafgen"], "generate"),
    (&["iperf", "iperf3", "nc"], "send"),
    (&["interfaces", "list", "devices", "ifaces"], "ports"),
    (&["search", "grep", "extract", "index"], "find"),
    (&["stats", "info", "capinfos", "rates"], "count"),
    (&["netflow", "ipfix", "meter", "conversations", "argus"], "flows"),
    (&["nfdump", "ask", "sql", "ra"], "query"),
    (&["nfcapd", "collector"], "collect"),
    (&["follow", "tcp", "reassemble", "tcpflow"], "streams"),
    (&["test", "rfc2544", "throughput"], "measure"),
    (&["diagnose", "debug"], "doctor"),
    (&["wire", "impair", "netem", "forward", "testpmd"], "bridge"),
    (&["ovs"], "switch"),
    (&["iftop", "monitor"], "top"),
    (&["version"], "--version"),
    (&["-h", "--help"], "help"),
];

/// Commands that this program lacks, and the remedy; some are missing only in builds without their feature.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bench", "now a program of its own, linerate-bench (make bench builds and runs it)"),
    ("query", "not in this program, built without the feature parquet; make builds all"),
    ("serve", "not in this program, built without the feature serve; make builds all"),
    ("top", "not in this program, built without the feature tui; make builds all"),
];

/// Returns the remedy for an option of another program that the verb lacks.
pub(super) fn habit(verb: &str, option: &str) -> Option<&'static str> {
    let habit = HABITS.iter().find(|(verbs, options, _)| verbs.contains(&verb) && options.contains(&option));
    habit.map(|(_, _, remedy)| *remedy)
}

/// Returns the error for an unknown command.
pub(super) fn no_command(name: &str) -> String {
    if let Some((_, reason)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == name) {
        return format!("{name}: {reason}");
    }
    let usual = COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, meant)| (*meant).to_owned());
    let meant = usual.or_else(|| {
        let program = command();
        let known = program.get_subcommands().filter(|verb| !verb.is_hide_set()).map(|verb| verb.get_name());
        // Short words are similar by chance.
        let near = nearest(name, known).filter(|near| near.len() > 4 && name.len() > 3);
        near.map(str::to_owned)
    });
    let meant = meant.map_or_else(String::new, |meant| format!(" (did you mean linerate {meant}?)"));
    format!("{name}: no such command{meant}; linerate --help lists them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_change_nothing_are_accepted() {
        for line in [
            "x capture -n -r f",
            "x capture -nn -r f",
            "x capture -nni eth0",
            "x capture -lUK --immediate-mode eth0",
            "x capture -vvv -tttt -e -XX eth0",
            "x count -n -l eth0",
            "x flows -n eth0",
        ] {
            assert!(command().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
