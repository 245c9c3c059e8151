//! `generate` at a terminal: a table of streams, and keys that control them, by the same [`Control`] as `linerate ctl`
//! and `serve`. Counters are copied when the table is drawn, so senders do not wait for it.

use super::control::{StreamStatus, read_rate, rows};
use crate::view::rates::grouped;
use crate::view::screen::keys::Key;
use crate::view::screen::numbers::{count, l1, span};
use crate::view::screen::table::{Column, number, table, text};
use crate::view::screen::{Kind, Line, Screen, View};
use linerate_engine::streams::{Control, StreamRun};
use linerate_engine::{CheckWatch, Stop, StreamWatch};
use linerate_generate::{Action, StreamSelection};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Refresh interval.
const EVERY: Duration = Duration::from_millis(500);
/// Refresh interval above this number of streams.
const MANY: (usize, Duration) = (2000, Duration::from_secs(2));
/// Factor of the keys `+` and `-`.
const FASTER: f64 = 1.25;

/// Table on the screen, until it is dropped.
pub(super) struct TableThread {
    over: Stop,
    thread: Option<JoinHandle<()>>,
}

/// Shows the table, if standard output is a terminal.
pub(super) fn show(control: &Control, run: &StreamRun, check: Option<&CheckWatch>, port: &str) -> Option<TableThread> {
    let screen = Screen::open(true)?;
    let over = Stop::new();
    let (ended, stop) = (over.clone(), run.stop.clone());
    let mut streams = Table::new(control.clone(), run, check.cloned(), port.to_owned());
    let view = move || {
        let is_over = || ended.is_requested() || stop.is_requested();
        screen.show(&mut streams, is_over);
        linerate_port::events::silence();
        // Ended by a key, or because the terminal was closed.
        if !ended.is_requested() {
            stop.request();
        }
    };
    // If the thread cannot start, the terminal is restored, and the run continues without the table.
    let thread = std::thread::Builder::new().name("linerate-view".into()).spawn(view).ok()?;
    Some(TableThread { over, thread: Some(thread) })
}

