//! Brokers and databases: batches of records are spooled on disk until the destination has each exactly once.
//!
//! ```text
//!  queue thread:   collect -> sort -> batch (form) -> spool: file, name, journal line on disk
//!  sender thread:  spool, oldest first -> destination (kafka, clickhouse) -> acknowledged: journal line, file removed
//! ```
//!
//! - `batches`: encoding of flows into batches; `options`: options; `link`, `http`: connections with timeouts;
//! - `spool`, `journal`: the state on disk, and recovery after a crash;
//! - `sender`: sends a few batches at a time and retries until the outcome of each is known;
//! - `clickhouse`, `kafka`: deduplication of a batch that is sent twice.

mod batches;
mod clickhouse;
mod clock;
mod form;
mod http;
mod journal;
mod kafka;
mod link;
mod options;
mod sender;
mod spool;
mod state;
mod target;
#[cfg(test)]
mod tests;

pub use self::options::{DeliveryOptions, Sasl};
pub use self::spool::Lag;

use self::batches::DroppedBatches;
use self::clock::Clock;
use self::form::{FORMS, Form, halves};
use self::link::RunDeadline;
use self::sender::Sender;
use self::spool::{Spool, Terms};
use self::state::SpooledBatch;
use self::target::{folder_of, target};
use super::directory::Directory;
use super::secure::{Secure, is_secure};
use super::{Demand, Ending, Exporter, Options, at, in_order};
use crate::encode::Format;
use linerate_burst::{Account, Count, Ledger, Nanos, Stage, input};
use linerate_headers::Crc32c;
use linerate_meter::{Flow, Level};
use rustix::fs::fstat;
use rustix::time::{ClockId, clock_gettime};
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum message size in bytes: the default limit of brokers is 1,048,588, including headers.
const MOST_OF_MESSAGE: usize = 900_000;
/// Maximum bytes read from a password file.
const MOST_OF_PASSWORD: u64 = 64 << 10;
/// Tick interval: batches left by an earlier run are sent after the first tick.
const TICK: Duration = Duration::from_millis(100);
/// Waits of this length are reported, with their cause.
const SOON: Duration = Duration::from_secs(1);

/// Receiver of batches.
trait Destination: Send {
    /// Returns the maximum number of batches in flight.
    fn window(&self) -> usize;

    /// Sends a batch; [`end`](Destination::end) returns the outcome.
    fn begin(&mut self, spool: &Spool, waiting: &SpooledBatch, bytes: &[u8]) -> std::result::Result<(), Refusal>;

    /// Waits for the outcome of the oldest batch in flight, which is `waiting`. Batches not taken are sent again.
    fn end(&mut self, spool: &Spool, waiting: &SpooledBatch) -> std::result::Result<(), Refusal>;

    /// Called after a failure when no batches are in flight.
    ///
    /// # Errors
    /// The journal cannot be written.
    fn settle(&mut self, spool: &Spool) -> Result<()>;
}

/// Reason why a batch was not accepted.
#[derive(Debug)]
enum Refusal {
    /// Temporary: it is sent again later.
    Later(String),
    /// A previous batch was not accepted: it is sent again at once.
    Again,
    /// It is too long: it is split.
    TooLong(String),
    /// It spans too many days or partitions: it is split, but other batches may keep their length.
    TooMixed(String),
    /// This batch is rejected for good.
    Never(String),
    /// All batches are blocked until the reported error is fixed.
    NeedsFix(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error.kind() {
            // Errors of our own, not of the operating system.
            ErrorKind::Unsupported | ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                Refusal::NeedsFix(error.to_string())
            }
            _ => Refusal::Later(error.to_string()),
        }
    }
}

/// Returns whether a target uses a spool.
pub fn is_shipped(target: &str) -> bool {
    matches!(super::scheme(target), Some("kafka" | "kafka+tls" | "clickhouse" | "clickhouse+https"))
}

/// Checks that a target and the options are compatible.
pub(super) fn check(name: &str, options: &Options) -> Result<()> {
    let target = target(name)?;
    let wrong = |text: &str| Err(Error::new(ErrorKind::InvalidInput, format!("{name}: {text}")));
    let named = |error: Error| Error::new(error.kind(), format!("{name}: {error}"));
    if name.starts_with("kafka") { kafka::topic(&target) } else { clickhouse::table(&target) }.map_err(named)?;
    form(name, options).map_err(named)?;
    match &options.ship {
        ship if ship.spool.is_none() => wrong("batches need a spool on disk; set --ship spool=DIR"),
        _ if options.compression.is_some() => wrong("batches have their own compression; remove --compress"),
        ship if name.starts_with("kafka") && target.user.is_some() != ship.sasl.is_some() => wrong(
            "Kafka SASL needs a user and a mechanism; use kafka+tls://USER@HOST/TOPIC and --ship sasl=scram-sha-512",
        ),
        ship if ship.sasl.is_some() && !name.starts_with("kafka") => {
            wrong("sasl= applies only to Kafka; for ClickHouse use USER@ and --ship password=FILE")
        }
        ship if ship.sasl == Some(Sasl::Plain) && !is_secure(name) => {
            wrong("sasl=plain sends the password in clear text; use kafka+tls:// or sasl=scram-sha-256")
        }
        ship if name.starts_with("clickhouse://") && !target.is_loopback() && clickhouse::has_secret(&target, ship) => {
            wrong("user and password would be sent in clear text; use clickhouse+https://, or a server on this host")
        }
        #[cfg(not(feature = "tls"))]
        ship if ship.sasl.is_some() || is_secure(name) => super::secure::without(),
        ship if ship.window.is_some() && name.starts_with("kafka") => {
            wrong("window= applies only to ClickHouse; Kafka identifies batches by sequence number")
        }
        _ if name.starts_with("clickhouse") && target.hosts.len() > 1 => {
            wrong("more than one host; ClickHouse deduplicates batches per server, so name one")
        }
        _ => Ok(()),
    }
}

