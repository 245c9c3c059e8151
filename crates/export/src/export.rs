//! Destinations of records: the exporters and how a target selects one.

mod directory;
mod folder;
mod host;
mod hours;
mod network;
mod partial_file;
pub(crate) mod secure;
mod ship;
mod stream;
mod transport;

pub use self::secure::{Tls, is_secure};
#[doc(hidden)]
pub use self::ship::read_anything;
pub use self::ship::{DeliveryOptions, Lag, Sasl, is_shipped};
pub use self::transport::reconnects;

use crate::encode::{Format, Settings};
use crate::ipfix::Profile;
use linerate_burst::{Account, Ledger, Nanos};
use linerate_meter::{Flow, Level};
use linerate_pcap::Compression;
use std::fmt::{Debug, Formatter};
use std::io::{Error, ErrorKind, Result, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Writes records to a destination. It belongs to one thread, that of its queue, and never reads the clock.
pub trait Exporter: Send {
    /// Returns its name in the ledger.
    fn name(&self) -> &str;

    /// Returns the name of the format and the lowest level that fills all of its fields.
    fn format(&self) -> (&'static str, Level);

    /// Returns when it expects records.
    fn demand(&self) -> Demand;

    /// Returns the directory in which it creates files during the run.
    ///
    /// # Errors
    /// The directory cannot be opened a second time.
    fn made_in(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Checks for problems that would make writing fail later, before there are records.
    ///
    /// # Errors
    /// The problem found.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Writes records, in the order in which the flows ended.
    ///
    /// # Errors
    /// Writing failed for good: only [`finish`](Exporter::finish) may follow. `BrokenPipe`: the reader closed, which is not
    /// a failure.
    fn write(&mut self, flows: &[Flow], now: Nanos) -> Result<()>;

    /// Called at the interval of [`Demand::tick`], with or without records.
    ///
    /// # Errors
    /// Same as [`write`](Exporter::write).
    fn tick(&mut self, now: Nanos) -> Result<()> {
        let _ = now;
        Ok(())
    }

    /// Completes the current output and continues in a new one. Returns a message about the completed output; `None`
    /// where outputs cannot be rotated.
    ///
    /// # Errors
    /// Same as [`write`](Exporter::write).
    fn reopen(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Closes the output; no writes follow.
    ///
    /// # Errors
    /// The output cannot be completed.
    fn finish(&mut self, ending: Ending) -> Result<()>;

    /// Adds its counters: records written, and its own notes. The queue adds the losses.
    fn counters(&self, account: &mut Account);

    /// Adds the accounts of its own stages, after that of the export.
    fn accounts(&self, ledger: &mut Ledger) {
        let _ = ledger;
    }

    /// Returns a function that another thread calls when no more records follow: from then on, waits for the peer are
    /// limited.
    fn ending(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        None
    }

    /// Returns a function that reports the delivery lag during the run; only exporters with a spool have one.
    fn lag(&self) -> Option<Box<dyn Fn() -> Lag + Send>> {
        None
    }
}

/// When an exporter expects records and ticks.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Flush threshold in bytes; a full queue flushes earlier.
    pub bytes: usize,
    /// Maximum age of the oldest record before a flush.
    pub age: Duration,
    /// Approximate maximum interval between ticks.
    pub tick: Option<Duration>,
}

/// Outcome of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All records were written.
    Complete,
    /// A write failed: the records written so far are kept as far as they are readable.
    Failed,
    /// The run failed before the first record: earlier files stay as if nothing had been opened.
    Abandoned,
}

/// Export options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Format of records; `None`: derived from the target.
    pub format: Option<&'static Format>,
    /// Compression of line formats where the file name does not select one.
    pub compression: Option<Compression>,
    /// Profile for IPFIX and NetFlow v9.
    pub profile: Profile,
    /// Rotation interval of directories: the longest time until a record is in a complete file.
    pub rotate: Duration,
    /// True to add to a directory that already has records.
    pub append: bool,
    /// Number of threads per target that build columns and batches; it does not change the output.
    pub threads: usize,
    /// Opens standard output, which the program may also use itself.
    pub standard_output: Option<fn() -> Box<dyn Write + Send>>,
    /// TLS files for the targets that use it.
    pub tls: Tls,
    /// Delivery options for brokers and databases.
    pub ship: DeliveryOptions,
    /// Receives notices from other threads: the peer is unreachable, a batch was rejected.
    pub notify: Option<fn(String)>,
    /// Returns whether waits for peers should end, as the user asked to stop at once.
    pub is_forced: Option<fn() -> bool>,
    /// Counters that collectors get in addition to records.
    pub observed: Observed,
}

/// Returns the number of packets lost before metering, and of packets ignored.
#[derive(Clone)]
pub struct Observed(pub Arc<dyn Fn() -> [u64; 2] + Send + Sync>);

impl Default for Observed {
    fn default() -> Self {
        Observed(Arc::new(|| [0; 2]))
    }
}

impl Debug for Observed {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Observed").field(&(self.0)()).finish()
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            format: None,
            compression: None,
            profile: Profile::default(),
            rotate: Duration::from_secs(60),
            append: false,
            threads: 1,
            standard_output: None,
            tls: Tls::default(),
            ship: DeliveryOptions::default(),
            notify: None,
            is_forced: None,
            observed: Observed::default(),
        }
    }
}

