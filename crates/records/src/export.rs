//! Where records go: what takes them there, and which of those a target asks for.

mod directory;
mod folder;
mod host;
mod hours;
mod line;
mod network;
mod part;
pub(crate) mod secure;
mod ship;
mod stream;

pub use self::line::reconnects;
pub use self::secure::{Tls, is_secure};
#[doc(hidden)]
pub use self::ship::read_anything;
pub use self::ship::{Lag, Sasl, Shipping, is_shipped};

use crate::encode::{Format, Settings};
use crate::ipfix::Profile;
use linerate_burst::{Account, Ledger, Nanos};
use linerate_meter::{Flow, Level};
use linerate_record::Compression;
use std::fmt::{Debug, Formatter};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Takes records somewhere. It belongs to one thread, that of its queue, and never reads a clock.
pub trait Exporter: Send {
    /// What it is called in the ledger.
    fn name(&self) -> &str;

    /// What records are written as, and the least level at which all that it has a place for is recorded.
    fn format(&self) -> (&'static str, Level);

    /// When it wants records.
    fn demand(&self) -> Demand;

    /// The folder that it makes files in while it runs.
    ///
    /// # Errors
    /// No other handle to the folder is to be had.
    fn made_in(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Finds out what would hinder it later, before there are records.
    ///
    /// # Errors
    /// Say what does.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Writes records, in the order in which flows ended.
    ///
    /// # Errors
    /// Nothing more can be written: it is only to be finished. `BrokenPipe`: nobody wants more, which is no failure.
    fn write(&mut self, flows: &[Flow], now: Nanos) -> Result<()>;

    /// Time has gone on, as often as [`Demand::tick`] asks for, whether there are records or not.
    ///
    /// # Errors
    /// As of [`write`](Exporter::write).
    fn tick(&mut self, now: Nanos) -> Result<()> {
        let _ = now;
        Ok(())
    }

    /// Completes what was written so far, and goes on in something new. Says what is complete, for people; `None` where nothing
    /// can be.
    ///
    /// # Errors
    /// As of [`write`](Exporter::write).
    fn reopen(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Ends what is open; nothing is written afterwards.
    ///
    /// # Errors
    /// Something cannot be completed.
    fn finish(&mut self, ending: Ending) -> Result<()>;

    /// Adds what has become of records: how many are written, and notes of its own. What is lost, its queue adds.
    fn counters(&self, account: &mut Account);

    /// Adds accounts of stages of its own, behind that of the export.
    fn accounts(&self, ledger: &mut Ledger) {
        let _ = ledger;
    }

    /// What is called by another thread once no more records come: who waits for others waits no longer than is reasonable then.
    fn ending(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        None
    }

    /// What tells how far behind the other side is, while it runs; of who keeps records until they are delivered.
    fn lag(&self) -> Option<Box<dyn Fn() -> Lag + Send>> {
        None
    }
}

/// When an exporter wants records, and to be told the time.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// As soon as they occupy so many bytes, or there is no more room.
    pub bytes: usize,
    /// As soon as the first of them has waited so long.
    pub age: Duration,
    /// How often it is told the time, at least about so often.
    pub tick: Option<Duration>,
}

/// How an export ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All that came was written.
    Complete,
    /// Something could not be written: what was stays as far as somebody can read it.
    Failed,
    /// The run failed before there was a record: what was there before stays, as if nothing had been opened.
    Abandoned,
}

/// What can be chosen.
#[derive(Clone, Debug)]
pub struct Options {
    /// What records are written as; `None`: what the target says.
    pub format: Option<&'static Format>,
    /// How lines are compressed where their name does not say it.
    pub compression: Option<Compression>,
    /// What is told by IPFIX and NetFlow v9.
    pub profile: Profile,
    /// How long records of a folder gather at most before they are in a complete file.
    pub rotate: Duration,
    /// Whether a folder that has records already is added to.
    pub append: bool,
    /// Threads that make columns and batches, of each target; the file is the same for any number.
    pub threads: usize,
    /// How standard output is had, of which a program may want to know itself.
    pub standard_output: Option<fn() -> Box<dyn Write + Send>>,
    /// Files for TLS, of targets that are spoken with by it.
    pub tls: Tls,
    /// How records go to a broker or a database.
    pub ship: Shipping,
    /// Is told by other threads what people may want to know at once: the other side is away, a batch was refused.
    pub told: Option<fn(String)>,
    /// Whether the other side is not to be waited for any more, as somebody is in a hurry.
    pub is_hurried: Option<fn() -> bool>,
    /// What no record tells of, of which collectors are told.
    pub observed: Observed,
}

/// Says how many packets were lost before they could be metered, and how many were passed over.
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
            ship: Shipping::default(),
            told: None,
            is_hurried: None,
            observed: Observed::default(),
        }
    }
}

