//! Metrics (`--metrics`): counters in the text format of Prometheus, made from the table of counters, and a document for
//! `linerate top`.
//!
//! An address is bound when options are parsed, before privileges are dropped; the path of a socket afterwards, so that the file
//! belongs to the new user. A separate thread serves requests during the run. Flows are reported only at a path: an address is
//! reachable by every user of the host, while a file has permissions.

use crate::verbs::listen_at;
use crate::view::terminal::{print_stderr, shown};
use anyhow::Context;
use linerate_burst::{Count, Kind, Ledger};
use linerate_engine::reception::{ReceptionWatch, Totals};
use linerate_engine::{Progress, Stop, metrics};
use linerate_export::export::Lag;
use linerate_serve::{Reply, ScrapeListener};
use linerate_share::SocketFile;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime};

/// Timeout for a run, which checks for requests ten times per second.
const PATIENCE: Duration = Duration::from_secs(2);

/// Listener to serve when a run starts, and its verb.
static BOUND: Mutex<Option<(Bound, String)>> = Mutex::new(None);
/// Figures of runs in addition to their counters.
static WATCHED: Mutex<Vec<Figure>> = Mutex::new(Vec::new());

/// A figure that is read on request.
struct Figure {
    /// Name without the common prefix.
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// Label of the action: `captured`, `sent`; empty if the name includes it.
    done: &'static str,
    read: Box<dyn Fn() -> u64 + Send>,
}

/// Address or path at which counters are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// An address and a port, reachable by all users.
    Address(SocketAddr),
    /// The path of a socket, only for its owner.
    Path(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // As exporters take it: all addresses, and this host.
        let whole = match text.split_once(':') {
            Some(("", port)) => format!("0.0.0.0:{port}"),
            Some(("localhost", port)) => format!("127.0.0.1:{port}"),
            _ => text.to_owned(),
        };
        match whole.parse() {
            Ok(address) => Ok(MetricsAddress::Address(address)),
            Err(_) if text.contains('/') => Ok(MetricsAddress::Path(text.into())),
            Err(_) => {
                Err("expected ADDRESS:PORT, such as 127.0.0.1:9464, or the path of a socket, such as ./run.sock"
                    .to_owned())
            }
        }
    }
}

/// A listener, or the path of a future one.
enum Bound {
    Address(TcpListener),
    /// Not bound yet.
    Path(PathBuf),
    Socket(std::os::unix::net::UnixListener, SocketFile, PathBuf),
}

/// Binds an address for the metrics of this run; a path is bound later ([`bind_path`]).
pub fn bind(verb: &str, place: MetricsAddress) -> anyhow::Result<()> {
    let bound = match place {
        MetricsAddress::Path(path) => Bound::Path(path),
        MetricsAddress::Address(address) => {
            let listening = || format!("--metrics {address}: cannot listen");
            let listener = TcpListener::bind(address).with_context(listening)?;
            // This system call is not allowed in a run.
            listener.set_nonblocking(true).with_context(listening)?;
            Bound::Address(listener)
        }
    };
    metrics::want();
    if matches!(bound, Bound::Path(_)) {
        linerate_engine::flows::watch::want();
    }
    *lock(&BOUND) = Some((bound, verb.to_owned()));
    Ok(())
}

/// Binds the path, with the current privileges.
pub fn bind_path() -> anyhow::Result<()> {
    if let Some((bound, _)) = &mut *lock(&BOUND)
        && let Bound::Path(path) = bound
    {
        let (listener, file) = listen_at("--metrics", path, None)?;
        *bound = Bound::Socket(listener, file, std::mem::take(path));
    }
    Ok(())
}

/// Closes the listener of a run that did not start.
pub fn unbind() {
    drop(lock(&BOUND).take());
}

/// Returns the folder of the socket, which is removed at the end.
pub fn folder() -> Option<OwnedFd> {
    let bound = lock(&BOUND);
    let Some((Bound::Socket(_, _, path), _)) = &*bound else { return None };
    crate::privileges::socket_folder(&std::path::Path::new(".").join(path).to_string_lossy()).ok()?
}

/// Adds the progress of a run; `done` is the action on its packets: `captured`, `sent`.
pub fn watch(progress: &Arc<Progress>, done: &'static str) {
    type Read = fn(&Progress) -> &AtomicU64;
    let read: [(_, _, Read); 3] = [
        ("frames_total", "Packets processed.", |all| &all.frames),
        ("bytes_total", "Captured bytes of those packets.", |all| &all.bytes),
        ("wire_bytes_total", "Bytes of those packets on the wire, without FCS.", |all| &all.wire_bytes),
    ];
    for (name, help, read) in read {
        let progress = Arc::clone(progress);
        let read = Box::new(move || read(&progress).load(Ordering::Relaxed));
        lock(&WATCHED).push(Figure { name, kind: "counter", help, done, read });
    }
}