impl Options {
    fn settings(&self) -> Settings {
        Settings { profile: self.profile, threads: self.threads }
    }
}

/// Kind of destination.
pub struct DestinationKind {
    /// Syntax of its targets.
    pub usage: &'static str,
    /// Returns whether a target is of this kind.
    is: fn(&str) -> bool,
    open: fn(&str, &Options) -> Result<Box<dyn Exporter>>,
}

/// All kinds of destinations; the first that matches a target is used.
pub const PLACES: &[DestinationKind] = &[
    DestinationKind { usage: "-", is: |target| target == "-", open: stream::standard_output },
    DestinationKind { usage: "FILE", is: |target| scheme(target).is_none() && !is_folder(target), open: stream::file },
    DestinationKind { usage: "DIR/", is: |target| scheme(target).is_none(), open: folder::open },
    DestinationKind { usage: IPFIX_UDP, is: |target| scheme(target) == Some("ipfix+udp"), open: network::ipfix_udp },
    DestinationKind { usage: IPFIX_TCP, is: |target| scheme(target) == Some("ipfix+tcp"), open: network::ipfix_tcp },
    DestinationKind { usage: IPFIX_TLS, is: |target| scheme(target) == Some("ipfix+tls"), open: network::ipfix_tls },
    DestinationKind { usage: NETFLOW9, is: |target| scheme(target) == Some("netflow9+udp"), open: network::netflow9 },
    DestinationKind {
        usage: KAFKA,
        is: |target| matches!(scheme(target), Some("kafka" | "kafka+tls")),
        open: ship::open,
    },
    DestinationKind {
        usage: CLICKHOUSE,
        is: |target| matches!(scheme(target), Some("clickhouse" | "clickhouse+https")),
        open: ship::open,
    },
];

const IPFIX_UDP: &str = "ipfix+udp://HOST:PORT";
const IPFIX_TCP: &str = "ipfix+tcp://HOST:PORT";
const IPFIX_TLS: &str = "ipfix+tls://HOST:PORT";
const NETFLOW9: &str = "netflow9+udp://HOST:PORT";
const KAFKA: &str = "kafka[+tls]://HOST:PORT/TOPIC";
const CLICKHOUSE: &str = "clickhouse[+https]://HOST:PORT/TABLE";

/// Returns whether a target is a remote collector, broker or database.
pub fn is_collector(target: &str) -> bool {
    scheme(target).is_some()
}

/// Opens the exporter of each target.
///
/// # Errors
/// `InvalidInput`: a target is invalid or given twice. Others: a target cannot be opened. On an error nothing remains
/// open.
pub fn open(targets: &[impl AsRef<str>], options: &Options) -> Result<Vec<Box<dyn Exporter>>> {
    check(targets, options)?;
    let mut exporters = Vec::new();
    for target in targets.iter().map(AsRef::as_ref) {
        match place(target).and_then(|place| (place.open)(target, options)) {
            Ok(exporter) => exporters.push(exporter),
            Err(error) => {
                abandon(exporters);
                return Err(error);
            }
        }
    }
    Ok(exporters)
}

/// Checks all targets and their formats without opening them.
///
/// # Errors
/// `InvalidInput`, as for [`open`].
pub fn check(targets: &[impl AsRef<str>], options: &Options) -> Result<()> {
    let targets: Vec<&str> = targets.iter().map(AsRef::as_ref).collect();
    for (index, target) in targets.iter().enumerate() {
        place(target)?;
        if is_shipped(target) {
            ship::check(target, options)?;
        } else if let Some(scheme) = scheme(target) {
            check_collector(target, scheme, options)?;
        } else {
            let format = match is_folder(target) {
                true => options.format.unwrap_or_else(Format::of_folder),
                false => Format::of_path(target, options.format)?.0,
            };
            if options.compression.is_some() && !format.lines {
                let text = format!("{target}: {} compresses its columns itself; remove --compress", format.name);
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
        }
        if targets[..index].contains(target) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{target}: named twice; name each output once")));
        }
    }
    Ok(())
}

