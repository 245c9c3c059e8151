//! `generate` at a terminal: a table of streams, and keys that tell them something. By the same [`Control`] as `linerate ctl` and `serve`;
//! what each stream has sent is copied when the table is drawn, so nobody who sends waits for it.

use super::control::{Row, read_rate, rows};
use crate::view::rates::grouped;
use crate::view::screen::keys::Key;
use crate::view::screen::numbers::{count, l1, span};
use crate::view::screen::table::{Column, number, table, text};
use crate::view::screen::{Kind, Line, Screen, View};
use linerate_engine::streams::{Control, Run};
use linerate_engine::{CheckWatch, Stop, StreamWatch};
use linerate_generate::{Action, Which};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked; of very many streams less often.
const EVERY: Duration = Duration::from_millis(500);
const MANY: (usize, Duration) = (2000, Duration::from_secs(2));
/// One step of the keys up and down.
const FASTER: f64 = 1.25;

/// The table, until it is dropped.
pub(super) struct Shown {
    over: Stop,
    thread: Option<JoinHandle<()>>,
}

/// Shows it, if there is a terminal.
pub(super) fn show(control: &Control, run: &Run, check: Option<&CheckWatch>, port: &str) -> Option<Shown> {
    let screen = Screen::open(true)?;
    let over = Stop::new();
    let (ended, stop) = (over.clone(), run.stop.clone());
    let mut streams = Table::new(control.clone(), run, check.cloned(), port.to_owned());
    let view = move || {
        let is_over = || ended.is_requested() || stop.is_requested();
        screen.show(&mut streams, is_over);
        linerate_port::news::silence();
        // By a key or because the terminal is gone, if not by itself.
        if !ended.is_requested() {
            stop.request();
        }
    };
    // Without a thread for it the terminal is put back, and the run is as without a terminal.
    let thread = std::thread::Builder::new().name("linerate-view".into()).spawn(view).ok()?;
    Some(Shown { over, thread: Some(thread) })
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.over.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is in it.
struct Table {
    control: Control,
    run: Run,
    watch: StreamWatch,
    check: Option<CheckWatch>,
    port: String,
    news: Receiver<String>,
    began: Instant,
    looked: Option<Instant>,
    rows: Vec<Row>,
    /// Frames a second of each stream, in the last interval; all bytes then.
    rates: Vec<f64>,
    bytes: (u64, f64),
    /// What had been counted when that was cleared: sent, received, lost.
    cleared: Vec<[u64; 3]>,
    chosen: usize,
    /// Keys are for all streams.
    is_all: bool,
    typing: Option<String>,
    said: String,
    help: bool,
}

impl Table {
    fn new(control: Control, run: &Run, check: Option<CheckWatch>, port: String) -> Self {
        Table {
            control,
            watch: run.watch.clone(),
            run: run.clone(),
            check,
            port,
            news: linerate_port::news::listen(),
            began: Instant::now(),
            looked: None,
            rows: Vec::new(),
            rates: Vec::new(),
            bytes: (0, 0.0),
            cleared: Vec::new(),
            chosen: 0,
            is_all: false,
            typing: None,
            said: String::new(),
            help: false,
        }
    }

    fn take(&mut self, rows: Vec<Row>, bytes: u64, seconds: f64) {
        let before = |place: usize| self.rows.get(place).map_or(0, |row| row.sent);
        let per = |now: u64, before: u64| if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 };
        self.rates = rows.iter().enumerate().map(|(place, row)| per(row.sent, before(place))).collect();
        self.bytes = (bytes, per(bytes, self.bytes.0));
        self.cleared.resize(rows.len(), [0; 3]);
        self.rows = rows;
    }

    /// Which streams keys are for.
    fn which(&self) -> Which {
        if self.is_all { Which::All } else { Which::Some(Arc::from([self.chosen as u32])) }
    }

    fn tell(&mut self, action: Action) {
        match self.control.tell_which(&self.which(), action) {
            // It is looked at what became of it.
            Ok(_) => self.looked = None,
            Err(error) => self.said = error.to_string(),
        }
    }

    /// Pauses, or has them go on.
    fn pause(&mut self) {
        let own = |place: &usize| self.is_all || *place == self.chosen;
        let is_paused = self.rows.iter().enumerate().any(|(place, row)| own(&place) && row.state == "paused");
        self.tell(if is_paused { Action::Resume } else { Action::Pause });
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
                Ok(action) => return self.tell(action),
                Err(error) => self.said = error.to_string(),
            },
            _ => {}
        }
        self.typing = Some(text);
    }

    fn title(&self) -> Line {
        Line::new(
            Kind::Bar,
            format!(" linerate generate  to {}  {}", self.port, span(self.began.elapsed().as_secs_f64())),
        )
    }

    fn last(&self) -> Line {
        match &self.typing {
            Some(text) if self.said.is_empty() => Line::new(Kind::Bar, format!(" rate: {text}_   (10kpps, 1gbps, x2)")),
            Some(text) => Line::new(Kind::Bar, format!(" rate: {text}_   {}", self.said)),
            None if !self.said.is_empty() => Line::new(Kind::Alarm, format!(" {}", self.said)),
            None => {
                Line::new(Kind::Bar, " q quit  ? help  + - rate  r type  space pause  x stop  s start  c clear  a all")
            }
        }
    }

    fn totals(&self) -> Line {
        let frames: f64 = self.rates.iter().sum();
        let sum = |get: &dyn Fn(&Row) -> u64| self.rows.iter().map(get).sum::<u64>();
        let sent = sum(&|row| row.sent) - self.cleared.iter().map(|cleared| cleared[0]).sum::<u64>();
        let mut told = format!("sent {}  {} frames/s  {} L1", grouped(sent), count(frames), l1(frames, self.bytes.1));
        if self.check.is_some() {
            let kept = |place: usize| self.cleared.iter().map(|cleared| cleared[place]).sum::<u64>();
            let received = sum(&|row| row.received.unwrap_or(0)).saturating_sub(kept(1));
            let lost = sum(&|row| row.lost.unwrap_or(0)).saturating_sub(kept(2));
            told += &format!("  received {}  lost {}", grouped(received), grouped(lost));
        }
        Line::new(Kind::Plain, told)
    }

    fn table(&self, width: usize) -> Vec<String> {
        const COLUMNS: [Column; 7] = [
            text("stream", 0),
            text("state", 2),
            text("asked", 1),
            number("frames/s", 0),
            number("sent", 0),
            number("received", 0),
            number("lost", 0),
        ];
        let columns = if self.check.is_some() { &COLUMNS[..] } else { &COLUMNS[..5] };
        let row = |(place, row): (usize, &Row)| {
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
        self.said.clear();
        if let Some(text) = self.typing.take() {
            self.typed(text, key);
            return true;
        }
        let is_help = std::mem::take(&mut self.help);
        match key {
            Key::Char('q') => return false,
            _ if is_help => {}
            Key::Char('?') => self.help = true,
            Key::Char('+' | '=') => self.tell(Action::Scale(FASTER)),
            Key::Char('-') => self.tell(Action::Scale(1.0 / FASTER)),
            Key::Char('r') => self.typing = Some(String::new()),
            Key::Char(' ' | 'p') => self.pause(),
            Key::Char('x') => self.tell(Action::Stop),
            Key::Char('s') => self.tell(Action::Start(Arc::from([]))),
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
        let said = self.news.try_iter().last();
        let is_news = said.is_some();
        self.said = said.unwrap_or(std::mem::take(&mut self.said));
        let every = if self.control.names().len() > MANY.0 { MANY.1 } else { EVERY };
        let since = self.looked.map(|looked| looked.elapsed());
        if since.is_some_and(|since| since < every) {
            return is_news;
        }
        let places: Vec<usize> = (0..self.control.names().len()).collect();
        let rows = rows(&places, &self.control, &self.watch, self.check.as_ref());
        let bytes = self.run.progress.bytes.load(Ordering::Relaxed);
        // What was told was just looked at: there is no interval to take a rate of.
        match since {
            Some(since) => self.take(rows, bytes, since.as_secs_f64()),
            None => self.rows = rows,
        }
        self.cleared.resize(self.rows.len(), [0; 3]);
        self.looked = Some(Instant::now());
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
 up, down  choose a stream; also page up and down, home, end
 a         keys are for all streams, or for the one that is chosen
 + -       a quarter faster, a fifth slower
 r         type a rate: 10kpps, 1gbps, 50% of the line, or x2
 space     pause, and go on
 x s       stop; start again, with new numbers
 c         count from here on; the report at the end has all
 q         quit: the run ends, and its report comes

 frames/s and L1 are of the last interval; received and lost where --check
 receives: lost are gaps in the numbers that came. Several streams that the
 kernel makes (xdp-live:) are told something all together.

 Any key leaves this page.";
