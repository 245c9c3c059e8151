//! Result of a query: as table, JSON, CSV, picture.

use super::text::protocol;
use crate::view::chart::{Axis, DrawStyle, Series, svg};
use crate::view::rates::{counted, grouped};
use crate::view::table::table;
use crate::view::terminal::{show, show_line};
use linerate_pcap::date;
use linerate_query::columns::all;
use linerate_query::{Answer, Key, Measure, Question, Row, Value};
use serde_json::{Map, Value as Json, json};
use std::io::Write;

/// Length of a full bar in characters.
const BAR: usize = 16;
/// Maximum number of lines in a picture.
const SERIES: usize = 6;

/// Returns a table of the groups, with the share of each in the total.
pub(super) fn text(question: &Question, answer: &Answer) -> String {
    let Question { keys, measures, .. } = question;
    let sort = &measures[question.sort];
    let has_time = question.every > 0;
    let mut heads: Vec<&str> = if has_time { vec!["time"] } else { Vec::new() };
    heads.extend(keys.iter().map(|key| key.name.as_str()));
    let numbers = heads.len();
    heads.extend(measures.iter().map(Measure::name));
    let share = format!("% of {}", sort.name());
    if sort.has_parts() {
        heads.push(&share);
    }
    heads.push("");
    let mut rows = table(&heads, numbers);
    rows.set_left(heads.len() - 1);
    // A full bar is the total; over time, and for measures without a total, the largest row.
    let full = match sort.has_parts() && !has_time {
        true => answer.value(&answer.totals, sort),
        false => answer.rows.iter().map(|row| answer.value(row, sort)).fold(0.0, f64::max),
    };
    let cells = |row: &Row, mut cells: Vec<String>, has_bar: bool| {
        cells.extend(measures.iter().map(|measure| shown(answer, row, measure)));
        if sort.has_parts() {
            let part = part(question, answer, row);
            cells.push(part.map_or(String::new(), |part| format!("{:.1} %", part * 100.0)));
        }
        cells.push(if has_bar { bar(answer.value(row, sort), full) } else { String::new() });
        cells
    };
    for row in &answer.rows {
        let time = row.time.map(|time| moment(time, question.every));
        let names = row.keys.iter().zip(keys).map(|(value, key)| name(value, key));
        rows.add_row(cells(row, time.into_iter().chain(names).collect(), true));
    }
    let filled = |word: &str| -> Vec<String> {
        let blank = std::iter::repeat_n(String::new(), numbers.saturating_sub(1));
        std::iter::once(word.to_owned()).chain(blank).collect()
    };
    if let Some(others) = &answer.others {
        rows.add_row(cells(others, filled("other"), false));
    }
    if numbers > 0 {
        rows.add_row(cells(&answer.totals, filled("total"), false));
    }
    let mut text = format!("{rows}\n");
    if answer.evicted_groups > 0 {
        text += &format!(
            "  group table full: {} (the smallest) counted as other\n",
            counted(answer.evicted_groups, "group")
        );
    }
    if has_time {
        text += "  sums of a record are spread evenly over its time; rates are per step\n";
    }
    if question.counts_twice() && measures.iter().any(|measure| !matches!(measure, Measure::OfEnd(..))) {
        text += "  each record counts for both of its ends: rows add up to more than the total\n";
    }
    text
}

/// Returns a note that packets in tunnels count twice, in outer and inner flows, and the filter that avoids it.
pub(super) fn note_on_tunnels(answer: &Answer) -> String {
    match answer.in_tunnels {
        inner if inner == 0 || inner == answer.records => String::new(),
        inner => format!(
            "  {} of packets in tunnels, which matching outer flows count too; filter: 'not tunnel_kind'\n",
            counted(inner, "record")
        ),
    }
}

/// Returns the share of a row in the total; `None` for the rest if records count twice: it may exceed the total.
fn part(question: &Question, answer: &Answer, row: &Row) -> Option<f64> {
    let is_rest = answer.others.as_ref().is_some_and(|others| std::ptr::eq(others, row));
    let part = answer.part(row, &question.measures[question.sort]);
    part.filter(|_| !(is_rest && question.counts_twice()))
}