/// Checks that a collector supports the `options`.
fn check_collector(target: &str, scheme: &str, options: &Options) -> Result<()> {
    let wrong = |text: String| Err(Error::new(ErrorKind::InvalidInput, format!("{target}: {text}")));
    host::host_and_port(target, 1)?;
    let Profile { biflow, full, .. } = options.profile;
    match scheme {
        "netflow9+udp" if biflow || full => {
            wrong("NetFlow v9 does not support --ipfix biflow and full; use an ipfix target".into())
        }
        _ => match options.format {
            Some(format) if format.name != "ipfix" => {
                wrong(format!("collectors do not support {}; remove --format or use another output", format.name))
            }
            _ => Ok(()),
        },
    }
}

/// Discards opened exporters before any record was written.
pub fn abandon(exporters: Vec<Box<dyn Exporter>>) {
    for mut exporter in exporters {
        // The reason is already reported.
        let _ = exporter.finish(Ending::Abandoned);
    }
}

fn place(target: &str) -> Result<&'static DestinationKind> {
    let meant = match target {
        "null" => Some("writes no records".to_owned()),
        _ => target.parse::<SocketAddr>().ok().map(|_| format!("needs a scheme, as in ipfix+udp://{target}")),
    };
    if let Some(meant) = meant {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{target}: {meant}; write ./{target} for a file")));
    }
    PLACES.iter().find(|place| !target.is_empty() && (place.is)(target)).ok_or_else(|| {
        let usages: Vec<&str> = PLACES.iter().map(|place| place.usage).collect();
        let text = format!("{target:?}: unsupported destination; expected one of {}", usages.join(", "));
        Error::new(ErrorKind::InvalidInput, text)
    })
}

/// Returns the scheme before `://`: a target with a scheme is not a path.
fn scheme(target: &str) -> Option<&str> {
    let (scheme, _) = target.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(scheme)
}

/// Returns whether a target is a directory, existing or to be created.
pub fn is_folder(target: &str) -> bool {
    target.ends_with('/') || Path::new(target).is_dir()
}

/// Sorts flows by the time of the first packet.
fn in_order(flows: &[Flow]) -> Vec<&Flow> {
    let mut keyed: Vec<(u64, u64, &Flow)> = flows.iter().map(|flow| (flow.first().0, flow.id, flow)).collect();
    keyed.sort_unstable_by_key(|(time, id, _)| (*time, *id));
    keyed.into_iter().map(|(_, _, flow)| flow).collect()
}

fn at(path: &Path, what: &str, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_has_one_location() {
        for (target, usage) in [
            ("-", "-"),
            ("a.jsonl", "FILE"),
            ("/dev/null", "FILE"),
            ("./a://b", "FILE"),
            ("new/", "DIR/"),
            ("/", "DIR/"),
            ("netflow9+udp://a:1", NETFLOW9),
            ("ipfix+tls://a", IPFIX_TLS),
            ("kafka://a,b:1/c", KAFKA),
            ("kafka+tls://a/c", KAFKA),
            ("clickhouse+https://a/b", CLICKHOUSE),
            ("clickhouse://a/b", CLICKHOUSE),
        ] {
            assert_eq!(place(target).unwrap().usage, usage, "{target}");
        }
        for target in ["", "amqp://host/topic", "file:///a/"] {
            let error = check(&[target], &Options::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("expected one of -, FILE, DIR/, ipfix+udp"), "{error}");
        }
        assert!(check(&["a", "b", "a"], &Options::default()).unwrap_err().to_string().contains("a: named twice"));
        check(&["a", "a/", "ipfix+udp://[::1]:4739"], &Options::default()).unwrap();
    }

    #[test]
    fn failed_open_leaves_no_files() {
        let folder = crate::tests::scratch("abandoned");
        let [good, bad] = ["a.jsonl", "nowhere/b.jsonl"].map(|name| folder.join(name).to_str().unwrap().to_owned());
        let error = open(&[good, bad], &Options::default()).err().unwrap().to_string();
        assert!(error.contains("nowhere"), "{error}");
        assert!(open(&["-"], &Options::default()).is_err(), "standard output is not configured");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