pub(super) fn open(name: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    Ok(Box::new(ship(name, options)?))
}

fn ship(name: &str, options: &Options) -> Result<BatchExporter> {
    ship_by(name, options, Clock::new())
}

fn ship_by(name: &str, options: &Options, clock: Clock) -> Result<BatchExporter> {
    check(name, options)?;
    super::transport::allow_reconnects();
    let (target, form, ship) = (target(name)?, form(name, options)?, &options.ship);
    let root = ship.spool.as_deref().unwrap_or(Path::new("."));
    let path = root.join(folder_of(name));
    let folder = Directory::make(&path).map_err(|error| at(&path, "cannot create directory", error))?;
    let (notify, is_kafka) = (options.notify.unwrap_or(drop), name.starts_with("kafka"));
    let terms = Terms { most: ship.most, has_numbers: is_kafka, clock, notify };
    let spool = Spool::open(folder, terms).map_err(|error| at(&path, "cannot open spool", error))?;
    let over = RunDeadline::new(options.is_forced);
    let password = ship.password.as_deref().map(password).transpose()?;
    let secure = Secure::of(name, &options.tls)?;
    let destination: Box<dyn Destination> = if is_kafka {
        Box::new(kafka::Kafka::new(&target, ship, over.clone(), kafka::Access::of(&target, ship, password, secure)?)?)
    } else {
        Box::new(clickhouse::ClickHouse::new(name, &target, ship, password, over.clone(), &secure)?)
    };
    let spool = Arc::new(spool);
    let sender = Sender::new(name, Arc::clone(&spool), destination, over.clone(), notify);
    Ok(BatchExporter {
        name: name.to_owned(),
        form,
        ship: ship.clone(),
        rows: ship.rows.unwrap_or(if is_kafka { 8192 } else { 1 << 16 }),
        age: ship.age.unwrap_or(Duration::from_secs(if is_kafka { 1 } else { 5 })),
        most: if is_kafka { MOST_OF_MESSAGE } else { usize::MAX },
        threads: options.threads.max(1),
        fits: usize::MAX,
        spool,
        sender,
        over,
        notify,
        run: RandomState::new().hash_one(std::process::id()),
        number: 0,
        spooled: 0,
        no_room: 0,
        waited: Duration::ZERO,
        gone: None,
    })
}

struct BatchExporter {
    name: String,
    form: Form,
    ship: DeliveryOptions,
    rows: usize,
    age: Duration,
    most: usize,
    /// Number of threads that build batches.
    threads: usize,
    /// Largest number of records known to fit into a batch.
    fits: usize,
    spool: Arc<Spool>,
    sender: Sender,
    over: RunDeadline,
    notify: fn(String),
    run: u64,
    /// Number of the next batch.
    number: u64,
    spooled: u64,
    no_room: u64,
    /// Time spent waiting for free space.
    waited: Duration,
    /// Dropped batches.
    gone: Option<DroppedBatches>,
}

impl BatchExporter {
    /// Reports a wait for the destination, and how to end it.
    fn report_waiting(&self) {
        let since = Instant::now();
        while !self.spool.is_empty() && !self.over.has_passed() {
            if since.elapsed() >= SOON {
                let (records, left) = (self.spool.lag().records, self.over.left().unwrap_or_default().as_secs());
                (self.notify)(format!(
                    "{}: {records} records undelivered; waiting up to {left} s; press Ctrl-C twice to keep them in {}",
                    self.name,
                    self.spool.path().display()
                ));
                return;
            }
            self.spool.wait(TICK);
        }
    }
}

impl Exporter for BatchExporter {
    fn name(&self) -> &str {
        &self.name
    }

    fn format(&self) -> (&'static str, Level) {
        match self.form {
            Form::RowBinary => ("RowBinary", Level::Counters),
            form => (form.name(), Level::Stats),
        }
    }

    fn demand(&self) -> Demand {
        Demand { bytes: self.rows.saturating_mul(size_of::<Flow>()), age: self.age, tick: Some(TICK) }
    }

    fn made_in(&self) -> Result<Option<OwnedFd>> {
        self.spool.as_fd().try_clone_to_owned().map(Some)
    }

