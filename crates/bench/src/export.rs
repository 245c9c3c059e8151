//! Flow records on their way out: how many a second in each form and to each place, and the processor's time of each.
//!
//! A broker and a database are stood in for by threads of this process that read what comes, say that it is there, and keep nothing.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use super::query::flow;
use linerate_burst::{Account, Count, Ledger, Nanos};
use linerate_meter::{Flow, Level, Records};
use linerate_records::export::Shipping;
use linerate_records::ipfix::{Packer, Profile};
use linerate_records::{Demand, Ending, Exporter, Exports, Format, Options, open};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Records of a round.
const RECORDS: usize = 1 << 20;
/// Of which as many are different ones.
const DIFFERENT: usize = 1 << 17;

/// Where records go, and as what; threads that encode.
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
/// Behind the name of a place whose batches wait on a disk: in memory nobody waits for one.
const BY_DISK: &str = " by a disk";

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let flows: Vec<Flow> = (0..effort.of(DIFFERENT)).map(|number| flow(number as u64)).collect();
    let mut rows = vec![in_memory(effort, &flows)];
    for (place, format, threads) in CASES {
        let (mut rounds, mut cpu) = (Rounds::default(), Vec::new());
        for _ in 0..effort.rounds {
            let (seconds, cpu_seconds) = round(place, format, threads, &flows, effort.of(RECORDS))?;
            rounds.add(effort.of(RECORDS) as u64, seconds);
            cpu.push(cpu_seconds);
        }
        let plural = if threads == 1 { "" } else { "s" };
        let case = match place {
            "null" => "null: a queue alone".to_owned(),
            "/dev/null" => format!("{format}, {threads} thread{plural}"),
            place => format!("{format} to {place}, {threads} thread{plural}"),
        };
        let mut row = rounds.row("export", case, 0.0);
        row.cores = threads;
        row.remark = told(&mut cpu, effort.of(RECORDS));
        rows.push(row);
    }
    Ok(rows)
}

/// Messages of IPFIX, made by the thread that has the flows.
fn in_memory(effort: Effort, flows: &[Flow]) -> Row {
    let (mut rounds, mut cpu) = (Rounds::default(), Vec::new());
    let flows: Vec<&Flow> = flows.iter().collect();
    let count = effort.of(RECORDS);
    for _ in 0..effort.rounds {
        let (mut packer, mut messages) = (Packer::new(Profile::default()), Vec::new());
        let (begun, before) = (Instant::now(), cpu_time());
        let mut records = 0;
        for chunk in flows.chunks(512).cycle().take(count.div_ceil(512)) {
            // Each flow is two records, one a direction.
            records += 2 * chunk.len();
            packer.pack(chunk, Nanos(1), &mut messages);
            black_box(&messages);
            messages.clear();
        }
        rounds.add(records as u64, begun.elapsed().as_secs_f64());
        cpu.push((cpu_time() - before).as_secs_f64() * (count * 2) as f64 / records as f64);
    }
    let mut row = rounds.row("export", "ipfix in memory, two records a flow", 0.0);
    row.remark = told(&mut cpu, count * 2);
    row
}

/// Seconds, and seconds of processors, until so many records are there.
fn round(place: &str, format: &str, threads: usize, flows: &[Flow], count: usize) -> anyhow::Result<(f64, f64)> {
    let is_by_disk = place.ends_with(BY_DISK);
    let folder = if is_by_disk { Folder::on_disk("export") } else { Folder::new("export") }?;
    let target = match place.trim_end_matches(BY_DISK) {
        "null" | "/dev/null" => place.to_owned(),
        "kafka" => format!("kafka://127.0.0.1:{}/bench", stand_in(broker)?),
        _ => format!("clickhouse://127.0.0.1:{}/bench", stand_in(database)?),
    };
    let ship = format!("spool={},sensor=bench,end=600", folder.path().display());
    let options =
        Options { format: Format::named(format), ship: Shipping::parse(&ship)?, threads, ..Options::default() };
    let exporters = match place {
        "null" => vec![Box::new(Nowhere(0)) as Box<dyn Exporter>],
        _ => open(&[&target], &options)?,
    };
    let (begun, before) = (Instant::now(), cpu_time());
    let mut exports = Exports::start(exporters, || ())?;
    flows.iter().cycle().take(count).for_each(|flow| exports.take(flow));
    let mut ledger = Ledger::new();
    exports.finish(false, &mut ledger)?;
    let took = (begun.elapsed().as_secs_f64(), (cpu_time() - before).as_secs_f64());
    let (written, there) = (ledger.total(Count::Exported), ledger.total(Count::DeliverAcknowledged));
    let is_shipped = target.contains("://");
    anyhow::ensure!(written == count as u64 && (!is_shipped || there == written), "{target}: {written}, {there} there");
    Ok(took)
}

fn told(cpu: &mut [f64], records: usize) -> String {
    cpu.sort_by(f64::total_cmp);
    let seconds = cpu.get(cpu.len() / 2).copied().unwrap_or_default();
    format!("records/s; {:.2} us of CPU a record", seconds * 1e6 / records.max(1) as f64)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Takes records, and that is all.
struct Nowhere(u64);

impl Exporter for Nowhere {
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

/// Has a thread answer at each connection; where it listens. They end with their connections.
fn stand_in(serve: fn(TcpStream) -> std::io::Result<()>) -> std::io::Result<u16> {
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

/// A broker of Kafka with one partition of one topic, as far as a producer asks.
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

/// A database that takes inserts over HTTP.
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
