//! Commands that mutants go through: every verb that reads captures, in every output format.

use linerate_pcap::Reader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;

/// Arguments of the program. `READ` stands for `-r FILE` per file, `FILES` for all files, `FILE` for the first one,
/// and `OUT` for the output path.
pub(crate) struct Command(&'static str);

/// Commands that take one file.
pub(crate) const SINGLE: &[Command] = &[
    Command("capture READ"),
    Command("capture READ -w OUT.pcap"),
    Command("capture READ -w OUT.pcap --format pcap-micros"),
    Command("capture READ -w OUT.pcapng --comment more"),
    Command("capture READ -w OUT.pcapng.zst"),
    Command("capture READ -w OUT.pcap.gz --json"),
    Command("capture READ -w OUT.pcapng tcp or vlan or (ip6 and udp port 53)"),
    Command("capture READ -w OUT.pcapng --dedup=1000"),
    Command("capture READ -w OUT.pcap --shard 1/3 --shard-inner"),
    Command("capture READ -w OUT.pcapng --slice l4+8"),
    Command("capture READ -w OUT.pcap --dedup --shard 2/2 --slice l3 ip"),
    Command("capture -i faulty:pcap:FILE?drop=1%&corrupt=2%x3&truncate=2%&reorder=3%x5&seed=7 -w OUT.pcapng"),
    Command("capture READ -n"),
    Command("capture READ -e -v -S -XX -tttt"),
    Command("capture READ -w OUT.pcapng.zst --index"),
    Command("find FILE -w OUT.pcapng tcp or vlan or (ip6 and udp port 53)"),
    Command("find FILE -w OUT.pcap --since 2001-01-01 --until 2100-01-01 --json"),
    Command("count READ"),
    Command("count READ --protocols"),
    Command("count READ --json --interval 0.5 not arp"),
    Command("check READ --json"),
    Command("flows READ --max-flows 4096 --level counters -w OUT.jsonl"),
    Command("flows READ --max-flows 4096 --level tcp -w OUT.jsonl --macs --vlans"),
    Command("flows READ --max-flows 4096 --level stats -w OUT.jsonl --checksums"),
    Command("flows READ --max-flows 4096 --level counters -w OUT.parquet --tunnels inner"),
    Command("flows READ --max-flows 4096 --level tcp -w OUT.parquet --idle 0.01"),
    Command("flows READ --max-flows 4096 --level stats -w OUT.parquet --first-packets 255"),
    Command("flows READ --max-flows 4096 --level counters -w OUT.log --workers 2"),
    Command("flows READ --max-flows 4096 --level tcp -w OUT.log --tunnels outer"),
    Command("flows READ --max-flows 16 --level stats -w OUT.log --active 0.001"),
    Command("flows READ --max-flows 16 --level stats --json"),
    Command("streams READ --overlap bsd --gap-wait 0"),
    Command("streams READ -w - --overlap linux --gap-wait 0 --checksums"),
    Command("streams READ --json --max-connections 3 --held-memory 1KiB --stream-memory 300"),
    Command("streams READ --follow 0 --form hex --idle 0.001"),
    Command("replay FILE --to pcap:OUT.pcap --rate max"),
    Command(
        "replay FILE --to pcap:OUT.pcap --rate max --loops 2 --pad --rewrite-inner --fix-checksums \
         --shift-ips 77 --rewrite ip=10.0.0.0/8:192.168.0.0/16 --rewrite src-port=0-65535:7 --rewrite ttl=-1 \
         --rewrite src-mac=02:00:00:00:00:09 --rewrite vlan=push:7:3",
    ),
    Command(
        "replay FILE --to pcap:OUT.pcap --rate max --rewrite ip=::/0=fd00::/8 --rewrite vlan=pop \
         --rewrite dst-mac=02:00:00:00:00:09 --rewrite port=53:54 --split 0/2",
    ),
    Command("replay FILE --to pcap:OUT.pcap --to-server mem:other --rate max"),
];

/// Commands that take several files.
pub(crate) const TOGETHER: &[Command] = &[
    Command("capture READ -w OUT.pcapng.zst"),
    Command("flows READ --max-flows 4096 --level stats -w OUT.jsonl"),
    Command("find FILES -w OUT.pcapng.gz"),
    Command("count READ --protocols --json"),
    Command("capture READ -w OUT.pcap --dedup"),
    Command("capture READ --nano -ttt"),
    Command("flows READ --max-flows 4096 --level tcp -w OUT.parquet --workers 2"),
];

impl Command {
    /// Returns the arguments for these files and this output path.
    pub(crate) fn arguments(&self, files: &[&Path], out: &str) -> Vec<String> {
        let names: Vec<&str> = files.iter().map(|path| path.to_str().expect("a path in UTF-8")).collect();
        let words = self.0.split_whitespace().flat_map(|word| match word {
            "READ" => names.iter().flat_map(|name| ["-r".to_owned(), (*name).to_owned()]).collect(),
            "FILES" => names.iter().map(|name| (*name).to_owned()).collect(),
            word => vec![word.replace("FILE", names[0]).replace("OUT", out)],
        });
        words.collect()
    }

    /// Returns the error if the output cannot be read.
    pub(crate) fn unreadable(&self, out: &str) -> Option<String> {
        let word =
            self.0.split_whitespace().find_map(|word| word.strip_prefix("pcap:OUT").or(word.strip_prefix("OUT")))?;
        let path = format!("{out}{word}");
        let wrong = match word {
            ".jsonl" | ".log" => lines(&path),
            ".parquet" => rows(&path),
            _ => frames(&path),
        };
        wrong.err().map(|wrong| format!("output is not readable: {wrong}"))
    }
}

fn lines(path: &str) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let parsed =
        text.lines().map(|line| serde_json::from_str::<Value>(line).map_err(|error| format!("{error}: {line}")));
    let all: Result<Vec<Value>, String> = parsed.collect();
    all.map(drop)
}

fn rows(path: &str) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| error.to_string())?;
    let mut batches = builder.build().map_err(|error| error.to_string())?;
    batches.try_for_each(|batch| batch.map(drop).map_err(|error| error.to_string()))
}

/// Output without frames may be empty.
fn frames(path: &str) -> Result<(), String> {
    if fs::metadata(path).map_err(|error| error.to_string())?.len() == 0 {
        return Ok(());
    }
    let mut reader = Reader::open(path).map_err(|error| error.to_string())?;
    loop {
        match reader.fill().map(|burst| burst.len()) {
            Ok(0) => return Ok(()),
            Ok(shown) => reader.consume(shown),
            Err(error) => return Err(error.to_string()),
        }
    }
}
