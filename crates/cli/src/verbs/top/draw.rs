//! The lines of the screen.
//!
//! A line of state, one of totals, ports, drops, readers and flows, and a line of keys. 80 by 24 has all parts, and a larger
//! screen more rows and longer spark lines; a smaller one keeps the most important parts.

use super::model::{InputField, Model, VIEWS, Zoom};
use crate::verbs::snapshot::{DropCount, Flows, Row, Snapshot, Sort};
use crate::view::rates::grouped;
use crate::view::screen::numbers::{bits, count, l1, per, size, span};
use crate::view::screen::table::{Column, number, spark, table, text};
use crate::view::screen::{Kind, Line, View};

/// Maximum and minimum length of spark lines.
const SPARK: (usize, usize) = (60, 8);

impl View for Model {
    fn key(&mut self, key: crate::view::screen::keys::Key) -> bool {
        Model::key(self, key)
    }

    fn look(&mut self) -> bool {
        Model::look(self)
    }

    fn lines(&mut self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = vec![self.title()];
        let body = height.saturating_sub(2);
        lines.extend(if self.help { help() } else { self.body(width, body) });
        lines.truncate(1 + body);
        lines.resize(1 + body, Line::new(Kind::Plain, ""));
        lines.push(self.last());
        lines
    }
}

impl Model {
    fn title(&self) -> Line {
        let mut text = format!(" linerate top  {}", self.from);
        if let Some(now) = &self.now {
            let what = if now.verb == "top" { String::new() } else { format!("  {} (pid {})", now.verb, now.pid) };
            text += &format!("{what}  {}", span(now.seconds));
        }
        if self.paused {
            text += "  PAUSED";
        }
        Line::new(Kind::Bar, text)
    }

    /// Returns the last line: text being typed, a message, or the keys.
    fn last(&self) -> Line {
        match &self.typing {
            Some((InputField::Filter, text)) => {
                let message = if self.message.is_empty() { String::new() } else { format!("   {}", self.message) };
                return Line::new(Kind::Bar, format!(" filter: {text}_{message}"));
            }
            Some((InputField::By, text)) => {
                let message = if self.message.is_empty() { String::new() } else { format!("   {}", self.message) };
                return Line::new(Kind::Bar, format!(" by: {text}_{message}"));
            }
            None if !self.message.is_empty() => return Line::new(Kind::Alarm, format!(" {}", self.message)),
            None => {}
        }
        Line::new(Kind::Bar, " q quit  ? help  f h p o b by  s sort  / filter  space pause  z zoom  n names")
    }

    fn body(&self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some((since, why)) = &self.unreachable {
            let seconds = since.elapsed().as_secs();
            lines.push(Line::new(Kind::Alarm, format!("no answer for {seconds} s ({why}); retrying")));
        }
        let Some(now) = &self.now else {
            if self.unreachable.is_none() {
                lines.push(Line::new(Kind::Plain, "waiting for data ..."));
            }
            return lines;
        };
        lines.push(Line::new(Kind::Plain, self.totals(now)));
        let room = height.saturating_sub(lines.len());
        let part = |zoom: Zoom, rows: usize, share: usize| match self.zoom {
            Zoom::All if rows == 0 => 0,
            Zoom::All => (rows + 1).min((room / share).max(2)),
            own if own == zoom => room,
            _ => 0,
        };
        let drops = self.drops(now);
        let ports = part(Zoom::Ports, now.ports.len(), 4);
        let dropped = part(Zoom::Drops, drops.len(), 5);
        let readers = part(Zoom::Readers, now.readers.len(), 5);
        let flows = match self.zoom {
            Zoom::All => room.saturating_sub(ports + dropped + readers),
            Zoom::Flows => room,
            _ => 0,
        };
        lines.extend(some(self.ports(now, width), ports, "this run has no receiving ports"));
        lines.extend(some(self.dropped(&drops, width), dropped, "no drops"));
        lines.extend(some(self.readers(now, width), readers, "no ring readers"));
        lines.extend(self.flows(now, width, flows));
        lines
    }

    /// Returns the line of totals.
    fn totals(&self, now: &Snapshot) -> String {
        let mut parts = Vec::new();
        for done in &now.done {
            let find = |snapshot: &Snapshot| snapshot.done.iter().find(|one| one.what == done.what).cloned();
            let frames = self.rate_of(|snapshot| Some(find(snapshot)?.frames));
            let bytes = self.rate_of(|snapshot| Some(find(snapshot)?.wire_bytes));
            parts.push(format!("{} {}", done.what, grouped(done.frames)));
            if let (Some(frames), Some(bytes)) = (frames, bytes) {
                parts.push(format!("{} packets/s  {} L1", count(frames), l1(frames, bytes)));
            }
        }
        let lost = now.drops.iter().filter(|dropped| dropped.is_lost);
        let lost = lost.fold(0, |sum: u64, dropped| sum.saturating_add(dropped.frames));
        parts.push(format!("{} lost", grouped(lost)));
        parts.join("  ")
    }

