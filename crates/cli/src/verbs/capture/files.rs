//! `linerate print`, `convert` and `merge`: capture, with the options for files.

use super::Args;
use crate::exit::usage;
use clap::Arg;

/// Options that `print` lists.
pub const PRINT: &[&str] = &[
    "words",
    "ports",
    "read",
    "filter",
    "filter_file",
    "direction",
    "packets",
    "duration",
    "snap",
    "link_header",
    "time",
    "nano",
    "hex",
    "hex_ascii",
    "ascii",
    "absolute_tcp_sequence_numbers",
    "number",
    "quiet",
    "ledger",
    "no_promiscuous",
    "user",
    "count",
];

/// Options that `convert` and `merge` list.
pub const CONVERT: &[&str] = &[
    "words",
    "read",
    "filter",
    "filter_file",
    "packets",
    "write",
    "format",
    "compress_threads",
    "comments",
    "index",
    "rotate_size",
    "rotate",
    "keep_files",
    "keep_size",
    "snap",
    "slice",
    "shard",
    "shard_inner",
    "dedup",
    "json",
    "interval",
    "quiet",
    "ledger",
    "user",
];

/// Examples of `print`.
pub const PRINT_HELP: &str = "\
Examples:
  linerate print eth0 port 53
  linerate print trace.pcap -c 10 -e -X
  linerate print trace.pcapng.zst -tttt 'tcp and host 10.0.0.1'
Arguments are interfaces or capture files, then the filter. The other options of
linerate capture work too.";

/// Examples of `convert`.
pub const CONVERT_HELP: &str = "\
Examples:
  linerate convert old.pcapng.gz -w new.pcap.zst
  linerate convert trace.pcap -w dns.pcapng udp port 53
  linerate convert trace.pcap -w headers.pcap --slice l4 --dedup
  linerate convert big.pcap -w parts/ -C 100M
  # a time range
  linerate find trace.pcap --since 2026-11-29 --until 2026-11-30 -w day.pcap
Arguments are capture files, then the filter. The name of the output gives
format and compression. The other options of linerate capture work too.";

/// Examples of `merge`.
pub const MERGE_HELP: &str = "\
Examples:
  linerate merge a.pcap b.pcapng -w both.pcapng
  linerate merge day/ -w dns.pcapng.zst udp port 53
Packets are in the order of their times. Arguments are capture files, then the
filter. The name of the output gives format and compression. The other options
of linerate capture work too.";

/// Lists `--rotate`, also of flow records, next to the other options of rotation.
pub fn arranged(option: Arg) -> Arg {
    if option.get_id() != "rotate" {
        return option;
    }
    option.help_heading("Rotation of files").help("Start a new file every S seconds, at multiples of S in UTC")
}

/// Hides options other than `listed`.
pub fn shown(listed: &'static [&'static str]) -> impl Fn(Arg) -> Arg {
    let prints = listed.contains(&"ports");
    move |option| {
        let option = match option.get_id().as_str() {
            "words" if !prints => option
                .value_name("FILE|FILTER")
                .help("Capture files or directories of them; then the filter (pcap-filter(7))"),
            "quiet" if prints => option.help("Print less of each packet, like tcpdump -q, and no report"),
            "ledger" if prints => {
                option.help("Print more of each packet, like tcpdump -v, and the whole packet accounting")
            }
            _ => arranged(option),
        };
        let is_listed = listed.contains(&option.get_id().as_str());
        if is_listed { option } else { option.hide(true) }
    }
}

impl Args {
    /// Reads leading arguments that are files as such.
    ///
    /// # Errors
    /// If a file does not exist, or no output is given.
    pub fn of_files(mut self, prints: bool) -> anyhow::Result<Self> {
        if prints {
            self.analysis.print.print_unless(self.count);
        } else if self.write.is_none() {
            return Err(usage("no output given; use -w FILE"));
        }
        Ok(self)
    }
}
