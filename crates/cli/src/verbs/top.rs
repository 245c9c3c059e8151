//! `linerate top`: shows live traffic of ports, or of another run, in the terminal.
//!
//! Another run is queried at its `--metrics`. At an address it reports counters: ports, drops, readers. At the path of a socket, which
//! only its owner can open, it reports flows too, if the run meters them: `linerate flows eth0 --metrics ./run.sock`,
//! `linerate top --from ./run.sock`. So one option serves collectors and people, nothing else listens, and browsers and other users
//! do not see who talks to whom. Without `--from`, `linerate top eth0` is a run itself: it opens ports as `flows` does, diverts no
//! packets from the host, writes nothing, and queries itself in the same way.
//!
//! - `source`: queries; `model`: state and keys; `draw`: lines; the document is in `verbs/snapshot`.

mod draw;
mod model;
mod source;
#[cfg(test)]
mod tests;

use self::model::{Model, ROWS};
use self::source::{QueryOutcome, SnapshotPoller, Source};
use super::inputs::{InputArgs, InputRequirements, ReceiveArgs, is_file, span};
use super::snapshot::{FlowQuery, Gatherer, Sort, check};
use crate::exit::{Exit, usage};
use crate::privileges::Session;
use crate::signals::stop_on_signals;
use crate::view::live::watch;
use crate::view::screen::{Screen, View};
use crate::view::terminal::{fail, print_stderr, show, show_line, shown};
use linerate_engine::{CountConsumer, CountWatch, MeterConsumer, Meters, Progress, Stop};
use linerate_meter::{Config, Flow, Protocols};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

/// Options of `linerate top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # rates, flows, hosts and drops of eth0; press ? for keys
  linerate top eth0
  # hosts by packets, only TCP, with server names
  linerate top eth0 --by address --sort packets --names all tcp
  # attach to another run at its --metrics
  linerate flows eth0 -w flows/ --metrics ./run.sock
  linerate top --from ./run.sock
  linerate top --from ./run.sock 'net 10.0.0.0/8 and port 443'
  # ports, drops and readers of a run at an address
  linerate top --from 127.0.0.1:9464
  # one table for a script, one JSON line per second for a program
  linerate top eth0 --once --by resp_port
  linerate top --from ./run.sock --json
If standard output is not a terminal, one table is printed, as with --once.
Flows and groups are those of the last interval; rates are layer 2 without FCS.")]
// Capture files are refused: they have no live traffic.
#[command(
    mut_arg("read", |read| read.hide(true)),
    mut_arg("words", |words| words.value_name("PORT|FILTER")
        .help("Ports, unless given by -i; then the filter (pcap-filter(7))"))
)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Show another run, at its --metrics: IP:PORT or the path of its socket
    #[arg(help_heading = "Input", long, value_name = "IP:PORT|PATH")]
    from: Option<String>,
    /// Group flows by these fields, such as address or orig_address/24,protocol; address and port match either end
    #[arg(help_heading = "Flows", long, value_name = "FIELD[/LEN],...")]
    by: Option<String>,
    /// Sort rows by this value
    #[arg(help_heading = "Flows", long, value_enum, default_value_t = Sort::Bits)]
    sort: Sort,
    /// Number of rows to print; on a screen, as many as fit [default: 10]
    #[arg(help_heading = "Flows", long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: Option<u16>,
    /// Update interval in seconds, at least 0.2
    #[arg(help_heading = "Report", long, value_name = "S", default_value_t = 1.0)]
    interval: f64,
    /// Print one table after one interval, and exit
    #[arg(help_heading = "Report", long)]
    once: bool,
    /// Print one JSON line per interval (schema linerate/top/1)
    #[arg(help_heading = "Report", long)]
    json: bool,
    /// Show host names found in cleartext, such as the SNI of a TLS hello: all, or a list of tls, quic, dns, http,
    /// ssh
    #[arg(help_heading = "Flows", long, value_name = "none|all|PROTOCOL,...", default_value_t = Protocols::NONE)]
    names: Protocols,
    /// Maximum number of flows; when full, the least recently active are evicted [default: 262144]
    #[arg(help_heading = "Flows", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_flows: Option<u32>,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Default maximum number of flows: 60 MiB.
