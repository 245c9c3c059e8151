//! State shared by all connections: the tester, the log, and a measurement.

use crate::measurement::{MeasurementState, Measurer};
use crate::recordings::RecordingReader;
use crate::rejected_clients::RejectedClients;
use crate::tester::Tester;
use linerate_generate::packet;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of log entries.
const MOST_ENTRIES: usize = 500;
/// Maximum characters of an entry.
const LONGEST_ENTRY: usize = 300;

/// Tester with its log and measurement.
pub struct ServeState {
    tester: Arc<Mutex<Tester>>,
    log: Mutex<Log>,
    strangers: Mutex<RejectedClients>,
    pub(crate) measuring: MeasurementState,
    pub(crate) reader: Option<Box<dyn RecordingReader>>,
}

/// Log of changes and errors.
#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<Entry>,
    number: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    time_ns: u64,
    what: String,
}

impl ServeState {
    /// Creates a desk for a tester; `measurer` runs measurements, if given.
    pub fn new(tester: Arc<Mutex<Tester>>, measurer: Option<Box<dyn Measurer>>) -> Self {
        let (log, strangers) = (Mutex::default(), Mutex::default());
        ServeState { tester, log, strangers, measuring: MeasurementState::new(measurer), reader: None }
    }

    /// Sets a reader of capture files.
    #[must_use]
    pub fn reading(self, reader: Box<dyn RecordingReader>) -> Self {
        ServeState { reader: Some(reader), ..self }
    }

    /// Locks the tester.
    pub fn tester(&self) -> MutexGuard<'_, Tester> {
        self.tester.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shared(&self) -> &Arc<Mutex<Tester>> {
        &self.tester
    }

    /// Adds a log entry.
    pub fn note(&self, what: &str) {
        let mut log = self.log();
        log.number += 1;
        let entry = Entry { number: log.number, time_ns: now(), what: what.chars().take(LONGEST_ENTRY).collect() };
        log.entries.push_back(entry);
        if log.entries.len() > MOST_ENTRIES {
            log.entries.pop_front();
        }
    }

    /// Counts a rejected request; returns the number from this client if it should be reported.
    pub(crate) fn refuse(&self, address: IpAddr, why: &'static str) -> Option<u64> {
        self.strangers().refuse(address, why, now())
    }

    /// Returns the number of entries so far, and of rejected requests.
    pub(crate) fn noted(&self) -> (u64, u64) {
        (self.log().number, self.strangers().all())
    }

    /// Returns the log, latest entry last.
    pub(crate) fn notes(&self) -> Value {
        let log = self.log();
        let entry = |entry: &Entry| json!({"number": entry.number, "time_ns": entry.time_ns, "what": entry.what});
        json!({"entries": log.entries.iter().map(entry).collect::<Vec<_>>(), "refused": self.strangers().json()})
    }

    fn strangers(&self) -> MutexGuard<'_, RejectedClients> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// File access in packets is disabled: any client could name any file.
pub(crate) const NO_FILES: packet::Files<'static> = &|name: &str, _| {
    Err(format!("{name}: file access is disabled; use raw(...) or replay a file (POST /api/v1/files)"))
};