    fn ports(&self, now: &Snapshot, width: usize) -> Vec<(Kind, String)> {
        const COLUMNS: [Column; 6] = [
            text("port", 0),
            number("packets/s", 0),
            number("L1", 2),
            number("packets", 3),
            number("lost", 1),
            text("", 4),
        ];
        let rows: Vec<Vec<String>> = now
            .ports
            .iter()
            .map(|port| {
                let find = |snapshot: &Snapshot| snapshot.ports.iter().find(|one| one.name == port.name).cloned();
                let frames = self.rate_of(|snapshot| Some(find(snapshot)?.frames));
                let bytes = self.rate_of(|snapshot| find(snapshot)?.wire_bytes);
                let values = self.history.iter().find(|(name, _)| *name == port.name);
                let length = width.saturating_sub(64).clamp(SPARK.1, SPARK.0);
                vec![
                    port.name.clone(),
                    frames.map_or("-".to_owned(), count),
                    frames.zip(bytes).map_or("-".to_owned(), |(frames, bytes)| l1(frames, bytes)),
                    grouped(port.frames),
                    grouped(port.lost),
                    values.map_or(String::new(), |(_, values)| spark(values.iter(), length)),
                ]
            })
            .collect();
        headed(table(&COLUMNS, &rows, width))
    }

    /// Returns causes of drops with their rates: lost first, then by rate.
    fn drops<'a>(&self, now: &'a Snapshot) -> Vec<(&'a DropCount, Option<f64>)> {
        let rate = |dropped: &'a DropCount| {
            let key = |one: &DropCount| (one.stage.clone(), one.cause.clone(), one.subject.clone());
            let own = key(dropped);
            // A new cause started at 0.
            let frames =
                |snapshot: &Snapshot| snapshot.drops.iter().find(|one| key(one) == own).map_or(0, |one| one.frames);
            (dropped, self.rate_of(|snapshot| Some(frames(snapshot))))
        };
        let mut drops: Vec<_> = now.drops.iter().map(rate).collect();
        drops.sort_by(|(one, rate), (other, more)| {
            let most = |rate: &Option<f64>| rate.unwrap_or(0.0);
            other.is_lost.cmp(&one.is_lost).then(most(more).total_cmp(&most(rate))).then(other.frames.cmp(&one.frames))
        });
        drops
    }

    fn dropped(&self, drops: &[(&DropCount, Option<f64>)], width: usize) -> Vec<(Kind, String)> {
        const COLUMNS: [Column; 5] =
            [text("dropped", 0), text("where", 1), text("", 2), number("now/s", 0), number("packets", 0)];
        let rows: Vec<Vec<String>> = drops
            .iter()
            .map(|(dropped, rate)| {
                vec![
                    format!("{} {}", dropped.stage, dropped.cause),
                    dropped.subject.clone(),
                    if dropped.is_lost { "lost" } else { "refused" }.to_owned(),
                    rate.map_or("-".to_owned(), count),
                    grouped(dropped.frames),
                ]
            })
            .collect();
        let mut lines = headed(table(&COLUMNS, &rows, width));
        for (line, (dropped, rate)) in lines.iter_mut().skip(1).zip(drops) {
            if dropped.is_lost && rate.is_some_and(|rate| rate > 0.0) {
                line.0 = Kind::Alarm;
            }
        }
        lines
    }

    fn readers(&self, now: &Snapshot, width: usize) -> Vec<(Kind, String)> {
        const COLUMNS: [Column; 5] =
            [text("reader", 0), number("packets/s", 0), number("lag", 0), number("skipped", 1), number("wait ms", 2)];
        let rows: Vec<Vec<String>> = now
            .readers
            .iter()
            .map(|reader| {
                let frames = |snapshot: &Snapshot| {
                    snapshot.readers.iter().find(|one| one.name == reader.name).map(|one| one.frames)
                };
                vec![
                    reader.name.clone(),
                    self.rate_of(frames).map_or("-".to_owned(), count),
                    grouped(reader.lag),
                    grouped(reader.skipped),
                    grouped(reader.waited_us / 1000),
                ]
            })
            .collect();
        headed(table(&COLUMNS, &rows, width))
    }

    fn flows(&self, now: &Snapshot, width: usize, room: usize) -> Vec<Line> {
        if room == 0 {
            return Vec::new();
        }
        let Some(flows) = &now.flows else { return vec![Line::new(Kind::Dim, now.without_flows.clone())] };
        let view = VIEWS.iter().find(|(_, _, by)| *by == self.ask.by.as_deref()).map(|(_, name, _)| *name);
        let mut head = format!(
            "{} by {}",
            view.or(self.ask.by.as_deref()).unwrap_or("flows"),
            sort_word(self.ask.sort, self.ask.by.is_some())
        );
        let new = self.rate_of(|snapshot| Some(snapshot.flows.as_ref()?.started));
        head += &format!("  {} active  {} open", grouped(flows.active), grouped(flows.open));
        head += &format!(
            "  {} new/s  {} retrans/s",
            new.map_or("-".to_owned(), count),
            per(flows.retransmissions, flows.seconds)
        );
        if flows.unreported > 0 {
            head += &format!("  {} not shown", grouped(flows.unreported));
        }
        if !self.ask.filter.is_empty() {
            head += &format!("  filter: {}", self.ask.filter);
        }
        let mut lines = vec![Line::new(Kind::Dim, head)];
        if flows.seconds == 0.0 {
            lines.push(Line::new(Kind::Plain, "waiting for rates ..."));
            return lines;
        }
        let shown = &flows.rows[self.offset.min(flows.rows.len())..];
        let shown = &shown[..shown.len().min(room.saturating_sub(2))];
        let rows =
            if self.ask.by.is_none() { self.of_flows(flows, shown, width) } else { of_groups(flows, shown, width) };
        lines.extend(headed(rows).into_iter().map(|(kind, text)| Line::new(kind, text)));
        lines
    }

    fn of_flows(&self, flows: &Flows, rows: &[Row], width: usize) -> Vec<String> {
        const COLUMNS: [Column; 8] = [
            text("originator", 0),
            text("responder", 0),
            text("proto", 3),
            number("bits/s", 0),
            number("packets/s", 1),
            number("retrans", 2),
            number("bytes", 4),
            number("age", 5),
        ];
        let row = |row: &Row| {
            let key = |place: usize| row.keys.get(place).cloned().unwrap_or_default();
            let flow = row.flow.clone().unwrap_or_default();
            let responder =
                if self.names && !row.name.is_empty() { format!("{} {}", row.name, port_of(&key(1))) } else { key(1) };
            vec![
                key(0),
                responder.trim_end().to_owned(),
                key(2),
                bits(row.bytes, flows.seconds),
                per(row.packets, flows.seconds),
                flow.retransmissions.to_string(),
                size(flow.total_bytes),
                span(flow.seconds),
            ]
        };
        table(&COLUMNS, &rows.iter().map(row).collect::<Vec<_>>(), width)
    }
}

