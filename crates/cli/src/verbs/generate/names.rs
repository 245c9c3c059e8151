//! Names of the streams of a run, and tables by stream.

use crate::view::rates::{counted, grouped};
use crate::view::streams;
use crate::view::table::table;
use crate::view::terminal::shown;
use linerate_engine::streams::Control;
use linerate_generate::check::{CheckSummary, FrameCounts, StreamRow};
use linerate_generate::stream::{Mark, Stream, StreamSet};
use std::sync::Arc;

/// Maximum number of streams shown; of more, those with the greatest loss.
const SHOWN: usize = 16;

/// Names of streams, in the order of their set.
#[derive(Clone, Debug)]
pub(super) struct Names(Arc<[Name]>, Option<Control>);

#[derive(Debug)]
struct Name {
    /// Number of the stream.
    id: u32,
    text: String,
    /// True if its packets can be recognised, so that the check counts them.
    is_marked: bool,
}

impl Names {
    /// Takes the names of a set.
    pub(super) fn of(set: &StreamSet, control: Option<Control>) -> Self {
        let of =
            |stream: &Stream| Name { id: stream.id, text: stream.name.clone(), is_marked: stream.mark != Mark::None };
        Names(set.streams.iter().map(of).collect(), control)
    }

    /// Returns the name of the stream at an index of the set.
    pub(super) fn get(&self, place: usize) -> &str {
        self.0.get(place).map_or("", |name| &name.text)
    }

    /// Returns the numbers of the stream at an index of the set: several if it was restarted.
    pub(super) fn numbers(&self, place: usize) -> Vec<u32> {
        match &self.1 {
            Some(control) => control.numbers_of(place),
            None => self.0.get(place).map(|name| name.id).into_iter().collect(),
        }
    }

    /// Returns the name of a stream by its number.
    fn of_stream(&self, id: u32) -> String {
        // A restarted stream has another number.
        let place = self.1.as_ref().and_then(|control| control.place_of(id));
        let known = place.and_then(|place| self.0.get(place)).or_else(|| self.0.iter().find(|name| name.id == id));
        known.map_or_else(|| id.to_string(), |name| name.text.clone())
    }

    /// Converts frames by index in the set to frames by stream number.
    pub(super) fn by_stream(&self, frames: &[u64]) -> Vec<u64> {
        if let Some(control) = &self.1 {
            return control.by_number(frames);
        }
        let most = self.0.iter().map(|name| name.id as usize + 1).max().unwrap_or_default();
        let mut by_stream = vec![0; most];
        self.0.iter().zip(frames).for_each(|(name, frames)| by_stream[name.id as usize] = *frames);
        by_stream
    }

    /// Converts frames by index in the set to frames by stream number, without those that the check cannot recognise.
    pub(super) fn checked_by_stream(&self, frames: &[u64]) -> Vec<u64> {
        let marked = |(name, frames): (&Name, &u64)| if name.is_marked { *frames } else { 0 };
        self.by_stream(&self.0.iter().zip(frames).map(marked).collect::<Vec<_>>())
    }

    /// Returns a table of the frames sent per stream, most first.
    pub(super) fn sent(&self, frames: &[u64]) -> String {
        let mut rows = table(&["stream", "sent"], 1);
        let mut order: Vec<(usize, u64)> = frames.iter().copied().enumerate().collect();
        order.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
        for (place, frames) in order.iter().take(SHOWN) {
            rows.add_row([self.get(*place).to_owned(), grouped(*frames)]);
        }
        let more = order.len().saturating_sub(SHOWN);
        format!("{rows}\n{}", if more > 0 { format!("  and {} more\n", grouped(more as u64)) } else { String::new() })
    }

    /// Returns the result of the check as text.
    pub(super) fn checked(&self, summary: &CheckSummary, rows: Vec<StreamRow>) -> String {
        let FrameCounts { sent, received, lost, duplicated, .. } = summary.counts;
        let sent = sent.unwrap_or_default();
        // Each packet counts once, however often it was received.
        let once = sent.saturating_sub(lost);
        let more = if duplicated > 0 { format!(", {} duplicated", grouped(duplicated)) } else { String::new() };
        let mut text =
            format!("{} of {} received, {} lost{more}\n", grouped(once), counted(sent, "packet"), grouped(lost));
        if received == 0 && sent > 0 {
            text += "  nothing received: check that the link between the --to and --check ports is up\n";
        }
        text += &streams::rows(summary, &streams::first(rows, SHOWN), |id| self.of_stream(id));
        let unmarked: Vec<&str> =
            self.0.iter().filter(|name| !name.is_marked).map(|name| name.text.as_str()).take(SHOWN).collect();
        match unmarked.is_empty() {
            true => text,
            false => text + &format!("  not checked (check = \"no\"): {}\n", shown(&unmarked.join(", "))),
        }
    }

    /// Returns the number of streams.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