/// Adds the sent bytes of a stream sender.
pub fn watch_sent(bytes: &Arc<AtomicU64>) {
    let bytes = Arc::clone(bytes);
    let help = "Payload bytes accepted by the kernel for sending.";
    let read = Box::new(move || bytes.load(Ordering::Relaxed));
    lock(&WATCHED).push(Figure { name: "sent_bytes_total", kind: "counter", help, done: "", read });
}

/// Adds the streams of a reception.
pub fn watch_streams(watch: &ReceptionWatch) {
    type Read = fn(&Totals) -> u64;
    let read: [(_, _, _, Read); 4] = [
        ("streams_total", "counter", "Streams started.", |all| all.streams),
        ("streams_open", "gauge", "Open streams.", |all| all.open),
        ("stream_bytes_total", "counter", "Bytes received in order.", |all| all.bytes),
        ("stream_missing_bytes_total", "counter", "Bytes missing in gaps.", |all| all.missing),
    ];
    for (name, kind, help, read) in read {
        let watch = watch.clone();
        let read = Box::new(move || read(&watch.totals()));
        lock(&WATCHED).push(Figure { name, kind, help, done: "", read });
    }
}

/// Adds the lag of spooled exports, summed over all destinations.
pub fn watch_lag(lag: Box<dyn Fn() -> Lag + Send>) {
    type Read = fn(&Lag) -> u64;
    let read: [(_, _, _, Read); 6] = [
        ("spool_batches", "gauge", "Batches of flow records waiting in the spool.", |lag| lag.batches),
        ("spool_records", "gauge", "Flow records waiting in the spool.", |lag| lag.records),
        ("spool_bytes", "gauge", "Bytes waiting in the spool.", |lag| lag.bytes),
        ("spool_age_seconds", "gauge", "Age of the oldest batch in the spool.", |lag| lag.age.as_secs()),
        ("shipped_records_total", "counter", "Flow records acknowledged by the destination.", |lag| lag.delivered),
        ("shipping_lost_records_total", "counter", "Flow records evicted from the spool, refused or damaged.", |lag| {
            lag.lost
        }),
    ];
    let lag: Arc<Mutex<Box<dyn Fn() -> Lag + Send>>> = Arc::new(Mutex::new(lag));
    for (name, kind, help, read) in read {
        let lag = Arc::clone(&lag);
        let read = Box::new(move || read(&lock(&lag)()));
        lock(&WATCHED).push(Figure { name, kind, help, done: "", read });
    }
}

/// Returns the document for a query, or the reason why the query is invalid.
pub type SnapshotQuery = Box<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// Serves requests until it is dropped.
pub struct Metrics {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    _file: Option<SocketFile>,
}

