//! Streams set through `/api/v1`, and other functions beyond the model.

use super::{NOTHING, Tester};
use crate::native_api::forms;
use crate::native_api::stream_spec::{StreamSpec, read_all, streams};
use crate::port::Port;
use linerate_burst::random::mix;
use linerate_generate::Rate;
use linerate_generate::packet::{self, Sizes};
use linerate_generate::stream::Mark;
use linerate_otg::config::{Config, Port as Named};
use linerate_otg::flow::{Flow, Latency};
use linerate_otg::metrics::{FlowMetrics, TrafficMetrics};
use linerate_otg::read::Faults;
use std::collections::{HashMap, HashSet};

/// Maximum bytes of the frames of all streams, counting each size once.
const MOST_BYTES: usize = 64 << 20;

impl Tester {
    /// Returns the names of the ports.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().map(|port| port.name.as_str())
    }

    /// Returns the index of a port.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name)
    }

    /// Returns a port by index.
    pub(crate) fn port(&self, place: usize) -> &Port {
        &self.ports[place]
    }

    /// Returns the specification of a port, or the name if it is unknown.
    pub fn spec_of(&self, name: &str) -> String {
        self.place(name).map_or_else(|| name.to_owned(), |place| self.ports[place].spec.clone())
    }

    /// Returns the name of a port given by name or specification, or the text if it is unknown.
    pub fn name_of(&self, text: &str) -> String {
        self.located(text).map_or_else(|| text.to_owned(), |place| self.ports[place].name.clone())
    }

    /// Returns the line rate of a port in bits per second, if known.
    pub fn line_of(&self, name: &str) -> Option<f64> {
        self.ports[self.place(name)?].line
    }

    /// Returns a secret random number.
    pub(crate) fn secret(&self) -> u64 {
        mix(self.key)
    }

    /// Returns the streams as set; empty if the model set them.
    pub fn described(&self) -> &[StreamSpec] {
        &self.own
    }

    /// Returns the number of streams, however they were set.
    pub fn streams(&self) -> usize {
        self.running.len()
    }

    /// Returns whether a stream is sending or paused.
    pub fn is_active(&self, at: usize) -> bool {
        self.running[at].is_active()
    }

    /// Replaces all streams atomically.
    ///
    /// # Errors
    /// All errors; the state is then unchanged.
    pub fn set(&mut self, all: Vec<StreamSpec>) -> Result<(), Faults> {
        let (config, places) = self.made(&all)?;
        self.take(config, places);
        (self.text, self.own) = (NOTHING.to_owned(), all);
        Ok(())
    }

    /// Replaces all streams by those of a stream file, commands or a script.
    ///
    /// # Errors
    /// Same as [`set`](Tester::set), or the text cannot be read.
    pub fn load(&mut self, text: &str) -> Result<(), Faults> {
        self.set(read_all(&forms::read(self, text)?)?)
    }

    /// Adds or replaces streams by name, and removes others; streams that are not named continue.
    ///
    /// # Errors
    /// All errors; the state is then unchanged.
    pub fn amend(&mut self, some: Vec<StreamSpec>, gone: &[String]) -> Result<(), Faults> {
        let mut faults = Faults::default();
        if self.own.is_empty() && !self.running.is_empty() {
            faults.add("streams", "the current streams were set by another API; replace all of them (POST)");
            return Err(faults);
        }
        let mut all = self.own.clone();
        let mut leaving: HashSet<&str> = gone.iter().map(String::as_str).collect();
        all.retain(|own| !leaving.remove(own.name.as_str()));
        let unknown = gone.iter().filter(|name| leaving.contains(name.as_str()));
        unknown.for_each(|name| faults.add("remove", format_args!("unknown stream {name:?}")));
        let touched: Vec<String> = some.iter().map(|own| own.name.clone()).collect();
        let mut known: HashMap<String, usize> =
            all.iter().enumerate().map(|(at, own)| (own.name.clone(), at)).collect();
        for own in some {
            match known.get(&own.name) {
                Some(at) => all[*at] = own,
                None => {
                    known.insert(own.name.clone(), all.len());
                    all.push(own);
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let (config, places) = self.made(&all)?;
        self.replace(config, places, &touched)?;
        (self.text, self.own) = (NOTHING.to_owned(), all);
        Ok(())
    }

    /// Compiles streams to a configuration.
    fn made(&self, all: &[StreamSpec]) -> Result<(Config, Vec<usize>), Faults> {
        let mut faults = Faults::default();
        for (index, own) in all.iter().enumerate() {
            for (key, name) in own.rx.iter().map(|name| ("rx", name)).chain([("tx", &own.tx)]) {
                if self.place(name).is_none() {
                    let known = self.names().collect::<Vec<_>>().join(", ");
                    faults.add(
                        &format!("streams[{index}].{key}"),
                        format_args!("unknown port {name:?}; expected one of {known}"),
                    );
                }
            }
        }
        let bytes = |own: &StreamSpec| match (&own.replay, packet::sizes(own.text("size"), 0)) {
            (Some(name), _) => self.recordings.get(name).map_or(0, |recording| recording.bytes),
            (None, Ok(Sizes::Of(sizes, _))) => sizes.iter().sum::<usize>(),
            _ => 0,
        };
        if all.iter().map(bytes).sum::<usize>() > MOST_BYTES {
            faults.add("streams", format_args!("frames of all sizes exceed {MOST_BYTES} bytes; use steps"));
            return Err(faults);
        }
        let named = |name: &str| Named { name: name.to_owned(), location: name.to_owned(), speed: None };
        let mut config = Config { ports: self.names().map(named).collect(), ..Config::default() };
        let mut flows: Vec<Option<Flow>> = all.iter().map(|_| None).collect();
        for port in &self.ports {
            let places: Vec<usize> = (0..all.len()).filter(|at| all[*at].tx == port.name).collect();
            let those: Vec<&StreamSpec> = places.iter().map(|at| &all[*at]).collect();
            match streams(&those, port.line, &self.recordings) {
                Ok(made) => {
                    for (at, stream) in places.into_iter().zip(made) {
                        if stream.rate == Rate::Top {
                            let what = "an unlimited rate would block the other streams; set a rate";
                            faults.add(&format!("streams[{at}].rate"), what);
                        }
                        let is_counted = stream.mark != Mark::None;
                        flows[at] = Some(Flow {
                            name: all[at].name.clone(),
                            tx: port.name.clone(),
                            rx: all[at].rx.clone(),
                            text: all[at].message(),
                            is_counted,
                            loss: is_counted,
                            timestamps: is_counted,
                            latency: (stream.mark == Mark::Trailer).then_some(Latency::CutThrough),
                            gateway: None,
                            stream,
                        });
                    }
                }
                Err(fault) => {
                    let stream = places.get(fault.stream).copied().unwrap_or_default();
                    crate::native_api::stream_spec::Fault { stream, ..fault }.line(&mut faults);
                }
            }
        }
        config.flows = flows.into_iter().flatten().collect();
        let places: Vec<usize> = (0..self.ports.len()).collect();
        self.fit(&config, &places, "streams", &mut faults);
        if faults.is_empty() { Ok((config, places)) } else { Err(faults) }
    }

    /// Clears counters; running streams are not affected.
    pub fn clear(&mut self) {
        for at in 0..self.running.len() {
            self.running[at].cleared = Some(self.figures(at));
        }
        for port in &mut self.ports {
            let (frames, bytes) = port.transmitter.sent();
            let reception = port.listener.reception();
            port.before = [frames, bytes, reception.frames, reception.bytes];
            drop(reception);
            port.rates = Default::default();
        }
    }

    /// Returns the figures of a stream since counters were cleared.
    pub fn figures_since(&self, at: usize) -> FlowMetrics {
        let mut figures = self.figures(at);
        let Some(before) = &self.running[at].cleared else { return figures };
        let take = |now: &mut TrafficMetrics, before: &TrafficMetrics| {
            now.frames = now.frames.saturating_sub(before.frames);
            now.bytes = now.bytes.saturating_sub(before.bytes);
        };
        take(&mut figures.tx, &before.tx);
        take(&mut figures.rx, &before.rx);
        for (now, before) in [
            (&mut figures.distinct, before.distinct),
            (&mut figures.reordered, before.reordered),
            (&mut figures.corrupted, before.corrupted),
            (&mut figures.missing, before.missing),
            (&mut figures.late, before.late),
        ] {
            *now = now.saturating_sub(before);
        }
        figures
    }
}
