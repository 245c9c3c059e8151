//! Input other than packets: flow records, another run.

use super::InputArgs;
#[cfg(feature = "tui")]
use super::{ReceiveArgs, span};
use crate::exit::usage;
use std::path::Path;
#[cfg(feature = "tui")]
use std::time::Duration;

impl InputArgs {
    /// Refuses flow records where packets are read.
    pub(crate) fn refuse_records(&self) -> anyhow::Result<()> {
        let mut all = self.ports.iter().chain(&self.read).chain(self.words.first());
        let is_directory = |path: &str| self.ports.iter().any(|port| port == path) && Path::new(path).is_dir();
        let is_stored = |path: &str| path.ends_with(".parquet") || is_directory(path);
        let is_sent =
            |path: &str| path.starts_with("ipfix://") || path.starts_with("ipfix+tls://") || path.ends_with(".ipfix");
        match all.find(|name| is_stored(name) || is_sent(name)) {
            Some(name) if is_sent(name) => {
                Err(usage(format!("{name}: not a port; linerate collect {name} reads records of exporters")))
            }
            Some(name) => Err(usage(format!("{name}: not a port; linerate query {name} reads stored records"))),
            None => Ok(()),
        }
    }

    /// Returns the first port, as given.
    #[cfg(feature = "tui")]
    pub(crate) fn first_name(&self) -> Option<&str> {
        self.ports.iter().chain(&self.words).next().map(String::as_str)
    }

    /// Checks the other options if another run is shown; returns the filter of its flows, and the duration.
    #[cfg(feature = "tui")]
    pub(crate) fn attached(&self) -> anyhow::Result<(String, Option<Duration>)> {
        let given = [
            ("--port", !self.ports.is_empty()),
            ("--read", !self.read.is_empty()),
            ("--packets", self.packets.is_some()),
            ("--direction", self.direction.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|given| given.1) {
            return Err(usage(format!("{option} has no effect with --from: the other run receives")));
        }
        let filter = match (&self.filter, &self.words[..]) {
            (Some(_), [word, ..]) => {
                return Err(usage(format!("filter given twice: with --filter and as {word:?}; leave one out")));
            }
            (Some(text), []) => text.clone(),
            (None, words) => words.join(" "),
        };
        let duration = self.duration.map(|s| span("--duration", s)).transpose()?;
        Ok((filter, duration))
    }
}

#[cfg(feature = "tui")]
impl ReceiveArgs {
    /// Returns a given option of reception.
    pub(crate) fn of_ports(&self) -> Option<&'static str> {
        [("--take", self.take), ("--spin", self.spin), ("--sleep", self.sleep)]
            .into_iter()
            .find_map(|(option, is_given)| is_given.then_some(option))
    }
}
