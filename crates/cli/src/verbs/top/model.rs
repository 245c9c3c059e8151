//! State of the screen, and reactions to keys.

use super::source::{QueryOutcome, SnapshotPoller};
use crate::verbs::snapshot::{FlowQuery, Snapshot, Sort, check};
use crate::view::screen::keys::Key;
use std::collections::VecDeque;
use std::time::Instant;

/// Maximum number of values of a spark line.
const HISTORY: usize = 240;
/// Maximum number of ports, causes of drops and readers.
const MOST: usize = 1000;
/// Number of rows to query.
pub(super) const ROWS: usize = 200;

/// Views of flows: key, name and grouping.
pub(super) const VIEWS: [(char, &str, Option<&str>); 4] = [
    ('f', "flows", None),
    ('h', "hosts", Some("address")),
    ('p', "ports", Some("protocol,resp_port")),
    ('o', "protocols", Some("protocol")),
];

/// Parts that fill the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zoom {
    All,
    Flows,
    Ports,
    Drops,
    Readers,
}

/// Input being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputField {
    Filter,
    By,
}

/// State of the screen.
pub(super) struct Model {
    /// Source as text.
    pub from: String,
    pub ask: FlowQuery,
    pub zoom: Zoom,
    pub names: bool,
    pub help: bool,
    pub paused: bool,
    pub typing: Option<(InputField, String)>,
    /// First visible row of flows.
    pub offset: usize,
    /// Message until the next key.
    pub message: String,
    pub now: Option<Snapshot>,
    pub before: Option<Snapshot>,
    /// Start and reason of an outage of the source.
    pub unreachable: Option<(Instant, String)>,
    /// Rates of each port.
    pub history: Vec<(String, VecDeque<f64>)>,
    looking: Option<SnapshotPoller>,
}

impl Model {
    pub(super) fn new(from: String, ask: FlowQuery, looking: Option<SnapshotPoller>) -> Self {
        Model {
            from,
            ask,
            zoom: Zoom::All,
            names: true,
            help: false,
            paused: false,
            typing: None,
            offset: 0,
            message: String::new(),
            now: None,
            before: None,
            unreachable: None,
            history: Vec::new(),
            looking,
        }
    }

    /// Takes new results; returns whether there were any.
    pub(super) fn look(&mut self) -> bool {
        let seen: Vec<QueryOutcome> = self.looking.iter().flat_map(SnapshotPoller::seen).collect();
        let is_new = !seen.is_empty();
        seen.into_iter().for_each(|seen| self.see(seen));
        is_new
    }

    pub(super) fn see(&mut self, seen: QueryOutcome) {
        match seen {
            QueryOutcome::Snapshot(snapshot) => {
                self.unreachable = None;
                if !self.paused {
                    self.take(*snapshot);
                }
            }
            QueryOutcome::Invalid(what) => self.message = what,
            QueryOutcome::Unreachable(why) => {
                let since = self.unreachable.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                self.unreachable = Some((since, why));
            }
        }
    }

    fn take(&mut self, mut snapshot: Snapshot) {
        // The answer is untrusted: limit its size.
        snapshot.ports.truncate(MOST);
        snapshot.drops.truncate(MOST);
        snapshot.readers.truncate(MOST);
        let is_same = |before: &Snapshot| before.pid == snapshot.pid && before.seconds <= snapshot.seconds;
        self.before = self.now.take().filter(is_same);
        if self.before.is_none() {
            self.history.clear();
        }
        if let Some(before) = &self.before {
            for port in &snapshot.ports {
                let Some(then) = before.ports.iter().find(|then| then.name == port.name) else { continue };
                let rate = rate(port.frames, then.frames, snapshot.seconds - before.seconds);
                let place = self.history.iter().position(|(name, _)| *name == port.name).unwrap_or_else(|| {
                    self.history.push((port.name.clone(), VecDeque::new()));
                    self.history.len() - 1
                });
                let values = &mut self.history[place].1;
                values.push_back(rate);
                if values.len() > HISTORY {
                    values.pop_front();
                }
            }
        }
        self.now = Some(snapshot);
    }