impl Options {
    fn settings(&self) -> Settings {
        Settings { profile: self.profile, threads: self.threads }
    }
}

/// One kind of place that records go to.
pub struct Place {
    /// How such a target is written.
    pub usage: &'static str,
    /// Whether a target is one.
    is: fn(&str) -> bool,
    /// Opens it.
    open: fn(&str, &Options) -> Result<Box<dyn Exporter>>,
}

/// All there are, a row each; the first that knows a target takes it.
pub const PLACES: &[Place] = &[
    Place { usage: "-", is: |target| target == "-", open: stream::standard_output },
    Place { usage: "FILE", is: |target| scheme(target).is_none() && !is_folder(target), open: stream::file },
    Place { usage: "DIR/", is: |target| scheme(target).is_none(), open: folder::open },
    Place { usage: IPFIX_UDP, is: |target| scheme(target) == Some("ipfix+udp"), open: network::ipfix_udp },
    Place { usage: IPFIX_TCP, is: |target| scheme(target) == Some("ipfix+tcp"), open: network::ipfix_tcp },
    Place { usage: IPFIX_TLS, is: |target| scheme(target) == Some("ipfix+tls"), open: network::ipfix_tls },
    Place { usage: NETFLOW9, is: |target| scheme(target) == Some("netflow9+udp"), open: network::netflow9 },
    Place { usage: KAFKA, is: |target| matches!(scheme(target), Some("kafka" | "kafka+tls")), open: ship::open },
    Place {
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

/// Whether a target is a collector, a broker or a database, elsewhere.
pub fn is_collector(target: &str) -> bool {
    scheme(target).is_some()
}

/// Opens what each target means.
///
/// # Errors
/// `InvalidInput`: no place is like that, or one is named twice. Others: it cannot be opened. Nothing is left behind.
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

/// Finds out whether there is a place for each target, and what is written there by its name or as `options` say, without opening any.
///
/// # Errors
/// As `InvalidInput` of [`open`].
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
                let text = format!("{target}: {} compresses its columns itself; --compress is for lines", format.name);
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
        }
        if targets[..index].contains(target) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{target}: named twice")));
        }
    }
    Ok(())
}

/// Finds out whether a collector gets what `options` ask for.
fn check_collector(target: &str, scheme: &str, options: &Options) -> Result<()> {
    let wrong = |text: String| Err(Error::new(ErrorKind::InvalidInput, format!("{target}: {text}")));
    host::host_and_port(target, 1)?;
    let Profile { biflow, full, .. } = options.profile;
    match scheme {
        "netflow9+udp" if biflow || full => wrong(
            "NetFlow v9 has no reverse elements and none of enterprises: --ipfix biflow and full are for IPFIX".into(),
        ),
        _ => match options.format {
            Some(format) if format.name != "ipfix" => {
                wrong(format!("a collector takes no {}: leave --format out, or write that elsewhere", format.name))
            }
            _ => Ok(()),
        },
    }
}

/// Takes away what was made for records, as there will be none.
pub fn abandon(exporters: Vec<Box<dyn Exporter>>) {
    for mut exporter in exporters {
        // Why there will be none is told already.
        let _ = exporter.finish(Ending::Abandoned);
    }
}

fn place(target: &str) -> Result<&'static Place> {
    PLACES.iter().find(|place| !target.is_empty() && (place.is)(target)).ok_or_else(|| {
        let usages: Vec<&str> = PLACES.iter().map(|place| place.usage).collect();
        Error::new(
            ErrorKind::InvalidInput,
            format!("{target:?}: records go to none such; there are {}", usages.join(", ")),
        )
    })
}

/// What stands before `://`: such a target is no path.
fn scheme(target: &str) -> Option<&str> {
    let (scheme, _) = target.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(scheme)
}

/// Whether a target is a folder, there or to be made.
pub fn is_folder(target: &str) -> bool {
    target.ends_with('/') || Path::new(target).is_dir()
}

/// By the time of the first packet.
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
    fn a_target_is_of_one_place() {
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
            assert!(error.to_string().contains("there are -, FILE, DIR/, ipfix+udp"), "{error}");
        }
        assert!(check(&["a", "b", "a"], &Options::default()).unwrap_err().to_string().contains("a: named twice"));
        check(&["a", "a/", "ipfix+udp://[::1]:4739"], &Options::default()).unwrap();
    }

    #[test]
    fn what_was_opened_before_one_that_cannot_be_leaves_nothing() {
        let folder = crate::tests::scratch("abandoned");
        let [good, bad] = ["a.jsonl", "nowhere/b.jsonl"].map(|name| folder.join(name).to_str().unwrap().to_owned());
        let error = open(&[good, bad], &Options::default()).err().unwrap().to_string();
        assert!(error.contains("nowhere"), "{error}");
        assert!(open(&["-"], &Options::default()).is_err(), "nobody said how");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
