//! Reading of configurations for the available ports, and lookup of names.

use super::Tester;
use linerate_otg::config::{Config, Text};
use linerate_otg::flow::Setup;
use linerate_otg::read::Faults;
use serde_json::Value;
use std::collections::HashMap;

impl Tester {
    pub(super) fn read(&self, text: &str) -> Result<(Config, Vec<usize>), Faults> {
        let mut faults = Faults::default();
        let Ok(text) = Text::parse(text).map_err(|error| faults.add("", format_args!("invalid JSON: {error}"))) else {
            return Err(faults);
        };
        let mut config = Config::read_text(&text, &Setup { seed: self.key, lines: self.lines(&text.frame) })?;
        let mut places = Vec::new();
        for (index, port) in config.ports.iter().enumerate() {
            let found = self.located(&port.location);
            if found.is_none() {
                let known: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
                let what = format!("unknown port {:?}; expected one of {}", port.location, known.join(", "));
                faults.add(&format!("ports[{index}].location"), what);
            }
            if let Some(other) = found.and_then(|place| places.iter().position(|known| *known == place)) {
                faults.add(&format!("ports[{index}].location"), format!("already used by ports[{other}]"));
            }
            places.push(found.unwrap_or(usize::MAX));
        }
        for name in config.devices.iter().map(|ethernet| &ethernet.port) {
            let at = config.ports.iter().position(|port| port.name == *name).and_then(|at| places.get(at));
            let Some(port) = at.and_then(|place| self.ports.get(*place)) else { continue };
            if let Some(why) = port.listener.reception().devices.refusal() {
                faults.add("devices", format_args!("not possible at {name}: {why}"));
            }
        }
        self.fit(&config, &places, "flows", &mut faults);
        config.warnings.dedup();
        if faults.is_empty() { Ok((config, places)) } else { Err(faults) }
    }

    /// Checks that ports can send frames of these lengths.
    pub(super) fn fit(&self, config: &Config, places: &[usize], list: &str, faults: &mut Faults) {
        for (index, flow) in config.flows.iter().enumerate() {
            let at = config.ports.iter().position(|port| port.name == flow.tx).and_then(|at| places.get(at));
            let Some(port) = at.and_then(|place| self.ports.get(*place)) else { continue };
            let longest = flow.stream.variants.iter().map(|variant| variant.frame.len()).max().unwrap_or(0);
            if longest > port.longest {
                let what = format!("{} bytes; {} sends at most {}", longest + 4, port.name, port.longest + 4);
                faults.add(&format!("{list}[{index}].size"), what);
            }
        }
    }

    /// Returns the line rates of the ports of a configuration, by their names there.
    fn lines(&self, document: &Value) -> Vec<(String, f64)> {
        let ports = document.get("ports").and_then(Value::as_array).into_iter().flatten();
        ports
            .filter_map(|port| {
                let name = port.get("name")?.as_str()?;
                let location = port.get("location").and_then(Value::as_str).unwrap_or(name);
                Some((name.to_owned(), self.ports[self.located(location)?].line?))
            })
            .collect()
    }

    pub(super) fn located(&self, location: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.name == location || port.spec == location)
    }

    /// Returns the indices of flows by name, or of all flows.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn flows(&self, names: &[String]) -> Result<Vec<usize>, Faults> {
        let mut faults = Faults::default();
        let known = if names.is_empty() { HashMap::new() } else { self.by_name() };
        let places = names.iter().filter_map(|name| {
            let place = known.get(&**name).copied();
            if place.is_none() {
                faults.add("flow_names", format!("unknown flow {name:?}"));
            }
            place
        });
        let places: Vec<usize> = if names.is_empty() { (0..self.running.len()).collect() } else { places.collect() };
        if faults.is_empty() { Ok(places) } else { Err(faults) }
    }

    /// Returns the indices of all flows by name.
    pub(super) fn by_name(&self) -> HashMap<&str, usize> {
        self.config.flows.iter().enumerate().map(|(at, flow)| (flow.name.as_str(), at)).collect()
    }

    /// Returns the indices of ports of the configuration by name, or of all ports.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn ports(&self, names: &[String]) -> Result<Vec<usize>, Faults> {
        let mut faults = Faults::default();
        let mut places = Vec::new();
        for name in names {
            match self.config.ports.iter().position(|port| port.name == *name) {
                Some(place) => places.push(place),
                None => faults.add("port_names", format!("unknown port {name:?}")),
            }
        }
        if names.is_empty() {
            places = (0..self.config.ports.len()).collect();
        }
        if faults.is_empty() { Ok(places) } else { Err(faults) }
    }
}
