//! Rate changes of running streams. The cost depends only on the streams named.

use super::Tester;
use crate::native_api::stream_spec::{Fault, StreamSpec, streams};
use linerate_generate::Rate;
use linerate_otg::read::Faults;
use std::collections::HashMap;

/// Number of names above which an index of all streams is built.
const FEW: usize = 8;

impl Tester {
    /// Changes the rate of streams.
    ///
    /// # Errors
    /// A name is unknown or the rate is invalid; the state is then unchanged.
    pub fn pace(&mut self, names: &[String], rate: &str) -> Result<(), Faults> {
        let places = self.described_indices(names)?;
        let paced = |at: &usize| {
            let mut own = self.own[*at].clone();
            own.pace(rate);
            own
        };
        let some: Vec<StreamSpec> = places.iter().map(paced).collect();
        // Times of a recording or sequence depend on more than a rate.
        if some.iter().any(|own| own.replay.is_some() || own.sequence.is_some()) {
            return self.amend(some, &[]);
        }
        let mut rates: Vec<Option<Rate>> = vec![None; some.len()];
        let mut faults = Faults::default();
        for port in &self.ports {
            let those: Vec<usize> = (0..some.len()).filter(|index| some[*index].tx == port.name).collect();
            let described: Vec<&StreamSpec> = those.iter().map(|index| &some[*index]).collect();
            let made = streams(&described, port.line, &self.recordings);
            let made = made.unwrap_or_else(|fault| {
                let stream = those.get(fault.stream).copied().unwrap_or_default();
                Fault { stream, ..fault }.line(&mut faults);
                Vec::new()
            });
            for (index, stream) in those.into_iter().zip(made) {
                let now = &self.config.flows[places[index]].stream;
                if stream.rate == Rate::Top {
                    let what = "an unlimited rate would block the other streams; set a rate";
                    faults.add(&format!("streams[{index}].rate"), what);
                }
                let is_same = (&stream.shape, &stream.count, &stream.span) == (&now.shape, &now.count, &now.span);
                rates[index] = is_same.then_some(stream.rate);
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        if rates.contains(&None) {
            return self.amend(some, &[]);
        }
        let paced: Vec<(usize, Rate)> = places.iter().copied().zip(rates.into_iter().flatten()).collect();
        for (place, port) in self.ports.iter().enumerate() {
            let own = paced.iter().map(|(at, rate)| (&self.running[*at], *rate)).filter(|(one, _)| one.tx == place);
            port.transmitter.pace(own.map(|(running, rate)| (&running.sending, rate)));
        }
        for ((at, rate), own) in paced.into_iter().zip(some) {
            self.config.flows[at].stream.rate = rate;
            self.own[at] = own;
        }
        Ok(())
    }

    /// Returns the indices of streams set through this API.
    fn described_indices(&self, names: &[String]) -> Result<Vec<usize>, Faults> {
        let mut faults = Faults::default();
        let many: HashMap<&str, usize> = match names.len() > FEW {
            true => self.own.iter().enumerate().map(|(at, own)| (own.name.as_str(), at)).collect(),
            false => HashMap::new(),
        };
        let mut find = |name: &String| {
            let found = match many.is_empty() {
                true => self.own.iter().position(|own| own.name == *name),
                false => many.get(name.as_str()).copied(),
            };
            if found.is_none() {
                faults.add("streams", format_args!("unknown stream {name:?}"));
            }
            found
        };
        let places: Vec<usize> = names.iter().filter_map(&mut find).collect();
        if faults.is_empty() { Ok(places) } else { Err(faults) }
    }
}
