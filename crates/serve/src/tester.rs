//! Tester: its ports, the configuration, the flows and their figures.

mod devices;
mod drain;
mod flow_ids;
mod metrics;
mod native_streams;
mod pace;
mod read;
#[cfg(test)]
mod tests;
mod trial;

pub use devices::Neighbor;
pub use drain::{DrainingFlows, LOOK};
pub use trial::{DirectionResult, TrialDirection, TrialObserver, TrialView, run as run_trial};

use crate::history::History;
use crate::native_api::stream_spec::StreamSpec;
use crate::port::{OpenPort, Port};
use crate::rates::Rates;
use crate::reception::MOST_STREAMS;
use crate::recordings::Recordings;
use crate::running_flow::{RunningFlow, differ_in_rate, received_metrics};
use drain::PATIENCE;
use linerate_burst::random::mix;
use linerate_engine::transmit::{StreamTotals, Transmitter};
use linerate_generate::check::NUMBERS;
use linerate_generate::stream::{Mark, Stream};
use linerate_generate::trailer::Key;
use linerate_otg::config::Config;
use linerate_otg::control::Traffic;
use linerate_otg::flow::Flow;
use linerate_otg::read::Faults;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// Ports with a configuration.
pub struct Tester {
    ports: Vec<Port>,
    config: Config,
    /// Text of the configuration, including later changes. A tree of values would take thirty times the memory.
    text: String,
    /// Streams set through our own API: one per flow.
    own: Vec<StreamSpec>,
    /// State of each flow of the configuration.
    running: Vec<RunningFlow>,
    /// Index in `ports` of each port of the configuration.
    places: Vec<usize>,
    key: u64,
    next_id: u32,
    /// Number of streams that an account has memory for.
    room: usize,
    /// Limit of flow ids.
    numbers: usize,
    /// Recordings for replay.
    pub(crate) recordings: Recordings,
    /// Recently viewed flows, with the tick of the last view. With many flows only these have rates.
    watched: RefCell<HashMap<usize, u64>>,
    ticks: u64,
    history: History,
}

/// Empty configuration.
const NOTHING: &str = "{}";
/// Number of flows above which only viewed ones have rates.
const MANY: usize = 1000;
/// Ticks since the last view after which a flow counts as not viewed.
const FORGET: u64 = 20;
impl Tester {
    /// Starts the ports.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(opened: Vec<OpenPort>, seed: u64) -> std::io::Result<Self> {
        let mut ports = Vec::new();
        for port in opened {
            ports.push(Port::start(port)?);
        }
        // Allocates before sending starts.
        let began = Instant::now();
        while began.elapsed() < PATIENCE && !ports.iter().all(|port| port.was_polled(1)) {
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

    /// Returns the configuration, including later changes.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the configuration atomically. Returns warnings where it was approximated.
    ///
    /// # Errors
    /// All errors; the state is then unchanged.
    pub fn configure(&mut self, text: &str) -> Result<Vec<String>, Faults> {
        let (config, places) = self.read(text)?;
        let warnings = config.warnings.clone();
        self.take(config, places);
        (self.text, self.own) = (text.to_owned(), Vec::new());
        Ok(warnings)
    }

    /// Replaces the configuration.
    fn take(&mut self, config: Config, places: Vec<usize>) {
        self.stop_all();
        self.running = config.flows.iter().map(|flow| RunningFlow::new(flow, &config, &places)).collect();
        (self.config, self.places) = (config, places);
        self.watched.get_mut().clear();
        self.renew();
        self.enable_devices();
        for port in &mut self.ports {
            let (frames, bytes) = port.transmitter.sent();
            let mut reception = port.listener.reception();
            reception.captured = Default::default();
            port.before = [frames, bytes, reception.frames, reception.bytes];
            port.rates = Rates::default();
        }
    }

    /// Applies a configuration that differs only in these flows: others continue.
    ///
    /// # Errors
    /// All errors; the state is then unchanged.
    pub fn change(&mut self, text: &str, touched: &[String]) -> Result<Vec<String>, Faults> {
        let mut faults = Faults::default();
        if !self.own.is_empty() {
            faults.add("", "the current streams were set by /api/v1/streams; set a whole configuration instead");
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
                let what = "only the rate can be changed while the flow is sent; stop it first";
                faults.add(&flow.name, what);
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let warnings = config.warnings.clone();
        let places_of: Vec<Option<usize>> = config.flows.iter().map(|flow| known.get(&*flow.name).copied()).collect();
        // Restarted flows get new accounts.
        let changed: Vec<usize> = config
            .flows
            .iter()
            .zip(&places_of)
            .filter(|(flow, _)| is_touched(flow))
            .filter_map(|(_, at)| *at)
            .collect();
        let changed = changed.into_iter().filter(|at| !self.running[*at].is_active()).collect::<Vec<_>>();
        let mut closed: Vec<u32> = changed.into_iter().filter_map(|at| self.freeze(at)).collect();
        let mut old: Vec<Option<RunningFlow>> = std::mem::take(&mut self.running).into_iter().map(Some).collect();
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
                None => RunningFlow::new(flow, &config, &places),
            });
        }
        let gone: Vec<RunningFlow> = old.into_iter().flatten().collect();
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