const USUAL_FLOWS: u32 = 262_144;
/// Default number of rows.
const USUAL: u16 = 10;
/// Columns of printed output, and maximum number of lines.
const WIDTH: usize = 80;
const HEIGHT: usize = 2000;
/// Minimum interval.
const SHORTEST: Duration = Duration::from_millis(200);

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let interval = span("--interval", args.interval)?;
    if interval < SHORTEST {
        return Err(usage(format!("--interval {}: at least 0.2 seconds", args.interval)));
    }
    match &args.from {
        Some(from) => {
            let (filter, duration) = args.input.attached()?;
            args.attach(from, &filter, duration, interval)
        }
        None => args.receive(interval),
    }
}

impl Args {
    fn ask(&self, filter: &str) -> anyhow::Result<FlowQuery> {
        if let (Some(_), Sort::Retransmissions | Sort::Total) = (&self.by, self.sort) {
            return Err(usage(format!(
                "--sort {} has no effect with --by: it sorts only single flows",
                self.sort.name()
            )));
        }
        let ask = FlowQuery { by: self.by.clone(), sort: self.sort, filter: filter.to_owned(), top: ROWS };
        check(&ask).map_err(usage)?;
        Ok(ask)
    }

    /// Attaches to another process.
    fn attach(&self, from: &str, filter: &str, duration: Option<Duration>, interval: Duration) -> anyhow::Result<Exit> {
        let given = [
            ("--names", !self.names.is_empty()),
            ("--max-flows", self.max_flows.is_some()),
            ("--lossless", self.receive.lossless),
        ];
        let given = given.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
        if let Some(option) = given.or(self.receive.of_ports()) {
            return Err(usage(format!("{option} has no effect with --from: the other run receives the packets")));
        }
        let source = Source::parse(from)
            .ok_or_else(|| usage(format!("--from {from}: invalid address; expected IP:PORT, such as 127.0.0.1:9464, or a socket, such as ./run.sock")))?;
        let ask = self.ask(filter)?;
        let why = "the socket of a run belongs to its user, and is opened for each query";
        let stop = stop_on_signals(&Session::keeping(why))?;
        let until = duration.map(|duration| Instant::now() + duration);
        let is_over = || stop.is_requested() || until.is_some_and(|until| Instant::now() >= until);
        self.show(from, source, ask, interval, &is_over)
    }

