//! Progress of a count: a table redrawn on a terminal, else lines.

use super::rows::{Gain, Looks, Place, Subject, heads};
use super::text::losses;
use crate::view::rates::grouped;
use crate::view::table::table;
use crate::view::terminal::{draw, height, is_watched, tell};
use linerate_engine::Watch;
use linerate_engine::count::{Counted, Counts};
use linerate_generate::rate::FCS;

/// Lines of a terminal of unknown height.
const USUAL_HEIGHT: usize = 24;

/// Shows progress on standard error.
pub(super) fn ticker(subject: Subject, watch: Watch) -> impl FnMut() + Send {
    let mut looks = Looks::new(watch);
    move || {
        looks.look(|before, now| {
            if is_watched() {
                draw(&fitting(&subject, before, now));
            } else {
                tell(line(&subject, before, now) + "\n");
            }
        });
    }
}

/// Returns the table by queue, or by port if the terminal is not high enough.
fn fitting(subject: &Subject, before: &Counts, now: &Counts) -> String {
    let mut rows = subject.rows(now);
    if rows.len() + 2 > height().unwrap_or(USUAL_HEIGHT) {
        rows = subject.ports(now).collect();
        rows.push((Place::All, &now.all));
    }
    picture(subject, rows, before, now)
}

fn picture(subject: &Subject, rows: Vec<(Place, &Counted)>, before: &Counts, now: &Counts) -> String {
    let mut earlier: Vec<(Place, &Counted)> = subject.queues(before).chain(subject.ports(before)).collect();
    earlier.push((Place::All, &before.all));
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
        lines.add_row(subject.known_by(place, now).chain(cells));
    }
    format!("{lines}\n")
}

fn mean_size(gain: &Gain) -> String {
    gain.bytes.checked_div(gain.frames).map_or_else(String::new, |mean| (mean + FCS).to_string())
}

fn line(subject: &Subject, before: &Counts, now: &Counts) -> String {
    let gain = subject.gain(Place::All, &before.all, &now.all, (before.elapsed, now.elapsed));
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