    fn check(&self) -> Result<()> {
        self.spool.check()
    }

    fn write(&mut self, flows: &[Flow], _: Nanos) -> Result<()> {
        self.sender.start()?;
        let sorted = in_order(flows);
        for lane in 0..self.ship.lanes {
            let own = |flow: &&Flow| flow.id % u64::from(self.ship.lanes) == u64::from(lane);
            let of_lane: Vec<&Flow> = sorted.iter().copied().filter(own).collect();
            self.put(&of_lane, lane).map_err(|error| at(self.spool.path(), "cannot write batch", error))?;
        }
        self.sender.failure()
    }

    fn tick(&mut self, _: Nanos) -> Result<()> {
        self.sender.start()?;
        self.sender.failure()
    }

    fn ending(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        let (over, spool, end) = (self.over.clone(), Arc::clone(&self.spool), self.ship.end);
        Some(Box::new(move || {
            over.after(end);
            spool.wake();
        }))
    }

    fn lag(&self) -> Option<Box<dyn Fn() -> Lag + Send>> {
        let spool = Arc::clone(&self.spool);
        Some(Box::new(move || spool.lag()))
    }

    fn finish(&mut self, ending: Ending) -> Result<()> {
        self.over.after(if ending == Ending::Abandoned { Duration::ZERO } else { self.ship.end });
        if ending == Ending::Complete && !self.spool.is_empty() {
            self.sender.start()?;
        }
        self.spool.wake();
        self.report_waiting();
        self.sender.end()
    }

    fn counters(&self, account: &mut Account) {
        account.add(Count::Exported, self.spooled).add(Count::ExportNoRoom, self.no_room);
        account.add(Count::ExportWaitedMs, self.waited.as_millis().try_into().unwrap_or(u64::MAX));
    }

    fn accounts(&self, ledger: &mut Ledger) {
        let (tally, lag) = (self.spool.tally(), self.spool.lag());
        let account = ledger.account(Stage::Deliver, &self.name);
        account.add(Count::DeliverReceived, tally.spooled + tally.resumed);
        account.add(Count::DeliverAcknowledged, tally.delivered).add(Count::DeliverWaiting, lag.records);
        account.add(Count::SpoolDropped, tally.dropped).add(Count::DeliverRefused, tally.refused);
        account.add(Count::SpoolDamaged, tally.damaged).add(Count::DeliverResumed, tally.resumed);
        account.add(Count::DeliverBatches, tally.batches).add(Count::DeliverResent, tally.resent);
        account.add(Count::MaybeDuplicated, tally.maybe_duplicated).add(Count::DeliverOutages, tally.outages);
        account.add(Count::DeliverAside, self.spool.aside()).add(Count::DeliverAsideDropped, tally.aside_dropped);
        account.add(Count::DeliverLagMs, lag.age.as_millis().try_into().unwrap_or(u64::MAX));
    }
}

/// Returns the encoding of batches for a target.
fn form(name: &str, options: &Options) -> Result<Form> {
    let wrong = |text: &str| Err(Error::new(ErrorKind::InvalidInput, text));
    let is_kafka = name.starts_with("kafka");
    match options.format.map(|format| format.name) {
        Some(_) if options.ship.rowbinary => wrong("--ship rowbinary sets the format; remove --format"),
        None if options.ship.rowbinary => Ok(Form::RowBinary),
        None | Some("parquet") if !Format::of_folder().lines => Ok(Form::Parquet),
        None if !is_kafka => wrong("this program was built without Parquet; use --ship rowbinary"),
        None | Some("jsonl") if is_kafka => Ok(Form::Json),
        _ if is_kafka => wrong("unsupported format for Kafka; expected parquet, jsonl or --ship rowbinary"),
        _ => wrong("unsupported format for ClickHouse; expected parquet, or --ship rowbinary before version 20"),
    }
}

/// Reads a password: the first line of a file.
fn password(path: &Path) -> Result<String> {
    let describe = |error: Error| at(path, "cannot read password", error);
    let file = input::open(path).map_err(describe)?;
    if fstat(&file).map_err(|error| describe(error.into()))?.st_mode & 0o007 != 0 {
        let path = path.display();
        let text = format!("{path}: password file is world-readable; run chmod o= {path}");
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    let mut text = String::new();
    file.take(MOST_OF_PASSWORD).read_to_string(&mut text).map_err(describe)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Parses bytes as all answers of peers and as journal lines, which must not panic. For fuzzing.
#[doc(hidden)]
pub fn read_anything(bytes: &[u8]) {
    http::read_anything(bytes);
    kafka::read_anything(bytes);
    form::read_anything(bytes);
    if let Some(line) = bytes.first_chunk() {
        let read = journal::Line::of(line);
        assert!(read.is_none_or(|read| journal::Line::of(&read.to_bytes()) == Some(read)));
    }
}

/// Returns the CRC-32C of bytes, for Kafka batches and spool files.
fn crc32c(bytes: &[u8]) -> u32 {
    Crc32c::NEW.with(bytes).value()
}

/// Returns the time in ns since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Returns ns since boot, including suspend.
fn up() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
