//! Questions about stored flow records: records per second.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use anyhow::anyhow;
use linerate_burst::{Nanos, random::draw};
use linerate_cli::view::rates::counted;
use linerate_export::decode;
use linerate_export::encode::parquet::{GROUP_ROWS, Writer};
use linerate_meter::Flow;
use linerate_query::{Filter, Key, Question, Store, stored};
use std::cell::Cell;
use std::fs::File;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

/// Records of the file.
const RECORDS: usize = 8 * GROUP_ROWS;
/// Hosts that open flows: one key each.
const HOSTS: u64 = 22_170;

/// Questions: filter, keys, measures, and threads.
const CASES: [(&str, &str, &str, usize); 6] = [
    ("", "orig_address", "records,packets,bytes", 1),
    ("", "orig_address", "records,packets,bytes", 2),
    ("", "resp_port,protocol", "records,packets,bytes", 1),
    ("", "address/24", "flows,bytes,bps", 1),
    ("src net 10.0.1.0/24 and bytes > 1k", "resp_address", "records,packets,bytes", 1),
    ("bytes > 1k and not flags A", "end_reason", "records,packets,bytes", 1),
];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    Ok(vec![case(move || of(effort))])
}

fn of(effort: Effort) -> anyhow::Result<Case> {
    let folder = Rc::new(Folder::new("query")?);
    let path = folder.file("flows.parquet");
    let records = effort.of(RECORDS);
    let mut writer = Writer::new(File::create(&path)?)?;
    for group in 0..records.div_ceil(GROUP_ROWS) {
        let flows: Vec<Flow> =
            (group * GROUP_ROWS..records.min((group + 1) * GROUP_ROWS)).map(|number| flow(number as u64)).collect();
        writer.write(&flows.iter().collect::<Vec<_>>())?;
    }
    writer.finish()?;
    let size = std::fs::metadata(&path)?.len() / records as u64;
    let store = Rc::new(Store::new(stored(&path)?, 0, u64::MAX));
    let mut all = Case::default();
    for (filter, keys, sums, threads) in CASES {
        let keys_of = Key::parse(keys).map_err(|error| anyhow!(error))?;
        let mut question = Question { keys: keys_of, ..Question::new(Filter::parse(filter, Nanos::ZERO)?) };
        question.measure(Some(sums), None).map_err(|error| anyhow!(error))?;
        let (question, groups) = (Arc::new(question), Rc::new(Cell::new(0)));
        let (found, store, folder) = (Rc::clone(&groups), Rc::clone(&store), Rc::clone(&folder));
        let round = move || {
            let _folder = &folder;
            Sample::timed(|| {
                let (asked, scan) = store.ask(&question, None, threads, &|| true);
                found.set(asked.answer().groups);
                anyhow::ensure!(scan.failures.is_empty(), "{}", scan.failures.join(", "));
                Ok(records as u64)
            })
        };
        let name = if filter.is_empty() { keys.to_owned() } else { format!("{filter}, {keys}") };
        let threads_of = counted(threads as u64, "thread");
        let ours = Ours::new(name, round).with(|row| row.cores = threads).finish(move |row| {
            row.remark = format!("{threads_of}, {}, {size} bytes per record", counted(groups.get(), "group"));
        });
        all.ours.push(ours);
    }
    Ok(all)
}

/// A flow as of a network: few hosts have most of the traffic, ports are those of services, times follow each other.
pub(super) fn flow(number: u64) -> Flow {
    let chance = |what: u64| draw(what, number);
    let host = (chance(1) % HOSTS).min(chance(2) % HOSTS);
    let mut flow = decode::nothing();
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