    /// Returns the rate per second of the counter that `get` reads, since the previous snapshot; `None` if unknown.
    pub(super) fn rate_of(&self, get: impl Fn(&Snapshot) -> Option<u64>) -> Option<f64> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        Some(rate(get(now)?, get(before)?, now.seconds - before.seconds))
    }

    /// Handles a key; returns false to quit.
    pub(super) fn key(&mut self, key: Key) -> bool {
        self.message.clear();
        if self.typing.is_some() {
            self.typed(key);
            return true;
        }
        let is_help = std::mem::take(&mut self.help);
        match key {
            Key::Char('q') => return false,
            // Any key closes the help.
            _ if is_help => {}
            Key::Char('?') => self.help = true,
            Key::Char(' ') => {
                self.paused = !self.paused;
                self.update_query();
            }
            Key::Char('z') => self.zoom = self.zoomed(),
            Key::Char('n') => self.names = !self.names,
            Key::Char('s') => {
                let place = Sort::ALL.iter().position(|sort| *sort == self.ask.sort).unwrap_or(0);
                self.ask.sort = Sort::ALL[(place + 1) % Sort::ALL.len()];
                self.update_query();
            }
            Key::Char('/') => self.typing = Some((InputField::Filter, self.ask.filter.clone())),
            Key::Char('b') => self.typing = Some((InputField::By, self.ask.by.clone().unwrap_or_default())),
            Key::Char(key) => {
                if let Some((_, _, by)) = VIEWS.iter().find(|(own, _, _)| *own == key) {
                    self.ask.by = by.map(str::to_owned);
                    self.offset = 0;
                    self.update_query();
                }
            }
            Key::Up => self.offset = self.offset.saturating_sub(1),
            Key::Down => self.offset += 1,
            Key::PageUp => self.offset = self.offset.saturating_sub(10),
            Key::PageDown => self.offset += 10,
            Key::Home => self.offset = 0,
            Key::End => self.offset = ROWS,
            Key::Escape | Key::Enter | Key::Back => {}
        }
        self.offset = self.offset.min(self.rows().saturating_sub(1));
        true
    }

    /// Returns the number of rows of flows or groups.
    pub(super) fn rows(&self) -> usize {
        self.now.as_ref().and_then(|now| now.flows.as_ref()).map_or(0, |flows| flows.rows.len())
    }

    /// Returns the next part to fill the screen.
    fn zoomed(&self) -> Zoom {
        let order = [Zoom::All, Zoom::Flows, Zoom::Ports, Zoom::Drops, Zoom::Readers];
        let place = order.iter().position(|zoom| *zoom == self.zoom).unwrap_or(0);
        order[(place + 1) % order.len()]
    }

    fn typed(&mut self, key: Key) {
        let Some((what, mut text)) = self.typing.take() else { return };
        match key {
            Key::Escape => return,
            Key::Char(character) => text.push(character),
            Key::Back => drop(text.pop()),
            Key::Enter => {
                let mut ask = self.ask.clone();
                match what {
                    InputField::Filter => ask.filter = text.trim().to_owned(),
                    InputField::By => ask.by = Some(text.trim().to_owned()).filter(|by| !by.is_empty()),
                }
                match check(&ask) {
                    Ok(()) => {
                        (self.ask, self.offset) = (ask, 0);
                        return self.update_query();
                    }
                    Err(error) => self.message = error,
                }
            }
            _ => {}
        }
        self.typing = Some((what, text));
    }

    /// Updates the query of the source.
    fn update_query(&self) {
        if let Some(looking) = &self.looking {
            looking.ask((!self.paused).then(|| self.ask.clone()));
        }
    }
}

fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}