fn bar(value: f64, full: f64) -> String {
    let eighths = if full > 0.0 { (value / full * (BAR * 8) as f64).round() as usize } else { 0 };
    let eighths = eighths.min(BAR * 8);
    let rest = ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"][eighths % 8];
    "\u{2588}".repeat(eighths / 8) + rest
}

fn shown(answer: &Answer, row: &Row, measure: &Measure) -> String {
    match answer.whole(row, measure).filter(|_| measure.has_parts()) {
        Some(whole) => grouped(whole),
        None => of_one(measure, answer.value(row, measure)),
    }
}

/// The value of a measure for people.
pub(super) fn of_one(measure: &Measure, value: f64) -> String {
    match measure {
        Measure::Duration => format!("{:.3} s", value / 1e9),
        Measure::Bps | Measure::Pps => scaled(value),
        Measure::Bpp => format!("{value:.1}"),
        _ => grouped(value as u64),
    }
}

/// Formats a number with a decimal prefix.
fn scaled(value: f64) -> String {
    let units = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    match units.into_iter().find(|(scale, _)| value >= *scale) {
        Some((scale, unit)) => format!("{:.2}{unit}", value / scale),
        None => format!("{value:.1}"),
    }
}

/// Formats a time (UTC) as exactly as steps of this length need.
pub(in crate::verbs) fn moment(time: u64, every: u64) -> String {
    let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
    let [year, month, day] = date(seconds);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if !every.is_multiple_of(86_400_000_000_000) {
        text += &format!(" {hour:02}:{minute:02}");
    }
    if !every.is_multiple_of(60_000_000_000) {
        text += &format!(":{second:02}");
    }
    match every {
        _ if every.is_multiple_of(1_000_000_000) => {}
        _ if every.is_multiple_of(1_000_000) => text += &format!(".{:03}", nanos / 1_000_000),
        _ if nanos > 0 => text += format!(".{nanos:09}").trim_end_matches('0'),
        _ => {}
    }
    text
}

/// Describes the period of `--since` and `--until`, whose times may have had no date; empty for all time.
pub(in crate::verbs) fn period(since: u64, until: u64) -> String {
    let since = (since > 0).then(|| format!(" since {} UTC", moment(since, 1)));
    let until = (until < u64::MAX).then(|| format!(" until {} UTC", moment(until, 1)));
    since.unwrap_or_default() + &until.unwrap_or_default()
}

/// Formats a key of a group.
pub(in crate::verbs) fn name(value: &Value, key: &Key) -> String {
    match value {
        Value::None => "-".to_owned(),
        Value::Flag(flag) => flag.to_string(),
        Value::Number(number) if is_protocol(key) => protocol(u8::try_from(*number).unwrap_or(0)),
        Value::Number(number) if all()[key.id(0)].is_id() => format!("{number:016x}"),
        Value::Number(number) => number.to_string(),
        Value::Time(time) => moment(*time, 1),
        Value::Address(address) => match key.prefix {
            Some([narrow, wide]) => format!("{address}/{}", if address.is_ipv6() { wide } else { narrow }),
            None => address.to_string(),
        },
        Value::Text(text) => text.to_string(),
    }
}

fn is_protocol(key: &Key) -> bool {
    all()[key.id(0)].name == "protocol"
}

