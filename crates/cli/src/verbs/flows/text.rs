//! Report of flows: text.

use super::output::{Tee, Totals};
use super::query_output::{moment, of_one};
use super::workers;
use crate::view::rates::{Rates, counted, grouped, stated};
use crate::view::table::table;
use crate::view::terminal::shown;
use linerate_burst::{Account, Count, Kind, Ledger, Stage};
use linerate_engine::MeteringReport;
use linerate_export::export;
use linerate_headers::registry;
use linerate_meter::{End, EndReason, Flow};
use linerate_query::Measure;
use std::net::IpAddr;
use std::sync::Mutex;

/// Returns the report: counts of metering, records by the ledger, and top flows. For files (`is_read`) the time is that
/// of reading, without a rate.
pub(crate) fn summary(metered: &MeteringReport, totals: &Totals, ledger: &Ledger, is_read: bool) -> String {
    summary_of((metered, totals), ledger, is_read, &top_flows(&totals.top))
}

/// Returns the same with another text about the records.
pub(super) fn summary_of(
    (metered, totals): (&MeteringReport, &Totals),
    ledger: &Ledger,
    is_read: bool,
    records: &str,
) -> String {
    let counts = &metered.counts;
    let seconds = metered.elapsed.as_secs_f64();
    let time = match is_read {
        true => format!(", read in {seconds:.3} s"),
        false => format!(" in {seconds:.3} s: {}", Rates::new(counts.frames, counts.bytes, seconds).frames()),
    };
    let mut text = format!(
        "{} of {}, {}{time}\n",
        counted(totals.flows, "flow"),
        counted(counts.frames, "packet"),
        counted(counts.bytes, "byte"),
    );
    let reasons = EndReason::ALL.into_iter().filter(|reason| counts.ended_by(*reason) > 0);
    let reasons: Vec<String> = reasons
        .map(|reason| {
            // The word is that of IPFIX, also used in records.
            let meaning = if reason == EndReason::Forced { " (still open at the end)" } else { "" };
            format!("{} {}{meaning}", reason.name(), grouped(counts.ended_by(reason)))
        })
        .collect();
    if !reasons.is_empty() {
        text += &format!("  ended: {}; peak {} concurrent\n", reasons.join(", "), grouped(counts.most_flows));
    }
    let links: Vec<String> = metered.unknown_links.iter().map(u16::to_string).collect();
    let unknown = format!("packets of unknown link type ({})", links.join(", "));
    for (count, what) in [
        (totals.inner_flows, "flows in tunnels; their packets are in outer flows too"),
        (counts.unknown_link, &unknown),
        (counts.not_ip, "packets are not IP"),
        (counts.malformed, "packets with a malformed IP header"),
        (counts.aggregated, "one-packet flows were aggregated, the table was full (--max-flows)"),
        (counts.fragments_joined, "non-first fragments were matched to their flow"),
        (counts.fragments_orphaned, "non-first fragments without a first one, recorded without ports"),
        (counts.fragments_no_room, "of them because the fragment buffer was full"),
        (counts.names_full, "names are missing in records, the name table was full (64 MiB per worker)"),
        (counts.name_buffer_full, "partial stream starts were evicted, the name buffer was full"),
        (metered.far_frames, "packets with a timestamp 16 hours or more off"),
        (metered.time_jumps, "timestamp jumps of 16 hours or more; open flows were ended"),
    ] {
        if count > 0 {
            text += &format!("  {}\n", stated(count, what));
        }
    }
    text + &written(ledger) + records + &workers::text(metered, totals)
}

/// Describes the flows that have ended so far.
pub(crate) fn so_far(records: &Mutex<Tee>) -> String {
    let totals = super::locked(records).so_far();
    format!("  {}\n{}", stated(totals.flows, "flows ended"), top_flows(&totals.top))
}

/// Describes the records of all exporters.
pub(super) fn written(ledger: &Ledger) -> String {
    ledger.accounts().iter().fold(String::new(), |text, account| match account.stage {
        Stage::Export => text + &exported(account),
        Stage::Deliver => text + &delivered(account),
        _ => text,
    })
}

/// Returns the number of records lost after metering or not delivered yet.
pub(super) fn undelivered(ledger: &Ledger) -> u64 {
    lost(ledger) + ledger.total(Count::DeliverWaiting)
}

/// Returns the number of records lost after metering.
pub(super) fn lost(ledger: &Ledger) -> u64 {
    ledger.sum(Stage::Export, Kind::Lost) + ledger.sum(Stage::Deliver, Kind::Lost)
}

/// Describes the spool of one exporter.
fn delivered(account: &Account) -> String {
    let (delivered, waiting) = (account.get(Count::DeliverAcknowledged), account.get(Count::DeliverWaiting));
    let batches = account.get(Count::DeliverBatches);
    let plural = if batches == 1 { "" } else { "es" };
    let (delivered, batches) = (grouped(delivered), grouped(batches));
    let mut text = format!("    {delivered} delivered, including earlier runs, in {batches} batch{plural}\n");
    if waiting > 0 {
        text += &format!("    {} in the spool, to be sent by the next run to this target\n", grouped(waiting));
    }
    text + &losses(account)
}

