//! Stored flow records that are asked: how many a core goes through in a second.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use anyhow::anyhow;
use linerate_burst::{Nanos, random::draw};
use linerate_meter::Flow;
use linerate_query::{Filter, Key, Question, Store, stored};
use linerate_records::back;
use linerate_records::encode::parquet::{GROUP_ROWS, Writer};
use std::fs::File;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Records of the file.
const RECORDS: usize = 8 * GROUP_ROWS;
/// Hosts that begin flows: as many keys.
const HOSTS: u64 = 22_170;

/// What is asked: filter, keys, measures, and threads.
const CASES: [(&str, &str, &str, usize); 6] = [
    ("", "orig_address", "records,packets,bytes", 1),
    ("", "orig_address", "records,packets,bytes", 2),
    ("", "resp_port,protocol", "records,packets,bytes", 1),
    ("", "address/24", "flows,bytes,bps", 1),
    ("src net 10.0.1.0/24 and bytes > 1k", "resp_address", "records,packets,bytes", 1),
    ("bytes > 1k and not flags A", "end_reason", "records,packets,bytes", 1),
];

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let folder = Folder::new("query")?;
    let path = folder.file("flows.parquet");
    let records = effort.of(RECORDS);
    let mut writer = Writer::new(File::create(&path)?)?;
    for group in 0..records.div_ceil(GROUP_ROWS) {
        let flows: Vec<Flow> =
            (group * GROUP_ROWS..records.min((group + 1) * GROUP_ROWS)).map(|number| flow(number as u64)).collect();
        writer.write(&flows.iter().collect::<Vec<_>>())?;
    }
    writer.finish()?;
    let bytes = std::fs::metadata(&path)?.len();
    let store = Store::new(stored(&path)?, 0, u64::MAX);
    let mut rows = Vec::new();
    for (filter, keys, sums, threads) in CASES {
        let filter_of = Filter::parse(filter, Nanos::ZERO)?;
        let mut question =
            Question { keys: Key::parse(keys).map_err(|error| anyhow!(error))?, ..Question::new(filter_of) };
        question.measure(Some(sums), None).map_err(|error| anyhow!(error))?;
        let (question, mut rounds, mut groups) = (Arc::new(question), Rounds::default(), 0);
        for _ in 0..effort.rounds {
            let mut failed = Vec::new();
            rounds.time(|| {
                let (asked, scan) = store.ask(&question, None, threads, &|| true);
                groups = asked.answer().groups;
                failed = scan.failures;
                records as u64
            });
            anyhow::ensure!(failed.is_empty(), "{}", failed.join(", "));
        }
        let what = if filter.is_empty() { keys.to_owned() } else { format!("{filter}, {keys}") };
        let mut row = rounds.row("query", what, 0.0);
        row.cores = threads;
        row.remark = format!(
            "records/s; {threads} thread{}, {groups} groups, {} bytes a record",
            if threads == 1 { "" } else { "s" },
            bytes / records as u64
        );
        rows.push(row);
    }
    Ok(rows)
}

/// As flows of a network are: few hosts have much, ports of services, a moment after the one before.
pub(super) fn flow(number: u64) -> Flow {
    let chance = |what: u64| draw(what, number);
    let host = (chance(1) % HOSTS).min(chance(2) % HOSTS);
    let mut flow = back::nothing();
    flow.id = chance(3);
    flow.ends[0].address = Ipv4Addr::from(0x0a00_0000 + host as u32).into();
    flow.ends[1].address = Ipv4Addr::from(0xc0a8_0000 + (chance(4) % 2000) as u32).into();
    flow.ends[0].port = 32_768 + (chance(5) % 28_000) as u16;
    flow.ends[1].port = [443, 53, 80, 22, 123, 8080, 25, 3389][(chance(6) % 8) as usize];
    flow.protocol = if flow.ends[1].port % 3 == 2 { 17 } else { 6 };
    let time = 1_700_000_000_000_000_000 + number * 100_000;
    for (side, of) in flow.sides.iter_mut().zip([7, 9]) {
        side.packets = 1 + chance(of) % 40;
        side.frame_bytes = side.packets * (60 + chance(of + 1) % 1400);
        (side.first, side.last) = (Nanos(time), Nanos(time + chance(of) % 5_000_000_000));
        side.tcp_flags = [2, 18, 27][(chance(11) % 3) as usize];
    }
    flow
}