/// Converts a group to JSON.
fn document(question: &Question, answer: &Answer, row: &Row) -> Map<String, Json> {
    let mut map = Map::new();
    if let Some(time) = row.time {
        map.insert("time_ns".to_owned(), time.into());
    }
    for (value, key) in row.keys.iter().zip(&question.keys) {
        let value = match value {
            Value::None => Json::Null,
            Value::Flag(flag) => (*flag).into(),
            Value::Number(number) if !all()[key.id(0)].is_id() => (*number).into(),
            Value::Time(time) => (*time).into(),
            value => name(value, key).into(),
        };
        map.insert(key.name.clone(), value);
    }
    for measure in &question.measures {
        let value = answer.whole(row, measure).map_or_else(|| json!(answer.value(row, measure)), Json::from);
        let unit = if *measure == Measure::Duration { "_ns" } else { "" };
        map.insert(format!("{}{unit}", measure.name()), value);
    }
    if let Some(part) = part(question, answer, row) {
        map.insert("share".to_owned(), json!(part));
    }
    map
}

/// Converts all groups to JSON, for the document of a run.
pub(super) fn asked(question: &Question, answer: &Answer) -> Json {
    json!({
        "rows": answer.rows.iter().map(|row| document(question, answer, row)).collect::<Vec<_>>(),
        "records": answer.records,
        "groups": answer.groups,
        "evicted_groups": answer.evicted_groups,
        "other": answer.others.as_ref().map(|row| document(question, answer, row)),
        "total": document(question, answer, &answer.totals),
    })
}

/// Prints groups as JSON lines.
pub(super) fn lines(question: &Question, answer: &Answer) -> anyhow::Result<()> {
    for row in &answer.rows {
        let mut line = Map::from_iter([("schema".to_owned(), "linerate/flows-group/1".into())]);
        line.extend(document(question, answer, row));
        if !show_line(&line)? {
            break;
        }
    }
    Ok(())
}

/// Prints groups as CSV: texts in quotes (RFC 4180), absent values empty.
pub(super) fn csv(question: &Question, answer: &Answer) {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut heads: Vec<String> = if question.every > 0 { vec!["time".to_owned()] } else { Vec::new() };
    heads.extend(question.keys.iter().map(|key| key.name.clone()));
    heads.extend(question.measures.iter().map(|measure| measure.name().to_owned()));
    if !show(heads.join(",") + "\n") {
        return;
    }
    for row in &answer.rows {
        let mut cells: Vec<String> =
            row.time.map(|time| moment(time, 1).replacen(' ', "T", 1) + "Z").into_iter().collect();
        cells.extend(row.keys.iter().zip(&question.keys).map(|(value, key)| match value {
            Value::None => String::new(),
            Value::Text(text) => quoted(text),
            Value::Number(number) if is_protocol(key) => number.to_string(),
            value => name(value, key),
        }));
        let number = |measure: &Measure| {
            answer.whole(row, measure).map_or_else(|| answer.value(row, measure).to_string(), |whole| whole.to_string())
        };
        cells.extend(question.measures.iter().map(number));
        if !show(cells.join(",") + "\n") {
            return;
        }
    }
}