impl Drop for TableThread {
    fn drop(&mut self) {
        self.over.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Table {
    control: Control,
    run: StreamRun,
    watch: StreamWatch,
    check: Option<CheckWatch>,
    port: String,
    news: Receiver<String>,
    started: Instant,
    refreshed: Option<Instant>,
    rows: Vec<StreamStatus>,
    /// Frames per second of each stream in the last interval.
    rates: Vec<f64>,
    /// Total bytes, and bytes per second in the last interval.
    bytes: (u64, f64),
    /// Counters at the time they were cleared: sent, received, lost.
    cleared: Vec<[u64; 3]>,
    chosen: usize,
    /// True if keys apply to all streams.
    is_all: bool,
    typing: Option<String>,
    message: String,
    help: bool,
}

impl Table {
    fn new(control: Control, run: &StreamRun, check: Option<CheckWatch>, port: String) -> Self {
        Table {
            control,
            watch: run.watch.clone(),
            run: run.clone(),
            check,
            port,
            news: linerate_port::events::listen(),
            started: Instant::now(),
            refreshed: None,
            rows: Vec::new(),
            rates: Vec::new(),
            bytes: (0, 0.0),
            cleared: Vec::new(),
            chosen: 0,
            is_all: false,
            typing: None,
            message: String::new(),
            help: false,
        }
    }

    fn take(&mut self, rows: Vec<StreamStatus>, bytes: u64, seconds: f64) {
        let before = |place: usize| self.rows.get(place).map_or(0, |row| row.sent);
        let per = |now: u64, before: u64| if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 };
        self.rates = rows.iter().enumerate().map(|(place, row)| per(row.sent, before(place))).collect();
        self.bytes = (bytes, per(bytes, self.bytes.0));
        self.cleared.resize(rows.len(), [0; 3]);
        self.rows = rows;
    }

    /// Returns the streams that keys apply to.
    fn which(&self) -> StreamSelection {
        if self.is_all { StreamSelection::All } else { StreamSelection::Some(Arc::from([self.chosen as u32])) }
    }

    fn apply(&mut self, action: Action) {
        match self.control.command_streams(&self.which(), action) {
            // Refresh at once to show the effect.
            Ok(_) => self.refreshed = None,
            Err(error) => self.message = error.to_string(),
        }
    }

    /// Pauses or resumes.
    fn pause(&mut self) {
        let own = |place: &usize| self.is_all || *place == self.chosen;
        let is_paused = self.rows.iter().enumerate().any(|(place, row)| own(&place) && row.state == "paused");
        self.apply(if is_paused { Action::Resume } else { Action::Pause });
    }

    fn clear(&mut self) {
        for (place, (row, cleared)) in self.rows.iter().zip(&mut self.cleared).enumerate() {
            if self.is_all || place == self.chosen {
                *cleared = [row.sent, row.received.unwrap_or(0), row.lost.unwrap_or(0)];
            }
        }
    }

    fn typed(&mut self, mut text: String, key: Key) {
        match key {
            Key::Escape => return,
            Key::Char(character) => text.push(character),
            Key::Back => drop(text.pop()),
            Key::Enter => match read_rate(text.trim()) {
                Ok(action) => return self.apply(action),
                Err(error) => self.message = error.to_string(),
            },
            _ => {}
        }
        self.typing = Some(text);
    }

    fn title(&self) -> Line {
        Line::new(
            Kind::Bar,
            format!(" linerate generate  to {}  {}", self.port, span(self.started.elapsed().as_secs_f64())),
        )
    }

    fn last(&self) -> Line {
        match &self.typing {
            Some(text) if self.message.is_empty() => {
                Line::new(Kind::Bar, format!(" rate: {text}_   (10kpps, 1gbps, x2)"))
            }
            Some(text) => Line::new(Kind::Bar, format!(" rate: {text}_   {}", self.message)),
            None if !self.message.is_empty() => Line::new(Kind::Alarm, format!(" {}", self.message)),
            None => {
                Line::new(Kind::Bar, " q quit  ? help  + - rate  r type  space pause  x stop  s start  c clear  a all")
            }
        }
    }

    fn totals(&self) -> Line {
        let frames: f64 = self.rates.iter().sum();
        let sum = |get: &dyn Fn(&StreamStatus) -> u64| self.rows.iter().map(get).sum::<u64>();
        let sent = sum(&|row| row.sent) - self.cleared.iter().map(|cleared| cleared[0]).sum::<u64>();
        let mut line = format!("sent {}  {} packets/s  {} L1", grouped(sent), count(frames), l1(frames, self.bytes.1));
        if self.check.is_some() {
            let kept = |place: usize| self.cleared.iter().map(|cleared| cleared[place]).sum::<u64>();
            let received = sum(&|row| row.received.unwrap_or(0)).saturating_sub(kept(1));
            let lost = sum(&|row| row.lost.unwrap_or(0)).saturating_sub(kept(2));
            line += &format!("  received {}  lost {}", grouped(received), grouped(lost));
        }
        Line::new(Kind::Plain, line)
    }

    fn table(&self, width: usize) -> Vec<String> {
        const COLUMNS: [Column; 7] = [
            text("stream", 0),
            text("state", 2),
            text("rate", 1),
            number("packets/s", 0),
            number("sent", 0),
            number("received", 0),
            number("lost", 0),
        ];
        let columns = if self.check.is_some() { &COLUMNS[..] } else { &COLUMNS[..5] };
        let row = |(place, row): (usize, &StreamStatus)| {
            let cleared = self.cleared.get(place).copied().unwrap_or_default();
            let since = |now: Option<u64>, place: usize| {
                now.map_or("-".to_owned(), |now| grouped(now.saturating_sub(cleared[place])))
            };
            vec![
                row.name.clone(),
                row.state.clone(),
                row.rate.clone(),
                self.rates.get(place).map_or("-".to_owned(), |rate| count(*rate)),
                since(Some(row.sent), 0),
                since(row.received, 1),
                since(row.lost, 2),
            ]
        };
        table(columns, &self.rows.iter().enumerate().map(row).collect::<Vec<_>>(), width)
    }
}

impl View for Table {
    fn key(&mut self, key: Key) -> bool {
        self.message.clear();
        if let Some(text) = self.typing.take() {
            self.typed(text, key);
            return true;
        }
        let is_help = std::mem::take(&mut self.help);
        match key {
            Key::Char('q') => return false,
            _ if is_help => {}
            Key::Char('?') => self.help = true,
            Key::Char('+' | '=') => self.apply(Action::Scale(FASTER)),
            Key::Char('-') => self.apply(Action::Scale(1.0 / FASTER)),
            Key::Char('r') => self.typing = Some(String::new()),
            Key::Char(' ' | 'p') => self.pause(),
            Key::Char('x') => self.apply(Action::Stop),
            Key::Char('s') => self.apply(Action::Start(Arc::from([]))),
            Key::Char('c') => self.clear(),
            Key::Char('a') => self.is_all = !self.is_all,
            Key::Up => self.chosen = self.chosen.saturating_sub(1),
            Key::Down => self.chosen += 1,
            Key::PageUp => self.chosen = self.chosen.saturating_sub(10),
            Key::PageDown => self.chosen += 10,
            Key::Home => self.chosen = 0,
            Key::End => self.chosen = usize::MAX,
            _ => {}
        }
        self.chosen = self.chosen.min(self.rows.len().saturating_sub(1));
        true
    }

