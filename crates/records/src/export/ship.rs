//! Brokers and databases: batches of records that wait on the disk until the other side has them, each once.
//!
//! ```text
//!  queue's thread:  gather -> sort -> batch (form) -> spool: file, name, line in the journal on the disk
//!  own thread:      spool, oldest first -> destination (kafka, clickhouse) -> acknowledged: a line, the file goes
//! ```
//!
//! - `batches`: flows as batches of bytes; `words`: what can be chosen; `link`, `http`: connections that are never waited for without end;
//! - `spool`, `journal`: what lies on the disk, and what a death leaves there;
//! - `sender`: a few batches at a time, again and again until it is clear what became of each;
//! - `clickhouse`, `kafka`: how a batch that comes twice is told from two batches.

mod batches;
mod clickhouse;
mod clock;
mod form;
mod http;
mod journal;
mod kafka;
mod link;
mod sender;
mod spool;
mod state;
mod target;
#[cfg(test)]
mod tests;
mod words;

pub use self::spool::Lag;
pub use self::words::{Sasl, Shipping};

use self::batches::Gone;
use self::clock::Clock;
use self::form::{FORMS, Form, halves};
use self::link::Over;
use self::sender::Sender;
use self::spool::{Spool, Terms};
use self::state::Waiting;
use self::target::{folder_of, target};
use super::directory::Directory;
use super::secure::{Secure, is_secure};
use super::{Demand, Ending, Exporter, Options, at, in_order};
use crate::encode::Format;
use linerate_burst::{Account, Count, Ledger, Nanos, Stage, input};
use linerate_meter::{Flow, Level};
use linerate_wire::Crc32c;
use rustix::fs::fstat;
use rustix::time::{ClockId, clock_gettime};
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most bytes of a message: brokers take 1,048,588, headers and all, unless they are told otherwise.
const MOST_OF_MESSAGE: usize = 900_000;
/// The most that is read of a file with a password.
const MOST_OF_PASSWORD: u64 = 64 << 10;
/// How often the time is told: what an earlier run has left is sent as soon.
const TICK: Duration = Duration::from_millis(100);
/// Whoever waits for so long is told why.
const SOON: Duration = Duration::from_secs(1);

/// Who takes batches.
trait Destination: Send {
    /// How many may be under way at a time.
    fn window(&self) -> usize;

    /// Sends one; what became of it is asked for later.
    fn begin(&mut self, spool: &Spool, waiting: &Waiting, bytes: &[u8]) -> std::result::Result<(), Refusal>;

    /// Waits for what became of the oldest that is under way, which is this one. One that was not taken comes again.
    fn end(&mut self, spool: &Spool, waiting: &Waiting) -> std::result::Result<(), Refusal>;

    /// Something was not taken, and nothing is under way any more.
    ///
    /// # Errors
    /// That cannot be noted.
    fn settle(&mut self, spool: &Spool) -> Result<()>;
}

/// Why a batch was not taken.
#[derive(Debug)]
enum Refusal {
    /// It may be, later.
    Later(String),
    /// It was not, as one before it was not: it goes again at once.
    Again,
    /// It is too long: parts of it may be.
    TooLong(String),
    /// It is of too many days or so: parts of it may be, and others may be as long.
    TooMixed(String),
    /// This one never will be.
    Never(String),
    /// None will be until somebody mends what is said.
    ToMend(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error.kind() {
            // Not by the system.
            ErrorKind::Unsupported | ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                Refusal::ToMend(error.to_string())
            }
            _ => Refusal::Later(error.to_string()),
        }
    }
}

/// Whether records go to such a target by way of a spool.
pub fn is_shipped(target: &str) -> bool {
    matches!(super::scheme(target), Some("kafka" | "kafka+tls" | "clickhouse" | "clickhouse+https"))
}

/// Finds out whether a target and what was chosen go together.
pub(super) fn check(name: &str, options: &Options) -> Result<()> {
    let target = target(name)?;
    let wrong = |text: &str| Err(Error::new(ErrorKind::InvalidInput, format!("{name}: {text}")));
    let tell = |error: Error| Error::new(error.kind(), format!("{name}: {error}"));
    if name.starts_with("kafka") { kafka::topic(&target) } else { clickhouse::table(&target) }.map_err(tell)?;
    form(name, options).map_err(tell)?;
    match &options.ship {
        ship if ship.spool.is_none() => {
            wrong("batches wait on the disk until the other side has them: say where, by --ship spool=DIR")
        }
        _ if options.compression.is_some() => {
            wrong("batches are compressed already, or not at all; --compress is for files")
        }
        ship if name.starts_with("kafka") && target.user.is_some() != ship.sasl.is_some() => wrong(
            "who signs in to Kafka has a name, and a way: kafka+tls://USER@HOST/TOPIC, and --ship sasl=scram-sha-512 or so",
        ),
        ship if ship.sasl.is_some() && !name.starts_with("kafka") => {
            wrong("sasl= is for Kafka; ClickHouse has the user, and the password by --ship password=FILE")
        }
        ship if ship.sasl == Some(Sasl::Plain) && !is_secure(name) => {
            wrong("sasl=plain sends the password as it is: kafka+tls:// or sasl=scram-sha-256")
        }
        ship if name.starts_with("clickhouse://") && !target.is_loopback() && clickhouse::has_secret(&target, ship) => {
            wrong("user and password would be sent in clear text; use clickhouse+https://, or a server on this host")
        }
        #[cfg(not(feature = "tls"))]
        ship if ship.sasl.is_some() || is_secure(name) => super::secure::without(),
        ship if ship.window.is_some() && name.starts_with("kafka") => {
            wrong("window= is for ClickHouse; a broker knows a batch by its number for a day")
        }
        _ if name.starts_with("clickhouse") && target.hosts.len() > 1 => {
            wrong("name one host: a batch that may have come is known to be there by that one alone")
        }
        _ => Ok(()),
    }
}

