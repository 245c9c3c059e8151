//! The tester: its ports, the configuration, the flows and their figures.

mod devices;
mod figures;
mod numbers;
mod own;
mod pace;
mod read;
mod settle;
#[cfg(test)]
mod tests;
mod trial;

pub use devices::Neighbor;
pub use settle::{LOOK, Settling};
pub use trial::{Beside, Came, Look, Way, run as run_trial};

use crate::history::History;
use crate::listen::MOST_STREAMS;
use crate::own::described::Described;
use crate::port::{Opened, Port};
use crate::rates::Rates;
use crate::recordings::Recordings;
use crate::running::{Running, came, differ_in_rate};
use linerate_burst::random::mix;
use linerate_engine::transmit::{Sending, Transmitter};
use linerate_generate::check::NUMBERS;
use linerate_generate::stream::{Mark, Stream};
use linerate_generate::trailer::Key;
use linerate_otg::config::Config;
use linerate_otg::control::Traffic;
use linerate_otg::flow::Flow;
use linerate_otg::read::Faults;
use settle::PATIENCE;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// All of it.
pub struct Tester {
    ports: Vec<Port>,
    config: Config,
    /// The configuration as it came, with what was changed since. As a tree it would take thirty times the memory.
    text: String,
    /// The streams, where they were not set by that API: one for each flow.
    own: Vec<Described>,
    /// One for each flow of the configuration.
    running: Vec<Running>,
    /// Where in `ports` each port of the configuration is.
    places: Vec<usize>,
    key: u64,
    next_id: u32,
    /// Streams that an account has room for.
    room: usize,
    /// One more than the greatest number of a flow.
    numbers: usize,
    /// What streams may replay.
    pub(crate) recordings: Recordings,
    /// Flows whose figures somebody looked at lately, and at which tick. Of many flows rates are known of these alone.
    watched: RefCell<HashMap<usize, u64>>,
    ticks: u64,
    history: History,
}