    /// Changes the state of flows. If they end, or will at once, returns a condition to wait for the arrival of their
    /// frames.
    ///
    /// # Errors
    /// A port has failed, or a stream is invalid.
    pub fn transmit(&mut self, state: Traffic, flows: &[usize]) -> Result<Option<DrainingFlows>, Faults> {
        let whole = self.whole(flows);
        let flows = &whole[..];
        match state {
            Traffic::Start => {
                self.begin(flows)?;
                return Ok(self.draining_soon(flows));
            }
            Traffic::Stop => {
                self.each_port(flows, |port, flows| port.end(flows));
                return Ok(Some(self.draining(flows)));
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

    /// Extends a selection to whole sequences.
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

    fn each_port(&self, flows: &[usize], act: impl Fn(&Transmitter, Vec<&Arc<StreamTotals>>)) {
        for (place, port) in self.ports.iter().enumerate() {
            let own = flows.iter().map(|at| &self.running[*at]).filter(|running| running.tx == place);
            act(&port.transmitter, own.map(|running| &running.sending).collect());
        }
    }

    /// Starts flows, with counters at 0.
    fn begin(&mut self, flows: &[usize]) -> Result<(), Faults> {
        self.each_port(flows, |port, flows| port.end(flows));
        if self.running.iter().all(|running| !running.is_active()) {
            self.renew();
        }
        self.address(flows)?;
        self.number(flows)?;
        // By port: independent streams first, then each sequence.
        let mut groups = BTreeMap::new();
        for at in flows {
            let (flow, running) = (&self.config.flows[*at], &mut self.running[*at]);
            (running.frozen, running.cleared) = (None, None);
            running.before = (0, 0);
            if flow.stream.mark == Mark::Count {
                let (figures, _) = received_metrics(&self.ports, running);
                running.before = (figures.frames, figures.bytes);
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
                Some(_) => port.transmitter.start_sequence(streams, Key(self.key)),
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

    /// Starts or stops captures, by indices of ports in the configuration.
    pub fn capture(&mut self, is_on: bool, ports: &[usize]) {
        for at in ports {
            let Some(wanted) = self.config.capture(&self.config.ports[*at].name) else { continue };
            let mut reception = self.ports[self.places[*at]].listener.reception();
            match is_on {
                true => reception.captured.start(wanted.slice, wanted.overwrite),
                false => reception.captured.stop(),
            }
        }
    }

    /// Returns the captured frames of a port of the configuration as a file; stops the capture.
    ///
    /// # Errors
    /// The port has no capture.
    pub fn captured(&mut self, port: &str) -> Result<Vec<u8>, Faults> {
        let mut faults = Faults::default();
        let at = self.config.ports.iter().position(|known| known.name == port);
        let Some(place) = at.and_then(|at| self.places.get(at)) else {
            faults.add("port_name", format!("unknown port {port:?}"));
            return Err(faults);
        };
        let Some(wanted) = self.config.capture(port) else {
            faults.add("port_name", format!("no capture configured at {port:?}"));
            return Err(faults);
        };
        let mut reception = self.ports[*place].listener.reception();
        reception.captured.stop();
        let taken = std::mem::take(&mut reception.captured);
        drop(reception);
        let file = taken.file(wanted.format);
        self.ports[*place].listener.reception().captured = taken;
        Ok(file)
    }
}