/// Describes the records of one exporter.
fn exported(account: &Account) -> String {
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let (records, files) = (account.get(Count::Exported), account.get(Count::ExportFiles));
    let files = if files > 0 { format!(", in {} file{}", grouped(files), plural(files)) } else { String::new() };
    let to = match &account.subject {
        subject if export::is_shipped(subject) => "spooled for",
        subject if export::is_collector(subject) => "sent to",
        _ => "written to",
    };
    format!("  {} record{} {to} {}{files}\n", grouped(records), plural(records), shown(&account.subject))
        + &losses(account)
}

fn losses(account: &Account) -> String {
    let mut text = String::new();
    for (count, lost) in account.counts().filter(|(count, lost)| count.kind() == Kind::Lost && *lost > 0) {
        text += &format!("  lost {} {}: {}\n", grouped(lost), count.name(), count.sentence());
    }
    text
}

/// Returns the table of the flows with most bytes.
pub(super) fn top_flows(top: &[Flow]) -> String {
    ranked(top, "top flows", None)
}

/// Returns flows as a table with a title. They are sorted by `sort`, which has a column of its own if no other shows
/// it.
pub(super) fn ranked(top: &[Flow], title: &str, sort: Option<&Measure>) -> String {
    if top.is_empty() {
        return String::new();
    }
    let sort = sort.filter(|measure| !["records", "packets", "bytes", "duration"].contains(&measure.name()));
    let values = sort.map(|measure| (measure, measure.of_flows(top)));
    let mut heads = vec!["", title, "", "protocol", "start", "packets", "bytes", "packets rev", "bytes rev", "seconds"];
    heads.extend(sort.map(Measure::name));
    let has_names = top.iter().any(|flow| site(flow).is_some());
    let has_states = top.iter().any(|flow| flow.tcp.is_some());
    let texts = heads.len();
    if has_states {
        heads.push("state");
    }
    if has_names {
        heads.push("name");
    }
    // Two IPv6 addresses are wider than many terminals.
    let mut rows = table(&heads, 5).with_single_key();
    (texts..heads.len()).for_each(|column| rows.set_left(column));
    for (place, flow) in top.iter().enumerate() {
        let [orig, resp] = flow.sides;
        let mut row = vec![
            (place + 1).to_string(),
            end(flow.ends[0]),
            end(flow.ends[1]),
            protocol(flow.protocol),
            // In milliseconds, as nfdump prints it; -w has all digits.
            moment(flow.first().0, 1_000_000),
            grouped(orig.packets),
            grouped(orig.frame_bytes),
            grouped(resp.packets),
            grouped(resp.frame_bytes),
            format!("{:.3}", flow.last().since(flow.first()).as_secs_f64()),
        ];
        row.extend(values.as_ref().map(|(measure, values)| of_one(measure, values[place])));
        if has_states {
            row.push(flow.tcp.as_ref().map_or("", |tcp| tcp.state.name()).to_owned());
        }
        if has_names {
            row.push(site(flow).unwrap_or_default().to_owned());
        }
        rows.add_row(row);
    }
    format!("{rows}\n")
}

/// Returns the name of the site, if recorded.
fn site(flow: &Flow) -> Option<&str> {
    flow.names.as_ref()?.site()
}

pub(super) fn end(end: End) -> String {
    match end.address {
        IpAddr::V4(address) => format!("{address}:{}", end.port),
        IpAddr::V6(address) => format!("[{address}]:{}", end.port),
    }
}

pub(in crate::verbs) fn protocol(number: u8) -> String {
    let name = match number {
        registry::TCP => "TCP",
        registry::UDP => "UDP",
        registry::ICMP => "ICMP",
        registry::ICMPV6 => "ICMPv6",
        registry::SCTP => "SCTP",
        registry::ESP => "ESP",
        registry::GRE => "GRE",
        registry::IGMP => "IGMP",
        number => return number.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::workers::tests::flow;
    use super::*;

    #[test]
    fn the_column_that_flows_are_sorted_by_is_shown_once() {
        let table = |sort| ranked(&[flow(1, 5, 500)], "records", Some(&Measure::one(sort).unwrap()));
        let (sorted, plain) = (table("bpp"), table("bytes"));
        assert!(sorted.lines().next().unwrap().contains("bpp") && sorted.contains("100.0"), "{sorted}");
        assert_eq!(plain, ranked(&[flow(1, 5, 500)], "records", None));
    }

    #[test]
    fn the_time_of_files_is_that_of_reading() {
        let (metered, totals) = (
            MeteringReport { elapsed: std::time::Duration::from_secs(1), ..MeteringReport::default() },
            Totals::default(),
        );
        let [read, live] = [true, false].map(|is_read| summary(&metered, &totals, &Ledger::new(), is_read));
        assert!(read.contains(", read in 1.000 s\n") && !read.contains("/s"), "{read}");
        assert!(live.contains(" in 1.000 s: 0 packets/s\n"), "{live}");
    }
}
