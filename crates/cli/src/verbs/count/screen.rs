//! A count while it runs: on a terminal a table that is drawn again, else a line.

use super::rows::{Gain, Looks, Place, Subject};
use super::text::losses;
use crate::view::rates::{frames_per_second, grouped};
use crate::view::table::table;
use crate::view::terminal::{draw, height, is_watched, tell};
use linerate_engine::Watch;
use linerate_engine::count::{Counted, Counts};
use linerate_generate::rate::FCS;

/// Lines of a terminal that does not say.
const USUAL_HEIGHT: usize = 24;

/// Shows what has happened since the last time, on standard error.
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

/// The table by queue, or by port where the terminal is not high enough for that.
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
    let mut lines = table(&["port", "queue", "rate", "Gb/s L2", "Gb/s L1", "mean size", "frames", "lost"], 2);
    for (place, counted) in rows {
        let Some((_, then)) = earlier.iter().find(|(at, _)| *at == place) else { continue };
        let gain = subject.gain(place, then, counted, (before.elapsed, now.elapsed));
        let [port, queue] = subject.label(place);
        lines.add_row([
            port,
            queue,
            frames_per_second(gain.rates.mpps),
            format!("{:.3}", gain.rates.gbps_l2),
            format!("{:.3}", gain.rates.gbps_l1),
            mean_size(&gain),
            grouped(counted.traffic.frames),
            losses(counted.lost.iter().map(|(cause, lost)| (cause.name(), *lost))),
        ]);
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
        "{:>4} s  {:>13} counted  {:>18}  {:>7.3} Gb/s L2  {:>7.3} Gb/s L1  {lost}",
        now.elapsed.as_secs(),
        grouped(now.all.traffic.frames),
        frames_per_second(gain.rates.mpps),
        gain.rates.gbps_l2,
        gain.rates.gbps_l1,
    )
}
