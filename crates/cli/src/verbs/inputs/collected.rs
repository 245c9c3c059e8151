//! Records that others have metered, where a verb reads frames otherwise.

use super::{InputArgs, ReceiveArgs, span};
use crate::exit::usage;
use crate::privileges::Identity;
use linerate_record::Compression;
use std::path::Path;
use std::time::Duration;

/// Where records come from that others have metered.
pub(in super::super) struct Collected {
    /// `HOST:PORT`, and whether by TLS.
    pub listen: Option<(String, bool)>,
    pub files: Vec<String>,
    pub duration: Option<Duration>,
}

/// Where records are stored, and which of them are meant.
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "it is refused"))]
pub(in super::super) struct Held {
    /// Folders and files.
    pub places: Vec<String>,
    pub filter: String,
}

impl InputArgs {
    /// Where stored records are (folders, files of Parquet), if that is what is read.
    pub(crate) fn held(&self) -> anyhow::Result<Option<Held>> {
        let is_file = |path: &str| path.to_ascii_lowercase().ends_with(".parquet");
        let is_stored = |path: &&String| {
            !path.contains("://") && (is_file(path) || path.ends_with('/') || Path::new(path).is_dir())
        };
        let places: Vec<String> = self.ports.iter().chain(&self.read).filter(is_stored).cloned().collect();
        if places.is_empty() {
            return Ok(None);
        }
        if places.len() < self.ports.len() + self.read.len() {
            return Err(usage("stored records (folders, .parquet) and frames cannot be read in one run"));
        }
        for (option, is_given) in [
            ("--frames", self.frames.is_some()),
            ("--duration", self.duration.is_some()),
            ("--direction", self.direction.is_some()),
        ] {
            if is_given {
                return Err(usage(format!(
                    "{option} means nothing here: records are stored, and no frame is received"
                )));
            }
        }
        let filter = match (&self.filter, &self.words[..]) {
            (Some(_), [word, ..]) => {
                return Err(usage(format!("filter text is given twice: with --filter and as {word:?}")));
            }
            (Some(text), []) => text.clone(),
            (None, words) => words.join(" "),
        };
        Ok(Some(Held { places, filter }))
    }

    /// Another run that is looked at (an address and port, or the path of a socket), if that is named as a port; which of its flows, and
    /// for how long.
    #[cfg(feature = "tui")]
    pub(crate) fn attached(&self) -> anyhow::Result<Option<(String, String, Option<Duration>)>> {
        let is_place = |name: &&String| crate::verbs::top::is_place(name);
        let places = self.ports.iter().filter(is_place).count();
        let [place] = &self.ports[..] else {
            let names_port = self.ports.is_empty() && self.read.is_empty();
            let run = self.words.first().filter(|word| names_port && is_place(word) && !Path::new(word).is_file());
            return match run {
                Some(run) => Err(usage(format!("{run}: the socket or address of a run, not a port; use --from {run}"))),
                None if places > 0 => Err(usage("one run is looked at at a time: name one by --from")),
                None => Ok(None),
            };
        };
        if places == 0 {
            return Ok(None);
        }
        let given = [
            ("--read", !self.read.is_empty()),
            ("--frames", self.frames.is_some()),
            ("--direction", self.direction.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|given| given.1) {
            return Err(usage(format!("{option} means nothing here: another run receives, and is looked at")));
        }
        let filter = match (&self.filter, &self.words[..]) {
            (Some(_), [word, ..]) => {
                return Err(usage(format!("filter text is given twice: with --filter and as {word:?}")));
            }
            (Some(text), []) => text.clone(),
            (None, words) => words.join(" "),
        };
        let duration = self.duration.map(|s| span("--duration", s)).transpose()?;
        Ok(Some((place.clone(), filter, duration)))
    }

    /// Where records of others come from (`ipfix://HOST:PORT`, `ipfix+tls://HOST:PORT`, files of IPFIX), if that is what is read.
    pub(crate) fn collected(&self) -> anyhow::Result<Option<Collected>> {
        let listen = |name: &String| {
            let plain = name.strip_prefix("ipfix://").map(|at| (at.to_owned(), false));
            plain.or_else(|| name.strip_prefix("ipfix+tls://").map(|at| (at.to_owned(), true)))
        };
        let is_file = |path: &&String| Compression::of_path(path).1.to_ascii_lowercase().ends_with(".ipfix");
        let mut places: Vec<(String, bool)> = self.ports.iter().filter_map(listen).collect();
        let files: Vec<String> = self.read.iter().filter(is_file).cloned().collect();
        places.extend(self.words.first().and_then(listen));
        if places.is_empty() && files.is_empty() {
            return Ok(None);
        }
        let others = self.ports.len() + self.read.len() + usize::from(!self.words.is_empty());
        if others != places.len() + files.len() {
            return Err(usage("records of others (ipfix://, .ipfix) and frames cannot be read in one run"));
        }
        if places.len() > 1 {
            return Err(usage("ipfix:// is listened at once; name one, as in ipfix://:4739"));
        }
        for (option, is_given) in [
            ("a filter", self.filter.is_some() || self.words.len() > 1),
            ("--frames", self.frames.is_some()),
            ("--direction", self.direction.is_some()),
        ] {
            if is_given {
                return Err(usage(format!("{option} means nothing here: there are records, and no frames")));
            }
        }
        let duration = self.duration.map(|s| span("--duration", s)).transpose()?;
        Ok(Some(Collected { listen: places.pop(), files, duration }))
    }
}

impl ReceiveArgs {
    /// The same where no port is opened.
    pub(crate) fn identity_of(&self, is_live: bool) -> anyhow::Result<Identity> {
        Identity::choose(self.user.as_deref(), is_live)
    }

    /// An option that was given and is about ports.
    pub(crate) fn of_ports(&self) -> Option<&'static str> {
        [("--take", self.take), ("--spin", self.spin), ("--sleep", self.sleep)]
            .into_iter()
            .find_map(|(option, is_given)| is_given.then_some(option))
    }
}
