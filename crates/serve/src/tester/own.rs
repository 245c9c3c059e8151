//! Streams as `/api/v1` sets them, and what it asks beside the model.

use super::{NOTHING, Tester};
use crate::own::described::{Described, read_all, streams};
use crate::own::forms;
use crate::port::Port;
use linerate_burst::random::mix;
use linerate_generate::Rate;
use linerate_generate::packet::{self, Sizes};
use linerate_generate::stream::Mark;
use linerate_otg::answer::{Figures, FlowFigures};
use linerate_otg::config::{Config, Port as Named};
use linerate_otg::flow::{Flow, Latency};
use linerate_otg::read::Faults;
use std::collections::{HashMap, HashSet};

/// Bytes that the frames of all streams may have, each size of each once.
const MOST_BYTES: usize = 64 << 20;

impl Tester {
    /// The names of the ports.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().map(|port| port.name.as_str())
    }

    /// Where a port of this name is.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name)
    }

    /// A port by its place.
    pub(crate) fn port(&self, place: usize) -> &Port {
        &self.ports[place]
    }

    /// What a port is, as whoever started the server wrote it; its name where there is no such port.
    pub fn spec_of(&self, name: &str) -> String {
        self.place(name).map_or_else(|| name.to_owned(), |place| self.ports[place].spec.clone())
    }

    /// What a port is called here that somebody calls by its name or its specification; the text where there is none.
    pub fn name_of(&self, text: &str) -> String {
        self.located(text).map_or_else(|| text.to_owned(), |place| self.ports[place].name.clone())
    }

    /// Bits per second of the line of a port, where they are known.
    pub fn line_of(&self, name: &str) -> Option<f64> {
        self.ports[self.place(name)?].line
    }

    /// Something that nobody knows.
    pub(crate) fn secret(&self) -> u64 {
        mix(self.key)
    }

    /// The streams as they were set; none where the model set them.
    pub fn described(&self) -> &[Described] {
        &self.own
    }

    /// How many streams there are, whoever set them.
    pub fn streams(&self) -> usize {
        self.running.len()
    }

    /// Whether a stream is sent, or holds on.
    pub fn is_active(&self, at: usize) -> bool {
        self.running[at].is_active()
    }

    /// Takes streams instead of all that there were: all of them or none.
    ///
    /// # Errors
    /// What is wrong with them; then everything is as it was.
    pub fn set(&mut self, all: Vec<Described>) -> Result<(), Faults> {
        let (config, places) = self.made(&all)?;
        self.take(config, places);
        (self.text, self.own) = (NOTHING.to_owned(), all);
        Ok(())
    }

    /// The same of streams as people keep them: a stream file, commands, or a script.
    ///
    /// # Errors
    /// As above, or why they cannot be read.
    pub fn load(&mut self, text: &str) -> Result<(), Faults> {
        self.set(read_all(&forms::read(self, text)?)?)
    }

    /// Adds streams, or takes them instead of those of the same names, and removes others; what is not named goes on as it was.
    ///
    /// # Errors
    /// What is wrong with them; then everything is as it was.
    pub fn amend(&mut self, some: Vec<Described>, gone: &[String]) -> Result<(), Faults> {
        let mut faults = Faults::default();
        if self.own.is_empty() && !self.running.is_empty() {
            faults.add("streams", "those that there are were set by another API: set all of them (POST)");
            return Err(faults);
        }
        let mut all = self.own.clone();
        let mut leaving: HashSet<&str> = gone.iter().map(String::as_str).collect();
        all.retain(|own| !leaving.remove(own.name.as_str()));
        let unknown = gone.iter().filter(|name| leaving.contains(name.as_str()));
        unknown.for_each(|name| faults.add("remove", format_args!("no stream is called {name:?}")));
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

    /// The configuration that streams mean.
    fn made(&self, all: &[Described]) -> Result<(Config, Vec<usize>), Faults> {
        let mut faults = Faults::default();
        for (index, own) in all.iter().enumerate() {
            for (key, name) in own.rx.iter().map(|name| ("rx", name)).chain([("tx", &own.tx)]) {
                if self.place(name).is_none() {
                    let known = self.names().collect::<Vec<_>>().join(", ");
                    faults.add(
                        &format!("streams[{index}].{key}"),
                        format_args!("no port {name:?} here; there is {known}"),
                    );
                }
            }
        }
        let bytes = |own: &Described| match (&own.replay, packet::sizes(own.text("size"), 0)) {
            (Some(name), _) => self.recordings.get(name).map_or(0, |recording| recording.bytes),
            (None, Ok(Sizes::Of(sizes, _))) => sizes.iter().sum::<usize>(),
            _ => 0,
        };
        if all.iter().map(bytes).sum::<usize>() > MOST_BYTES {
            faults.add("streams", format_args!("their sizes make more than {MOST_BYTES} bytes of frames: write steps"));
            return Err(faults);
        }
        let named = |name: &str| Named { name: name.to_owned(), location: name.to_owned(), speed: None };
        let mut config = Config { ports: self.names().map(named).collect(), ..Config::default() };
        let mut flows: Vec<Option<Flow>> = all.iter().map(|_| None).collect();
        for port in &self.ports {
            let places: Vec<usize> = (0..all.len()).filter(|at| all[*at].tx == port.name).collect();
            let those: Vec<&Described> = places.iter().map(|at| &all[*at]).collect();
            match streams(&those, port.line, &self.recordings) {
                Ok(made) => {
                    for (at, stream) in places.into_iter().zip(made) {
                        if stream.rate == Rate::Top {
                            let what = "at top speed it would keep the others waiting: give it a rate";
                            faults.add(&format!("streams[{at}].rate"), what);
                        }
                        let is_counted = stream.mark != Mark::None;
                        flows[at] = Some(Flow {
                            name: all[at].name.clone(),
                            tx: port.name.clone(),
                            rx: all[at].rx.clone(),
                            text: all[at].told(),
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
                    crate::own::described::Fault { stream, ..fault }.line(&mut faults);
                }
            }
        }
        config.flows = flows.into_iter().flatten().collect();
        let places: Vec<usize> = (0..self.ports.len()).collect();
        self.fit(&config, &places, "streams", &mut faults);
        if faults.is_empty() { Ok((config, places)) } else { Err(faults) }
    }

    /// Counts from here on; what goes on is not touched.
    pub fn clear(&mut self) {
        for at in 0..self.running.len() {
            self.running[at].cleared = Some(self.figures(at));
        }
        for port in &mut self.ports {
            let (frames, bytes) = port.transmitter.sent();
            let heard = port.listener.heard();
            port.before = [frames, bytes, heard.frames, heard.bytes];
            drop(heard);
            port.rates = Default::default();
        }
    }

    /// What a stream has done since counters were cleared.
    pub fn figures_since(&self, at: usize) -> FlowFigures {
        let mut figures = self.figures(at);
        let Some(before) = &self.running[at].cleared else { return figures };
        let take = |now: &mut Figures, before: &Figures| {
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
