//! Export of flow records: records per second in each format and to each destination, and CPU time per record.
//!
//! The broker and the database are threads of this process that read, acknowledge and discard.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::machine::process_cpu;
use super::query::flow;
use linerate_burst::{Account, Count, Ledger, Nanos};
use linerate_cli::view::rates::counted;
use linerate_export::export::DeliveryOptions;
use linerate_export::ipfix::{Packer, Profile};
use linerate_export::{Demand, Ending, Exporter, Exports, Format, Options, open};
use linerate_meter::{Flow, Level, Records};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

/// Records of a round.
const RECORDS: usize = 1 << 20;
/// Different records among them.
const DIFFERENT: usize = 1 << 17;

/// Destination, format, and encoding threads.
const CASES: [(&str, &str, usize); 12] = [
    ("null", "", 1),
    ("/dev/null", "jsonl", 1),
    ("/dev/null", "csv", 1),
    ("/dev/null", "parquet", 1),
    ("/dev/null", "parquet", 2),
    ("/dev/null", "ipfix", 1),
    ("kafka", "parquet", 1),
    ("kafka", "parquet", 2),
    ("kafka", "jsonl", 2),
    ("clickhouse", "parquet", 2),
    ("kafka by a disk", "parquet", 2),
    ("clickhouse by a disk", "parquet", 2),
];
/// Suffix of a destination whose spool is on a disk.
const BY_DISK: &str = " by a disk";

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    Ok(vec![case(move || {
        let flows: Vec<Flow> = (0..effort.of(DIFFERENT)).map(|number| flow(number as u64)).collect();
        let (flows, count) = (Rc::new(flows), effort.of(RECORDS));
        let own = Rc::clone(&flows);
        let mut all = Case::default();
        all.ours.push(named("ipfix in memory, two records per flow".to_owned(), 1, move || in_memory(&own, count)));
        for (place, format, threads) in CASES {
            let threads_of = counted(threads as u64, "thread");
            let name = match place {
                "null" => "null: only the queue".to_owned(),
                "/dev/null" => format!("{format}, {threads_of}"),
                place => format!("{format} to {place}, {threads_of}"),
            };
            let flows = Rc::clone(&flows);
            all.ours.push(named(name, threads, move || round(place, format, threads, &flows, count)));
        }
        Ok(all)
    })])
}

fn named(name: String, threads: usize, round: impl FnMut() -> anyhow::Result<Sample> + 'static) -> Ours {
    Ours::new(name, round).with(|row| row.cores = threads)
}

/// Runs `work`, which returns its records, by the clock and by the CPU time of the process.
fn measured(work: impl FnOnce() -> anyhow::Result<u64>) -> anyhow::Result<Sample> {
    let before = process_cpu();
    let sample = Sample::timed(work)?;
    Ok(Sample { cpu: Some((process_cpu() - before).as_secs_f64()), ..sample })
}

/// Makes IPFIX messages in the thread that has the flows.
fn in_memory(flows: &[Flow], count: usize) -> anyhow::Result<Sample> {
    let flows: Vec<&Flow> = flows.iter().collect();
    measured(|| {
        let (mut packer, mut messages, mut records) = (Packer::new(Profile::default()), Vec::new(), 0);
        for chunk in flows.chunks(512).cycle().take(count.div_ceil(512)) {
            // Each flow is two records, one per direction.
            records += 2 * chunk.len() as u64;
            packer.pack(chunk, Nanos(1), &mut messages);
            black_box(&messages);
            messages.clear();
        }
        Ok(records)
    })
}