impl Metrics {
    /// Starts a thread that serves requests, if `--metrics` was given; `show` makes the document of the verb, at an address or
    /// (true) a path. Call it after privileges are dropped.
    pub fn start(is_quiet: bool, show: impl FnOnce(&str, bool) -> SnapshotQuery) -> Metrics {
        let stop = Stop::new();
        let (mut file, mut thread) = (None, None);
        if let Some((bound, verb)) = lock(&BOUND).take() {
            let (door, place) = match bound {
                Bound::Address(listener) => {
                    let address = listener.local_addr().map(|address| format!("http://{address}/metrics"));
                    (Some(ScrapeListener::Address(listener)), address.unwrap_or_default())
                }
                Bound::Socket(listener, socket, path) => {
                    file = Some(socket);
                    (Some(ScrapeListener::Path(listener)), path.display().to_string())
                }
                Bound::Path(path) => (None, path.display().to_string()),
            };
            if !is_quiet {
                print_stderr(format_args!("  metrics at {}\n", shown(&place)));
            }
            let show = show(&verb, matches!(door, Some(ScrapeListener::Path(_))));
            let (stop, began) = (stop.clone(), SystemTime::now());
            let pages = move |path: &str, query: &str| match path {
                "/metrics" => Reply::Figures(text(&verb, began, &metrics::ask(PATIENCE), &lock(&WATCHED))),
                "/top" => show(query).map_or_else(Reply::Wrong, Reply::Document),
                _ => Reply::Elsewhere("not found; expected /metrics or /top\n"),
            };
            // Without a thread requests are not answered, and the run continues.
            let serve = move || door.map_or((), |door| drop(linerate_serve::scrape(door, &stop, pages)));
            thread = Builder::new().name("linerate-metrics".into()).spawn(serve).ok();
        }
        Metrics { stop, thread, _file: file }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the page: <https://prometheus.io/docs/instrumenting/exposition_formats>.
fn text(verb: &str, began: SystemTime, ledger: &Ledger, watched: &[Figure]) -> String {
    let mut page = Page::default();
    page.family("linerate_info", "gauge", "Verb and version of the run.");
    page.sample("linerate_info", &[("verb", verb), ("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("linerate_start_time_seconds", "gauge", "Start of the run, in seconds since 1970.");
    let began = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    page.sample("linerate_start_time_seconds", &[], began.as_secs());
    let mut sums = BTreeMap::new();
    for Figure { name, kind, help, done, read } in watched {
        *sums.entry((*name, *kind, *help)).or_insert_with(BTreeMap::new).entry(*done).or_insert(0) += read();
    }
    for ((name, kind, help), sums) in sums {
        let name = format!("linerate_{name}");
        page.family(&name, kind, help);
        sums.into_iter().for_each(|(done, sum)| page.sample(&name, &[("done", done)], sum));
    }
    let of = |count: Count| {
        let accounts = ledger.accounts().iter().filter(move |account| account.counts().any(|(own, _)| own == count));
        accounts.map(move |account| (account, account.get(count)))
    };
    let lost = || Count::ALL.iter().filter(|count| count.kind() == Kind::Lost);
    let name = "linerate_lost_total";
    if lost().any(|count| of(*count).next().is_some()) {
        let help = "Packets or flow records lost, by stage and cause; each cause is also a separate counter.";
        page.family(name, "counter", help);
    }
    for count in lost() {
        for (account, frames) in of(*count) {
            let (stage, cause) = (count.stage().name(), count.name());
            let labels =
                [("stage", stage), ("cause", cause), ("subject", &account.subject), ("branch", &account.branch)];
            page.sample(name, &labels, frames);
        }
    }
    for count in Count::ALL {
        let name = name_of(*count);
        for (index, (account, frames)) in of(*count).enumerate() {
            if index == 0 {
                page.family(&name, if is_gauge(*count) { "gauge" } else { "counter" }, count.sentence());
            }
            page.sample(&name, &[("subject", &account.subject), ("branch", &account.branch)], frames);
        }
    }
    page.0
}

/// Returns the metric name of a counter.
fn name_of(count: Count) -> String {
    let total = if is_gauge(count) { "" } else { "_total" };
    format!("linerate_{}_{}{total}", count.stage().name(), count.name())
}

/// Returns whether it is a state rather than a sum.
fn is_gauge(count: Count) -> bool {
    matches!(count, Count::DeliverLagMs | Count::DeliverWaiting)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample with those of its labels that have a value.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.0 += name;
        let mut between = '{';
        for (label, text) in labels.iter().filter(|(_, text)| !text.is_empty()) {
            let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.0, "{between}{label}=\"{text}\"");
            between = ',';
        }
        let _ = writeln!(self.0, "{} {value}", if between == ',' { "}" } else { "" });
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = HashSet::new();
        for count in Count::ALL {
            let name = name_of(*count);
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{name}"
            );
            assert!(names.insert(name));
        }
    }

    #[test]
    fn a_page_has_each_family_once_and_escapes_labels() {
        let mut ledger = Ledger::new();
        for subject in ["packet:eth0@0", "pcap:a\"b\\c\nd"] {
            let account = ledger.account(linerate_burst::Stage::Receive, subject);
            account.add(Count::Received, 7).add(Count::RingFull, 2);
        }
        let progress = Progress::new();
        progress.wire_bytes.store(99, Ordering::Relaxed);
        watch(&progress, "captured");
        let page = text("capture", SystemTime::UNIX_EPOCH, &ledger, &lock(&WATCHED));
        for line in [
            "linerate_info{verb=\"capture\",version=",
            "linerate_start_time_seconds 0\n",
            "linerate_wire_bytes_total{done=\"captured\"} 99\n",
            "linerate_receive_received_total{subject=\"packet:eth0@0\"} 7\n",
            "linerate_receive_ring_full_total{subject=\"pcap:a\\\"b\\\\c\\nd\"} 2\n",
            "linerate_lost_total{stage=\"receive\",cause=\"ring_full\",subject=\"packet:eth0@0\"} 2\n",
        ] {
            assert!(page.contains(line), "{line}\nin\n{page}");
        }
        let families: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(families.iter().collect::<HashSet<_>>().len(), families.len(), "{page}");
        let known = |line: &str| families.iter().any(|family| line.starts_with(family.split(' ').next().unwrap()));
        assert!(page.lines().filter(|line| !line.starts_with('#')).all(known), "{page}");
    }
}
