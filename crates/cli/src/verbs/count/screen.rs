//! Progress of a count: a table redrawn on a terminal, else lines.

use super::rows::{CountReadings, CountedPorts, RowIncrease, RowSubject, heads};
use super::text::losses;
use crate::view::rates::grouped;
use crate::view::table::table;
use crate::view::terminal::{draw, height, is_watched, print_stderr};
use linerate_engine::CountWatch;
use linerate_engine::count::{CountSnapshot, TrafficCounts};
use linerate_generate::rate::FCS;

/// Lines of a terminal of unknown height.
const USUAL_HEIGHT: usize = 24;

/// Shows progress on standard error.
pub(super) fn ticker(subject: CountedPorts, watch: CountWatch) -> impl FnMut() + Send {
    let mut looks = CountReadings::new(watch);
    move || {
        looks.look(|before, now| {
            if is_watched() {
                draw(&fitting(&subject, before, now));
            } else {
                print_stderr(line(&subject, before, now) + "\n");
            }
        });
    }
}

/// Returns the table by queue, or by port if the terminal is not high enough.
fn fitting(subject: &CountedPorts, before: &CountSnapshot, now: &CountSnapshot) -> String {
    let mut rows = subject.rows(now);
    if rows.len() + 2 > height().unwrap_or(USUAL_HEIGHT) {
        rows = subject.ports(now).collect();
        rows.push((RowSubject::All, &now.all));
    }
    picture(subject, rows, before, now)
}

fn picture(
    subject: &CountedPorts,
    rows: Vec<(RowSubject, &TrafficCounts)>,
    before: &CountSnapshot,
    now: &CountSnapshot,
) -> String {
    let mut earlier: Vec<(RowSubject, &TrafficCounts)> = subject.queues(before).chain(subject.ports(before)).collect();
    earlier.push((RowSubject::All, &before.all));
    let keys = heads(now);
    let mut lines = table(&[keys, &["packets", "lost", "rate", "L1", "L2", "mean size"]].concat(), keys.len());
    for (place, counted) in rows {
        let Some((_, then)) = earlier.iter().find(|(at, _)| *at == place) else { continue };
        let gain = subject.gain(place, then, counted, (before.elapsed, now.elapsed));
        let cells = [
            grouped(counted.traffic.frames),
            losses(counted.lost.iter().map(|(cause, lost)| (cause.name(), *lost))),
            gain.rates.frames(),
            gain.rates.l1(),
            gain.rates.l2(),
            mean_size(&gain),
        ];
        lines.add_row(subject.key_columns(place, now).chain(cells));
    }
    format!("{lines}\n")
}

fn mean_size(gain: &RowIncrease) -> String {
    gain.bytes.checked_div(gain.frames).map_or_else(String::new, |mean| (mean + FCS).to_string())
}

fn line(subject: &CountedPorts, before: &CountSnapshot, now: &CountSnapshot) -> String {
    let gain = subject.gain(RowSubject::All, &before.all, &now.all, (before.elapsed, now.elapsed));
    let lost = match losses(now.all.lost.iter().map(|(cause, lost)| (cause.name(), *lost))) {
        nothing if nothing == "0" => "0 lost".to_owned(),
        causes => format!("lost {causes}"),
    };
    format!(
        "{:>4} s  {:>13} counted  {:>18}  {:>11} L1  {lost}",
        now.elapsed.as_secs(),
        grouped(now.all.traffic.frames),
        gain.rates.frames(),
        gain.rates.l1(),
    )
}