/// Exports this number of records, up to their acknowledgement.
fn round(place: &str, format: &str, threads: usize, flows: &[Flow], count: usize) -> anyhow::Result<Sample> {
    let is_by_disk = place.ends_with(BY_DISK);
    let folder = if is_by_disk { Folder::on_disk("export") } else { Folder::new("export") }?;
    let target = match place.trim_end_matches(BY_DISK) {
        "null" | "/dev/null" => place.to_owned(),
        "kafka" => format!("kafka://127.0.0.1:{}/bench", start_stub_server(broker)?),
        _ => format!("clickhouse://127.0.0.1:{}/bench", start_stub_server(database)?),
    };
    let ship = format!("spool={},sensor=bench,end=600", folder.path().display());
    let options =
        Options { format: Format::named(format), ship: DeliveryOptions::parse(&ship)?, threads, ..Options::default() };
    let exporters = match place {
        "null" => vec![Box::new(NullRecords(0)) as Box<dyn Exporter>],
        _ => open(&[&target], &options)?,
    };
    let is_shipped = target.contains("://");
    measured(|| {
        let mut exports = Exports::start(exporters, || ())?;
        flows.iter().cycle().take(count).for_each(|flow| exports.take(flow));
        let mut ledger = Ledger::new();
        exports.finish(false, &mut ledger)?;
        let (written, acknowledged) = (ledger.total(Count::Exported), ledger.total(Count::DeliverAcknowledged));
        let is_whole = written == count as u64 && (!is_shipped || acknowledged == written);
        anyhow::ensure!(is_whole, "{target}: {written} written, {acknowledged} acknowledged");
        Ok(written)
    })
}

/// Discards records.
struct NullRecords(u64);

impl Exporter for NullRecords {
    fn name(&self) -> &str {
        "null"
    }

    fn format(&self) -> (&'static str, Level) {
        ("nothing", Level::Stats)
    }

    fn demand(&self) -> Demand {
        Demand { bytes: 1 << 20, age: Duration::from_millis(100), tick: None }
    }

    fn write(&mut self, flows: &[Flow], _: Nanos) -> std::io::Result<()> {
        self.0 += flows.len() as u64;
        Ok(())
    }

    fn finish(&mut self, _: Ending) -> std::io::Result<()> {
        Ok(())
    }

    fn counters(&self, account: &mut Account) {
        account.add(Count::Exported, self.0);
    }
}

/// Serves each connection in a thread; returns the port. Threads end with their connections.
fn start_stub_server(serve: fn(TcpStream) -> std::io::Result<()>) -> std::io::Result<u16> {
    const IDLE: Duration = Duration::from_secs(60);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let accept = move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.set_read_timeout(Some(IDLE)).and_then(|()| stream.set_nodelay(true));
            std::thread::spawn(move || serve(stream));
        }
    };
    std::thread::spawn(accept);
    Ok(port)
}

/// A Kafka broker with one partition of one topic, reduced to the requests of a producer.
fn broker(mut stream: TcpStream) -> std::io::Result<()> {
    let port = stream.local_addr()?.port();
    let text = |text: &[u8]| [&(text.len() as i16).to_be_bytes(), text].concat();
    let words = |words: &[i32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request)?;
        let answer = match request.get(..2) {
            // ApiVersions: Produce, Metadata, ApiVersions, InitProducerId.
            Some([0, 18]) => {
                let all = [[0, 3, 12], [3, 0, 13], [18, 0, 4], [22, 0, 5]].concat();
                [&[0, 0][..], &words(&[4]), &all.into_iter().flat_map(i16::to_be_bytes).collect::<Vec<u8>>()].concat()
            }
            // Metadata: throttled for 0 ms; broker 7, here; the topic, and partition 0 of it.
            Some([0, 3]) => {
                let own = [words(&[0, 1, 7]), text(b"127.0.0.1"), words(&[port.into()]), vec![0xff; 2]].concat();
                let topic = [vec![0xff; 2], words(&[7, 1]), vec![0; 2], text(b"bench"), vec![0]].concat();
                [own, topic, words(&[1]), vec![0; 2], words(&[0, 7, 1, 7, 1, 7])].concat()
            }
            // InitProducerId: 1, epoch 0.
            Some([0, 22]) => [&[0; 6][..], &1i64.to_be_bytes(), &[0; 2]].concat(),
            // Produce: taken.
            _ => [words(&[1]), text(b"bench"), words(&[1, 0]), vec![0; 2 + 24 + 4]].concat(),
        };
        let head = [&(answer.len() as u32 + 4).to_be_bytes()[..], request.get(4..8).unwrap_or(&[0; 4])].concat();
        stream.write_all(&[head, answer].concat())?;
    }
}

/// A database that accepts inserts over HTTP.
fn database(stream: TcpStream) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap_or_default();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        std::io::copy(&mut (&mut input).take(length), &mut std::io::sink())?;
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
}