    fn look(&mut self) -> bool {
        let news = self.news.try_iter().last();
        let is_news = news.is_some();
        self.message = news.unwrap_or(std::mem::take(&mut self.message));
        let every = if self.control.names().len() > MANY.0 { MANY.1 } else { EVERY };
        let since = self.refreshed.map(|refreshed| refreshed.elapsed());
        if since.is_some_and(|since| since < every) {
            return is_news;
        }
        let places: Vec<usize> = (0..self.control.names().len()).collect();
        let rows = rows(&places, &self.control, &self.watch, self.check.as_ref());
        let bytes = self.run.progress.bytes.load(Ordering::Relaxed);
        // After a command the refresh is immediate: the interval is too short for a rate.
        match since {
            Some(since) => self.take(rows, bytes, since.as_secs_f64()),
            None => self.rows = rows,
        }
        self.cleared.resize(self.rows.len(), [0; 3]);
        self.refreshed = Some(Instant::now());
        true
    }

    fn lines(&mut self, width: usize, height: usize) -> Vec<Line> {
        let room = height.saturating_sub(4);
        let mut lines = vec![self.title()];
        if self.help {
            lines.extend(HELP.lines().map(|line| Line::new(Kind::Plain, line)));
        } else {
            lines.push(self.totals());
            let offset = (self.chosen + 1).saturating_sub(room.max(1));
            for (place, line) in self.table(width).into_iter().enumerate() {
                let is_chosen = place > 0 && (self.is_all || place - 1 == self.chosen);
                if place == 0 || place > offset {
                    lines.push(Line::new(
                        if place == 0 {
                            Kind::Head
                        } else if is_chosen {
                            Kind::Chosen
                        } else {
                            Kind::Plain
                        },
                        line,
                    ));
                }
            }
        }
        lines.truncate(height.saturating_sub(1).max(1));
        lines.resize(height.saturating_sub(1).max(1), Line::new(Kind::Plain, ""));
        lines.push(self.last());
        lines
    }
}

const HELP: &str = "\
 up, down  select a stream; also page up, page down, home, end
 a         apply keys to all streams, or only to the selected one
 + -       increase the rate by 25 %, reduce it by 20 %
 r         enter a rate: 10kpps, 1gbps, or a factor such as x2
 space     pause, resume
 x s       stop; restart with the first packet
 c         reset the counters shown; the final report has the totals
 q         quit: stop the run and print its report

 packets/s and L1 are rates of the last interval. With --check: received, and
 lost (gaps in the sequence numbers received). Streams that are made in the
 kernel (xdp-live:) can only be controlled all together.

 Press any key to leave this page.";