pub(super) fn open(name: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    Ok(Box::new(ship(name, options)?))
}

fn ship(name: &str, options: &Options) -> Result<Ship> {
    ship_by(name, options, Clock::new())
}

fn ship_by(name: &str, options: &Options, clock: Clock) -> Result<Ship> {
    check(name, options)?;
    super::line::will_reconnect();
    let (target, form, ship) = (target(name)?, form(name, options)?, &options.ship);
    let root = ship.spool.as_deref().unwrap_or(Path::new("."));
    let path = root.join(folder_of(name));
    let folder = Directory::make(&path).map_err(|error| at(&path, "cannot be made", error))?;
    let (told, is_kafka) = (options.told.unwrap_or(drop), name.starts_with("kafka"));
    let terms = Terms { most: ship.most, has_numbers: is_kafka, clock, told };
    let spool = Spool::open(folder, terms).map_err(|error| at(&path, "cannot be used as a spool", error))?;
    let over = Over::new(options.is_hurried);
    let password = ship.password.as_deref().map(password).transpose()?;
    let secure = Secure::of(name, &options.tls)?;
    let destination: Box<dyn Destination> = if is_kafka {
        Box::new(kafka::Kafka::new(&target, ship, over.clone(), kafka::Access::of(&target, ship, password, secure)?)?)
    } else {
        Box::new(clickhouse::ClickHouse::new(name, &target, ship, password, over.clone(), &secure)?)
    };
    let spool = Arc::new(spool);
    let sender = Sender::new(name, Arc::clone(&spool), destination, over.clone(), told);
    Ok(Ship {
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
        told,
        run: RandomState::new().hash_one(std::process::id()),
        number: 0,
        spooled: 0,
        no_room: 0,
        waited: Duration::ZERO,
        gone: None,
    })
}

struct Ship {
    name: String,
    form: Form,
    ship: Shipping,
    rows: usize,
    age: Duration,
    most: usize,
    /// That make batches.
    threads: usize,
    /// Records that were not too many for a batch.
    fits: usize,
    spool: Arc<Spool>,
    sender: Sender,
    over: Over,
    told: fn(String),
    run: u64,
    /// Of the next batch.
    number: u64,
    spooled: u64,
    no_room: u64,
    /// For room.
    waited: Duration,
    /// What gave way.
    gone: Option<Gone>,
}

impl Ship {
    /// Says so if the other side is waited for, and how not to.
    fn tell_of_waiting(&self) {
        let since = Instant::now();
        while !self.spool.is_empty() && !self.over.is_now() {
            if since.elapsed() >= SOON {
                let (records, left) = (self.spool.lag().records, self.over.left().unwrap_or_default().as_secs());
                (self.told)(format!(
                    "{}: {records} records wait; the other side is waited for up to {left} s: two Ctrl-C leave them in {}",
                    self.name,
                    self.spool.path().display()
                ));
                return;
            }
            self.spool.wait(TICK);
        }
    }
}

impl Exporter for Ship {
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
            self.put(&of_lane, lane).map_err(|error| at(self.spool.path(), "no batch can be written", error))?;
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
        self.tell_of_waiting();
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

/// What batches for a target are written as.
fn form(name: &str, options: &Options) -> Result<Form> {
    let wrong = |text: &str| Err(Error::new(ErrorKind::InvalidInput, text));
    let is_kafka = name.starts_with("kafka");
    match options.format.map(|format| format.name) {
        Some(_) if options.ship.rowbinary => wrong("--ship rowbinary says what is written: leave --format out"),
        None if options.ship.rowbinary => Ok(Form::RowBinary),
        None | Some("parquet") if !Format::of_folder().lines => Ok(Form::Parquet),
        None if !is_kafka => {
            wrong("this program was built without Parquet: --ship rowbinary writes what ClickHouse reads")
        }
        None | Some("jsonl") if is_kafka => Ok(Form::Json),
        _ if is_kafka => wrong("a broker is sent parquet or jsonl, or RowBinary by --ship rowbinary"),
        _ => wrong("ClickHouse is sent parquet, or RowBinary by --ship rowbinary where it is older than 20"),
    }
}

/// The password in a file: its first line.
fn password(path: &Path) -> Result<String> {
    let told = |error: Error| at(path, "the password cannot be read", error);
    let file = input::open(path).map_err(told)?;
    if fstat(&file).map_err(|error| told(error.into()))?.st_mode & 0o007 != 0 {
        let path = path.display();
        let text = format!("{path}: everybody on this machine may read the password: chmod o= {path}");
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    let mut text = String::new();
    file.take(MOST_OF_PASSWORD).read_to_string(&mut text).map_err(told)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Reads bytes as whatever the other side may answer, and as a line of a journal: nothing of it does harm. For fuzzing.
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

/// The check of these bytes: of the batches of Kafka, and of what lies in a spool.
fn crc32c(bytes: &[u8]) -> u32 {
    Crc32c::NEW.with(bytes).value()
}

/// ns since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// ns since the machine started, while it slept as well.
fn up() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