fn of_groups(flows: &Flows, rows: &[Row], width: usize) -> Vec<String> {
    // The number of key columns varies, but a table has fixed columns: keys share one.
    let columns = [
        text("group", 0),
        number("bits/s", 0),
        number("share", 2),
        number("packets/s", 1),
        number("flows", 3),
        text("", 4),
    ];
    let most = rows.iter().map(|row| row.bytes).max().unwrap_or(0).max(1) as f64;
    let row = |row: &Row| {
        let share = if flows.bytes > 0 { row.bytes as f64 * 100.0 / flows.bytes as f64 } else { 0.0 };
        let bar = (row.bytes as f64 / most * 16.0).round() as usize;
        vec![
            row.keys.join("  "),
            bits(row.bytes, flows.seconds),
            format!("{share:.1} %"),
            per(row.packets, flows.seconds),
            grouped(row.flows),
            "\u{2588}".repeat(bar.min(16)),
        ]
    };
    table(&columns, &rows.iter().map(row).collect::<Vec<_>>(), width)
}

/// Returns the port of an address with a port.
fn port_of(end: &str) -> &str {
    match end.rsplit_once(':') {
        Some((address, port)) if !address.contains(':') || address.ends_with(']') => port,
        _ => "",
    }
}

fn sort_word(sort: Sort, is_of_groups: bool) -> &'static str {
    match sort {
        Sort::Packets => "packets/s",
        Sort::Flows if is_of_groups => "flows",
        Sort::Flows => "age, newest first",
        Sort::Retransmissions if !is_of_groups => "retransmissions",
        Sort::Total if !is_of_groups => "total bytes",
        Sort::Bits | Sort::Retransmissions | Sort::Total => "bits/s",
    }
}

/// Returns the first rows, or the text `nothing` without rows.
fn some(rows: Vec<(Kind, String)>, room: usize, nothing: &str) -> Vec<Line> {
    if room > 0 && rows.len() < 2 {
        return vec![Line::new(Kind::Dim, nothing)];
    }
    rows.into_iter().take(room).map(|(kind, text)| Line::new(kind, text)).collect()
}

fn headed(lines: Vec<String>) -> Vec<(Kind, String)> {
    lines
        .into_iter()
        .enumerate()
        .map(|(place, line)| (if place == 0 { Kind::Head } else { Kind::Plain }, line))
        .collect()
}

fn help() -> Vec<Line> {
    const TEXT: &str = "\
 f flows   h hosts   p ports (of responders)   o protocols
 b         group flows by fields: orig_address/24,protocol
 s         next sort order: bits, packets, flows, retransmissions, total
 /         filter flows: host 10.0.0.1 and port 443, bytes > 1M, flags S, ...
           (counters are those of the interval); empty for all
 n         show host names (SNI, DNS, HTTP) or addresses
 z         zoom: all, flows, ports, drops, readers
 arrows    scroll the flows; also page up and down, home, end
 space     pause, resume
 q         quit

 packets/s and L1 (with preamble, FCS and gap) are those of the last interval
 lag       packets in blocks that a reader of a shared ring holds
 new/s     new flows; retrans: TCP retransmissions

 Press any key to return.";
    TEXT.lines().map(|line| Line::new(Kind::Plain, line)).collect()
}
