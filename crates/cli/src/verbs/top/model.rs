//! What is shown, and what keys do to it.

use super::source::{Looking, Seen};
use crate::verbs::snapshot::{Ask, Snapshot, Sort, check};
use crate::view::screen::keys::Key;
use std::collections::VecDeque;
use std::time::Instant;

/// Values of a spark line at the most.
const HISTORY: usize = 240;
/// Ports, causes of drops and readers that are looked at.
const MOST: usize = 1000;
/// Rows that are asked for.
pub(super) const ROWS: usize = 200;

/// Views of flows that have a key: what they are put together by.
pub(super) const VIEWS: [(char, &str, Option<&str>); 4] = [
    ('f', "flows", None),
    ('h', "hosts", Some("address")),
    ('p', "ports", Some("protocol,resp_port")),
    ('o', "protocols", Some("protocol")),
];

/// What has the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zoom {
    /// A part of each.
    All,
    Flows,
    Ports,
    Drops,
    Readers,
}

/// What is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typing {
    Filter,
    By,
}

/// All of it.
pub(super) struct Model {
    /// Where it comes from, for people.
    pub from: String,
    pub ask: Ask,
    pub zoom: Zoom,
    pub names: bool,
    pub help: bool,
    pub paused: bool,
    pub typing: Option<(Typing, String)>,
    /// The first row of flows that is shown.
    pub offset: usize,
    /// What to say, until the next key.
    pub said: String,
    pub now: Option<Snapshot>,
    pub before: Option<Snapshot>,
    /// Since when nobody answers, and why.
    pub away: Option<(Instant, String)>,
    /// Rates of each port.
    pub history: Vec<(String, VecDeque<f64>)>,
    looking: Option<Looking>,
}

impl Model {
    pub(super) fn new(from: String, ask: Ask, looking: Option<Looking>) -> Self {
        Model {
            from,
            ask,
            zoom: Zoom::All,
            names: true,
            help: false,
            paused: false,
            typing: None,
            offset: 0,
            said: String::new(),
            now: None,
            before: None,
            away: None,
            history: Vec::new(),
            looking,
        }
    }

    /// Takes what was seen since the last time; whether there was something.
    pub(super) fn look(&mut self) -> bool {
        let seen: Vec<Seen> = self.looking.iter().flat_map(Looking::seen).collect();
        let is_new = !seen.is_empty();
        seen.into_iter().for_each(|seen| self.see(seen));
        is_new
    }

    pub(super) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Snapshot(snapshot) => {
                self.away = None;
                if !self.paused {
                    self.take(*snapshot);
                }
            }
            Seen::Wrong(what) => self.said = what,
            Seen::Away(why) => {
                let since = self.away.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                self.away = Some((since, why));
            }
        }
    }

    fn take(&mut self, mut snapshot: Snapshot) {
        // Whoever answers there is not believed to have an end.
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

    /// How much of something there was a second since the look before; `get` finds it. `None` where that is not known.
    pub(super) fn rate_of(&self, get: impl Fn(&Snapshot) -> Option<u64>) -> Option<f64> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        Some(rate(get(now)?, get(before)?, now.seconds - before.seconds))
    }

    /// Takes a key; false if it is the last one.
    pub(super) fn key(&mut self, key: Key) -> bool {
        self.said.clear();
        if self.typing.is_some() {
            self.typed(key);
            return true;
        }
        let is_help = std::mem::take(&mut self.help);
        match key {
            Key::Char('q') => return false,
            // Any key leaves the help.
            _ if is_help => {}
            Key::Char('?') => self.help = true,
            Key::Char(' ') => {
                self.paused = !self.paused;
                self.tell();
            }
            Key::Char('z') => self.zoom = self.zoomed(),
            Key::Char('n') => self.names = !self.names,
            Key::Char('s') => {
                let place = Sort::ALL.iter().position(|sort| *sort == self.ask.sort).unwrap_or(0);
                self.ask.sort = Sort::ALL[(place + 1) % Sort::ALL.len()];
                self.tell();
            }
            Key::Char('/') => self.typing = Some((Typing::Filter, self.ask.filter.clone())),
            Key::Char('b') => self.typing = Some((Typing::By, self.ask.by.clone().unwrap_or_default())),
            Key::Char(key) => {
                if let Some((_, _, by)) = VIEWS.iter().find(|(own, _, _)| *own == key) {
                    self.ask.by = by.map(str::to_owned);
                    self.offset = 0;
                    self.tell();
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

    /// Rows of flows or groups that there are.
    pub(super) fn rows(&self) -> usize {
        self.now.as_ref().and_then(|now| now.flows.as_ref()).map_or(0, |flows| flows.rows.len())
    }

    /// The next one that there is something to see of.
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
                    Typing::Filter => ask.filter = text.trim().to_owned(),
                    Typing::By => ask.by = Some(text.trim().to_owned()).filter(|by| !by.is_empty()),
                }
                match check(&ask) {
                    Ok(()) => {
                        (self.ask, self.offset) = (ask, 0);
                        return self.tell();
                    }
                    Err(error) => self.said = error,
                }
            }
            _ => {}
        }
        self.typing = Some((what, text));
    }

    /// Says what is asked from now on.
    fn tell(&self) {
        if let Some(looking) = &self.looking {
            looking.ask((!self.paused).then(|| self.ask.clone()));
        }
    }
}

fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}