    /// Shows until `is_over`.
    fn show(
        &self,
        from: &str,
        source: Source,
        ask: FlowQuery,
        interval: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Exit> {
        if self.json {
            return self.lines(&source, &ask, interval, is_over);
        }
        let screen = if self.once { None } else { Screen::open(false) };
        let Some(screen) = screen else { return self.print(from, &source, ask, interval, is_over) };
        let looking = SnapshotPoller::start(source, ask.clone(), interval)?;
        screen.show(&mut Model::new(from.to_owned(), ask, Some(looking)), is_over);
        Ok(Exit::Done)
    }

    fn lines(
        &self,
        source: &Source,
        ask: &FlowQuery,
        interval: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Exit> {
        let ask = FlowQuery { top: self.top.unwrap_or(USUAL).into(), ..ask.clone() };
        let mut is_first = true;
        loop {
            let began = Instant::now();
            match if is_first { begun(source, &ask, is_over) } else { source.look(&ask) } {
                // Rates need a second snapshot.
                QueryOutcome::Snapshot(_) if is_first && self.once => {}
                QueryOutcome::Snapshot(snapshot) => {
                    if !show_line(&*snapshot)? || self.once {
                        return Ok(Exit::Done);
                    }
                }
                QueryOutcome::Invalid(why) => return Err(usage(why)),
                QueryOutcome::Unreachable(_) if is_over() => {}
                QueryOutcome::Unreachable(why) => {
                    fail(format_args!("no answer: {why}"));
                    if self.once {
                        return Ok(Exit::Failed);
                    }
                }
            }
            is_first = false;
            if !wait(interval.saturating_sub(began.elapsed()), is_over) {
                return Ok(Exit::Done);
            }
        }
    }

    /// Prints the screen once as a table.
    fn print(
        &self,
        from: &str,
        source: &Source,
        ask: FlowQuery,
        interval: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Exit> {
        let mut model = Model::new(from.to_owned(), FlowQuery { top: self.top.unwrap_or(USUAL).into(), ..ask }, None);
        for look in 0..2 {
            if look > 0 && !wait(interval, is_over) {
                break;
            }
            match if look == 0 { begun(source, &model.ask, is_over) } else { source.look(&model.ask) } {
                QueryOutcome::Invalid(why) => return Err(usage(why)),
                QueryOutcome::Unreachable(_) if is_over() => return Ok(Exit::Done),
                QueryOutcome::Unreachable(why) => {
                    fail(format_args!("{from}: no answer: {why}"));
                    return Ok(Exit::Failed);
                }
                seen => model.see(seen),
            }
        }
        let lines = model.lines(WIDTH, HEIGHT);
        // Without the line of keys and empty lines.
        let last = lines[..lines.len() - 1].iter().rposition(|line| !line.text.is_empty()).map_or(0, |last| last + 1);
        // Stop at the first failure.
        let _ = lines[..last].iter().all(|line| show(format_args!("{}\n", shown(&line.text).trim())));
        Ok(Exit::Done)
    }

    /// Opens ports and meters their packets.
    fn receive(&self, interval: Duration) -> anyhow::Result<Exit> {
        let is_run = |name: &str| Source::parse(name).is_some() && !Path::new(name).is_file();
        if let Some(run) = self.input.first_name().filter(|name| name.starts_with("http://") || is_run(name)) {
            return Err(usage(format!("{run}: the socket or address of a run, not a port; use --from {run}")));
        }
        let inputs = self.input.check()?;
        if let Some(file) = inputs.specs.iter().find(|spec| is_file(spec)) {
            return Err(usage(format!(
                "{file}: top shows live traffic; for a file use linerate flows or linerate count"
            )));
        }
        let ask = self.ask("")?;
        let identity = self.receive.identity(&inputs)?;
        let config = self.config();
        let watched = CountWatch::new();
        let gatherer = Gatherer::new("top", None).counting(watched.clone(), inputs.names());
        let meters = Meters::new(&config, 1);
        let snap = if self.names.is_empty() && inputs.filter.is_empty() {
            linerate_meter::FlowDistributor::HEADERS as u32
        } else {
            0
        };
        let (ports, mut notes) =
            self.receive.open(&inputs, InputRequirements { snap, ..InputRequirements::default() })?;
        let session = identity.assume()?.confine(&[]);
        let stop = stop_on_signals(&session)?;
        notes.extend_from_slice(session.notes());
        // They are visible on the restored screen.
        if !self.once && !self.json {
            notes.iter().for_each(|note| print_stderr(format_args!("{}\n", shown(note))));
        }
        let progress = Progress::new();
        watch(&progress, "received");
        let mut metering = MeterConsumer::new(meters, inputs.selection(), |_: &Flow| {}).progress(progress);
        let mut counting = CountConsumer::new(inputs.selection(), false).watch(watched);
        let receive = self.receive.run(&inputs, ports, stop.clone());
        let over = Stop::new();
        let (seen, run) = std::thread::scope(|scope| {
            let (from, over, stopping) = (inputs.names().join(", "), &over, stop.clone());
            let view = std::thread::Builder::new().name("linerate-view".into()).spawn_scoped(scope, move || {
                // The end of the view ends the run.
                let _stopping = StopOnDrop(&stopping);
                let is_over = || over.is_requested() || stopping.is_requested();
                self.show(&from, Source::Own(Box::new(gatherer)), ask, interval, &is_over)
            });
            if view.is_err() {
                stop.request();
            }
            let run = receive.run(&mut [&mut metering, &mut counting]);
            over.request();
            let seen =
                view.map(|view| view.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the view panicked (a bug)"))));
            (seen, run)
        });
        let exit = self.receive.conclude(&run);
        let seen = seen??;
        Ok(if exit == Exit::Done { seen } else { exit })
    }

    fn config(&self) -> Config {
        let secret = || [1, 2].map(|number| RandomState::new().hash_one(number));
        Config {
            max_flows: self.max_flows.unwrap_or(USUAL_FLOWS) as usize,
            level: linerate_meter::Level::Tcp,
            names: self.names,
            seed: secret(),
            id_seed: secret(),
            ..Config::default()
        }
    }
}

/// Takes the first snapshot, after the run has started.
fn begun(source: &Source, ask: &FlowQuery, is_over: &dyn Fn() -> bool) -> QueryOutcome {
    loop {
        match source.look(ask) {
            QueryOutcome::Snapshot(snapshot)
                if matches!(source, Source::Own(_)) && snapshot.ports.is_empty() && !is_over() =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            seen => return seen,
        }
    }
}

/// Asks a run to stop when it is dropped.
struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// Waits for the interval; returns false if `is_over` ends the wait.
fn wait(interval: Duration, is_over: &dyn Fn() -> bool) -> bool {
    let until = Instant::now() + interval;
    while Instant::now() < until {
        if is_over() {
            return false;
        }
        std::thread::sleep((until - Instant::now().min(until)).min(Duration::from_millis(20)));
    }
    !is_over()
}