/// Draws values over time, a line for each of the first groups.
pub(super) fn draw(title: &str, question: &Question, answer: &Answer, out: &mut impl Write) -> std::io::Result<()> {
    let sort = &question.measures[question.sort];
    let times: Vec<u64> = answer.rows.iter().filter_map(|row| row.time).collect();
    let (first, last) = (times.iter().min().copied().unwrap_or(0), times.iter().max().copied().unwrap_or(0));
    // Hours and days are easier to read than seconds.
    let scales = [("days", 86_400e9), ("hours", 3_600e9), ("minutes", 60e9), ("seconds", 1e9)];
    let span = (last - first) as f64;
    let (unit, scale) = scales.into_iter().find(|(_, scale)| span >= 3.0 * scale).unwrap_or(("seconds", 1e9));
    let mut series: Vec<Series> = Vec::new();
    let mut known: Vec<&[Value]> = Vec::new();
    for row in &answer.rows {
        if !known.contains(&row.keys.as_slice()) && known.len() < SERIES {
            let names: Vec<String> = row.keys.iter().zip(&question.keys).map(|(value, key)| name(value, key)).collect();
            known.push(&row.keys);
            series.push(Series {
                name: names.join(", "),
                draw: DrawStyle::Line,
                colour: series.len(),
                points: Vec::new(),
            });
        }
    }
    for row in &answer.rows {
        let Some(place) = known.iter().position(|keys| *keys == row.keys) else { continue };
        let (time, every) = (row.time.unwrap_or(0), question.every);
        let at = |time: u64| time.saturating_sub(first) as f64 / scale;
        let points = &mut series[place].points;
        // Gaps without records are drawn as 0.
        if let Some((before, _)) = points.last().copied()
            && at(time) - before > 1.5 * every as f64 / scale
        {
            points.push((before + every as f64 / scale, 0.0));
            points.push((at(time.saturating_sub(every)), 0.0));
        }
        points.push((at(time), answer.value(row, sort)));
    }
    let across = Axis::linear(unit, series.iter().flat_map(|one| one.points.iter().map(|point| point.0)));
    let up = Axis::linear("", series.iter().flat_map(|one| one.points.iter().map(|point| point.1)));
    let title = format!("{} {title}, from {}", sort.name(), moment(first, question.every));
    out.write_all(svg(&title, across, up, &series).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::workers::tests::flow;
    use super::*;
    use linerate_meter::{Flow, Tunnel, TunnelKind};
    use linerate_query::columns::Batch;
    use linerate_query::{Filter, PartialAnswer};
    use std::sync::Arc;

    /// Returns the table and the document of four flows to one host, of 100 bytes each.
    fn results_by(keys: &str) -> (String, Json) {
        let question = Question { keys: Key::parse(keys).unwrap(), top: 2, ..Question::new(Filter::every()) };
        let question = Arc::new(question);
        let flows: Vec<_> = (1..=4).map(|host| flow(host, 1, 100)).collect();
        let mut counted = PartialAnswer::new(&question, 1);
        counted.take(&Batch::of_flows(&flows, counted.columns()));
        let answer = counted.answer();
        (text(&question, &answer), asked(&question, &answer))
    }

    #[test]
    fn sums_over_outer_and_inner_flows_are_marked() {
        let note = |filter: &str| {
            let filter = Filter::parse(filter, linerate_burst::Nanos(0)).unwrap();
            let question = Arc::new(Question::new(filter));
            let inner = Tunnel { kind: TunnelKind::Gre, id: 0, parent: 7 };
            let flows: Vec<_> =
                (1..=4).map(|host| Flow { tunnel: (host > 1).then_some(inner), ..flow(host, 1, 100) }).collect();
            let [mut counted, mut other] = [PartialAnswer::new(&question, 1), PartialAnswer::new(&question, 1)];
            counted.take(&Batch::of_flows(&flows, counted.columns()));
            other.take(&Batch::of_flows(&flows[..2], other.columns()));
            counted.join(other);
            note_on_tunnels(&counted.answer())
        };
        assert_eq!(
            note("tcp"),
            "  4 records of packets in tunnels, which matching outer flows count too; filter: 'not tunnel_kind'\n"
        );
        assert_eq!([note("not tunnel_kind"), note("tunnel_kind")], ["", ""]);
    }

    #[test]
    fn a_full_bar_is_the_total() {
        let (text, document) = results_by("orig_address");
        let bars: Vec<usize> = text.lines().map(|line| line.matches('\u{2588}').count()).collect();
        assert_eq!(bars, [0, BAR / 4, BAR / 4, 0, 0], "{text}");
        assert!(text.contains("other") && text.contains("50.0 %"), "{text}");
        assert_eq!((&document["other"]["share"], &document["rows"][0]["share"]), (&json!(0.5), &json!(0.25)));
    }

    /// The rest could exceed the total.
    #[test]
    fn the_rest_has_no_share_if_records_count_for_both_ends() {
        let (text, document) = results_by("address");
        let others = text.lines().find(|line| line.contains("other")).unwrap();
        assert!(!others.contains('%') && text.contains("add up to more than the total"), "{text}");
        assert_eq!((&document["other"]["share"], &document["total"]["share"]), (&Json::Null, &json!(1.0)));
    }
}