/// The text where no configuration was set.
const NOTHING: &str = "{}";
/// Of more flows than this rates are known of those alone that somebody looks at.
const MANY: usize = 1000;
/// A flow that nobody looked at for so many ticks is looked at by nobody.
const FORGET: u64 = 20;
impl Tester {
    /// Takes ports into use.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn new(opened: Vec<Opened>, seed: u64) -> std::io::Result<Self> {
        let mut ports = Vec::new();
        for port in opened {
            ports.push(Port::start(port)?);
        }
        // Their memory is made before anybody is told to send.
        let began = Instant::now();
        while began.elapsed() < PATIENCE && !ports.iter().all(|port| port.has_looked(1)) {
            std::thread::sleep(LOOK);
        }
        let (config, text) = (Config::default(), NOTHING.to_owned());
        let (own, running, places) = (Vec::new(), Vec::new(), Vec::new());
        let (watched, ticks, recordings) = (RefCell::default(), 0, Recordings::default());
        Ok(Tester {
            ports,
            config,
            text,
            own,
            running,
            places,
            key: mix(seed) | 1,
            next_id: 1,
            room: MOST_STREAMS,
            numbers: NUMBERS,
            recordings,
            watched,
            ticks,
            history: History::default(),
        })
    }

    /// The configuration as it was set, with what was changed since.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes a configuration instead of the one that was: all of it or nothing. What it is not quite as asked for.
    ///
    /// # Errors
    /// All that is wrong with it; then everything is as it was.
    pub fn configure(&mut self, text: &str) -> Result<Vec<String>, Faults> {
        let (config, places) = self.read(text)?;
        let warnings = config.warnings.clone();
        self.take(config, places);
        (self.text, self.own) = (text.to_owned(), Vec::new());
        Ok(warnings)
    }

    /// Takes a configuration instead of the one that was.
    fn take(&mut self, config: Config, places: Vec<usize>) {
        self.stop_all();
        self.running = config.flows.iter().map(|flow| Running::new(flow, &config, &places)).collect();
        (self.config, self.places) = (config, places);
        self.watched.get_mut().clear();
        self.renew();
        self.place_devices();
        for port in &mut self.ports {
            let (frames, bytes) = port.transmitter.sent();
            let mut heard = port.listener.heard();
            heard.captured = Default::default();
            port.before = [frames, bytes, heard.frames, heard.bytes];
            port.rates = Rates::default();
        }
    }

    /// Takes a configuration in which nothing but these flows is other than before: others go on.
    ///
    /// # Errors
    /// All that is wrong with it; then everything is as it was.
    pub fn change(&mut self, text: &str, touched: &[String]) -> Result<Vec<String>, Faults> {
        let mut faults = Faults::default();
        if !self.own.is_empty() {
            faults.add("", "the streams that there are were set by /api/v1/streams: set a whole configuration instead");
            return Err(faults);
        }
        let (config, places) = self.read(text)?;
        let warnings = self.replace(config, places, touched)?;
        self.text = text.to_owned();
        Ok(warnings)
    }

    fn replace(&mut self, config: Config, places: Vec<usize>, touched: &[String]) -> Result<Vec<String>, Faults> {
        let mut faults = Faults::default();
        let (known, touched) = (self.by_name(), touched.iter().map(String::as_str).collect::<HashSet<&str>>());
        let is_touched = |flow: &&Flow| touched.contains(flow.name.as_str());
        for flow in config.flows.iter().filter(is_touched) {
            let Some(at) = known.get(&*flow.name).copied().filter(|at| self.running[*at].is_active()) else { continue };
            if !differ_in_rate(&self.config.flows[at], flow) {
                let what = "while it is sent its rate can be changed, and nothing else: stop it first";
                faults.add(&flow.name, what);
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let warnings = config.warnings.clone();
        let places_of: Vec<Option<usize>> = config.flows.iter().map(|flow| known.get(&*flow.name).copied()).collect();
        // What begins as another than it was has another account.
        let changed: Vec<usize> = config
            .flows
            .iter()
            .zip(&places_of)
            .filter(|(flow, _)| is_touched(flow))
            .filter_map(|(_, at)| *at)
            .collect();
        let changed = changed.into_iter().filter(|at| !self.running[*at].is_active()).collect::<Vec<_>>();
        let mut closed: Vec<u32> = changed.into_iter().filter_map(|at| self.freeze(at)).collect();
        let mut old: Vec<Option<Running>> = std::mem::take(&mut self.running).into_iter().map(Some).collect();
        let (mut running, mut paces) = (Vec::new(), Vec::new());
        for (flow, at) in config.flows.iter().zip(places_of) {
            running.push(match at.and_then(|at| old[at].take()) {
                Some(mut kept) => {
                    if kept.is_active() && is_touched(&flow) {
                        paces.push((kept.tx, Arc::clone(&kept.sending), flow.stream.rate));
                    } else if !kept.is_active() {
                        kept.place(flow, &config, &places);
                    }
                    kept
                }
                None => Running::new(flow, &config, &places),
            });
        }
        let gone: Vec<Running> = old.into_iter().flatten().collect();
        for (place, port) in self.ports.iter().enumerate() {
            let own = paces.iter().filter(|(tx, ..)| *tx == place);
            port.transmitter.pace(own.map(|(_, sending, rate)| (sending, *rate)));
            port.transmitter.end(gone.iter().filter(|gone| gone.tx == place).map(|gone| &gone.sending));
        }
        closed.extend(gone.iter().map(|gone| gone.id).filter(|id| *id != 0));
        self.forget(&closed);
        (self.config, self.places, self.running) = (config, places, running);
        self.watched.get_mut().clear();
        Ok(warnings)
    }

    /// Has flows take up a state. Where they end, or will at once, says what is to be looked at until what they sent has come.
    ///
    /// # Errors
    /// Why a port sends no more, or what is wrong with a stream.
    pub fn transmit(&mut self, state: Traffic, flows: &[usize]) -> Result<Option<Settling>, Faults> {
        let whole = self.whole(flows);
        let flows = &whole[..];
        match state {
            Traffic::Start => {
                self.begin(flows)?;
                return Ok(self.settling_soon(flows));
            }
            Traffic::Stop => {
                self.each_port(flows, |port, flows| port.end(flows));
                return Ok(Some(self.settling(flows)));
            }
            Traffic::Pause => self.each_port(flows, |port, flows| port.hold(flows)),
            Traffic::Resume => {
                let (held, stopped): (Vec<usize>, Vec<usize>) =
                    flows.iter().partition(|at| self.running[**at].is_active());
                self.each_port(&held, |port, flows| port.go_on(flows));
                if !stopped.is_empty() {
                    self.begin(&stopped)?;
                }
            }
        }
        Ok(None)
    }

    /// With one of a sequence all of it is meant.
    fn whole(&self, flows: &[usize]) -> Vec<usize> {
        let name = |at: &usize| Some((self.running[*at].tx, self.own.get(*at)?.sequence.as_deref()?));
        let meant: HashSet<(usize, &str)> = flows.iter().filter_map(name).collect();
        if meant.is_empty() {
            return flows.to_vec();
        }
        let named: HashSet<usize> = flows.iter().copied().collect();
        let is_meant = |at: &usize| named.contains(at) || name(at).is_some_and(|name| meant.contains(&name));
        (0..self.running.len()).filter(is_meant).collect()
    }

    fn each_port(&self, flows: &[usize], act: impl Fn(&Transmitter, Vec<&Arc<Sending>>)) {
        for (place, port) in self.ports.iter().enumerate() {
            let own = flows.iter().map(|at| &self.running[*at]).filter(|running| running.tx == place);
            act(&port.transmitter, own.map(|running| &running.sending).collect());
        }
    }

    /// Flows begin, with counters at 0.
    fn begin(&mut self, flows: &[usize]) -> Result<(), Faults> {
        self.each_port(flows, |port, flows| port.end(flows));
        if self.running.iter().all(|running| !running.is_active()) {
            self.renew();
        }
        self.address(flows)?;
        self.number(flows)?;
        // By ports, those that stand for themselves first, then each sequence.
        let mut groups = BTreeMap::new();
        for at in flows {
            let (flow, running) = (&self.config.flows[*at], &mut self.running[*at]);
            (running.frozen, running.cleared) = (None, None);
            running.before = (0, 0);
            if flow.stream.mark == Mark::Count {
                let (came, _) = came(&self.ports, running);
                running.before = (came.frames, came.bytes);
            }
            (running.sending, running.rates) = (Arc::default(), Rates::default());
            let sequence = self.own.get(*at).and_then(|own| own.sequence.clone());
            let (own, streams) = groups.entry((running.tx, sequence)).or_insert_with(|| (Vec::new(), Vec::new()));
            own.push(*at);
            streams.push(Stream { id: running.id, ..flow.stream.clone() });
        }
        let mut faults = Faults::default();
        for ((place, sequence), (own, streams)) in groups {
            let port = &self.ports[place];
            if let Some(failure) = port.transmitter.failure() {
                faults.add(&port.name, failure);
                continue;
            }
            let begun = match sequence {
                None => port.transmitter.begin(streams, Key(self.key)),
                Some(_) => port.transmitter.begin_sequence(streams, Key(self.key)),
            };
            match begun {
                Ok(all) => own.into_iter().zip(all).for_each(|(at, sending)| self.running[at].sending = sending),
                Err(wrong) => faults.add(&port.name, wrong),
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn stop_all(&self) {
        let all: Vec<usize> = (0..self.running.len()).collect();
        self.each_port(&all, |port, flows| port.end(flows));
    }

    /// Takes up or ends captures; ports of the configuration by their places.
    pub fn capture(&mut self, is_on: bool, ports: &[usize]) {
        for at in ports {
            let Some(wanted) = self.config.capture(&self.config.ports[*at].name) else { continue };
            let mut heard = self.ports[self.places[*at]].listener.heard();
            match is_on {
                true => heard.captured.start(wanted.slice, wanted.overwrite),
                false => heard.captured.stop(),
            }
        }
    }

    /// What was captured at a port of the configuration, as a file; ends the capture.
    ///
    /// # Errors
    /// If nothing is to be captured there.
    pub fn captured(&mut self, port: &str) -> Result<Vec<u8>, Faults> {
        let mut faults = Faults::default();
        let at = self.config.ports.iter().position(|known| known.name == port);
        let Some(place) = at.and_then(|at| self.places.get(at)) else {
            faults.add("port_name", format!("no port is called {port:?}"));
            return Err(faults);
        };
        let Some(wanted) = self.config.capture(port) else {
            faults.add("port_name", format!("no capture of the configuration is at {port:?}"));
            return Err(faults);
        };
        let mut heard = self.ports[*place].listener.heard();
        heard.captured.stop();
        let taken = std::mem::take(&mut heard.captured);
        drop(heard);
        let file = taken.file(wanted.format);
        self.ports[*place].listener.heard().captured = taken;
        Ok(file)
    }
}
