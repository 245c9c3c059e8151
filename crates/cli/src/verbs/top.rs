//! `linerate top`: what goes on at ports, or in another run of this program, in the terminal.
//!
//! There is one way to look into a run that goes on: what it answers at `--metrics`, which any run has that shows what it does. At an
//! address it tells counters: ports, drops, readers. At the path of a socket, whose file lets its owner alone ask, flows too, where the
//! run meters some: `linerate flows eth0 --metrics ./run.sock`, `linerate top --from ./run.sock`. So one option serves collectors and
//! people, nothing more is open than was asked for, and what a browser or another user reaches says nothing of who talks to whom.
//! Without a run to look into, `linerate top eth0` is one itself: it opens ports as `flows` does, takes nothing away from the host,
//! writes nothing, and looks at itself in the same way.
//!
//! - `source`: asking; `model`: what is shown, and keys; `draw`: lines; the document is in `verbs/snapshot`.

mod draw;
mod model;
mod source;
#[cfg(test)]
mod tests;

use self::model::{Model, ROWS};
use self::source::{Looking, Seen, Source};
use super::inputs::{InputArgs, Needs, ReceiveArgs, is_file, span};
use super::snapshot::{Ask, Gatherer, Sort, check};
use crate::exit::{Exit, usage};
use crate::signals::stop_on_signals;
use crate::view::live::watch;
use crate::view::screen::{Screen, View};
use crate::view::terminal::{fail, show, show_line, shown, tell};
use linerate_engine::{Counting, Metering, Meters, Progress, Stop, Watch};
use linerate_meter::{Config, Flow, Protocols};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Options of `linerate top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # what goes on at eth0: rates, flows, hosts, drops; ? lists the keys
  linerate top eth0
  # hosts by packets, of TCP alone, with the sites behind the addresses
  linerate top eth0 --by address --sort packets --names all tcp
  # a run of this program: it answers at its --metrics
  linerate flows eth0 -w flows/ --metrics ./run.sock
  linerate top --from ./run.sock
  linerate top --from ./run.sock 'net 10.0.0.0/8 and port 443'
  # ports, drops and readers of one that answers at an address
  linerate top --from 127.0.0.1:9464
  # a table for a script, a JSON line a second for a program
  linerate top eth0 --once --by resp_port
  linerate top --from ./run.sock --json
Where standard output is no terminal, one table is printed, as with --once.
Flows and groups are of the last interval, their rates at layer 2 without FCS.")]
// A capture file is refused: nothing goes on there.
#[command(mut_arg("read", |read| read.hide(true)))]
#[command(mut_arg("words", |words| words.help("Ports (comma or blank between several), unless -i or --from is given; then \
filter text. A run of this program is named by --from")))]
#[command(mut_arg("ports", |ports| ports.help("A port to receive from; may be given several times, or with commas; any is \
every interface that is up. With --from also one run to look at: IP:PORT, or its socket [alias: --from]")))]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Put flows together by these fields, as in address, or orig_address/24,protocol; address and port are those of either end
    #[arg(long, value_name = "FIELD[/LEN],...")]
    by: Option<String>,
    /// What they stand in order by
    #[arg(long, value_enum, default_value_t = Sort::Bits)]
    sort: Sort,
    /// How many are printed; a screen shows what it has room for [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: Option<u16>,
    /// Look every so many seconds, 0.2 at the least
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    interval: f64,
    /// Print one table, after one interval, and end
    #[arg(long)]
    once: bool,
    /// Print a JSON line an interval (schema linerate/top/1)
    #[arg(long)]
    json: bool,
    /// Show what conversations say of themselves in the clear, such as the site of a TLS hello: of all protocols, or of those
    /// named, of tls, quic, dns, http, ssh
    #[arg(long, value_name = "none|all|PROTOCOL,...", default_value_t = Protocols::NONE)]
    names: Protocols,
    /// The most flows at a time; beyond them the quietest give way [default: 262144]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_flows: Option<u32>,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Flows at a time without a number: 60 MiB.
const USUAL_FLOWS: u32 = 262_144;
/// What is shown without a number.
const USUAL: u16 = 10;
/// Columns of what is printed, and lines at the most.
const WIDTH: usize = 80;
const HEIGHT: usize = 2000;
/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(200);

/// Shows.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let interval = span("--interval", args.interval)?;
    if interval < SHORTEST {
        return Err(usage(format!("--interval {}: at least 0.2 seconds", args.interval)));
    }
    match args.input.attached()? {
        Some((from, filter, duration)) => args.attach(&from, &filter, duration, interval),
        None => args.receive(interval),
    }
}

/// Whether a name is that of another run, or was meant so, and no port.
pub(super) fn is_place(name: &str) -> bool {
    Source::parse(name).is_some() || Source::is_meant_as_address(name)
}

impl Args {
    fn ask(&self, filter: &str) -> anyhow::Result<Ask> {
        if let (Some(_), Sort::Again | Sort::Total) = (&self.by, self.sort) {
            return Err(usage(format!(
                "--sort {} means nothing with --by: it is an order of single flows",
                self.sort.name()
            )));
        }
        let ask = Ask { by: self.by.clone(), sort: self.sort, filter: filter.to_owned(), top: ROWS };
        check(&ask).map_err(usage)?;
        Ok(ask)
    }

    /// Looks at another process.
    fn attach(&self, from: &str, filter: &str, duration: Option<Duration>, interval: Duration) -> anyhow::Result<Exit> {
        let given = [
            ("--names", !self.names.is_empty()),
            ("--max-flows", self.max_flows.is_some()),
            ("--lossless", self.receive.lossless),
        ];
        let given = given.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
        if let Some(option) = given.or(self.receive.of_ports()) {
            return Err(usage(format!("{option} means nothing here: another run receives, and is looked at")));
        }
        let source = Source::parse(from)
            .ok_or_else(|| usage(format!("--from {from}: invalid address; expected IP:PORT, such as 127.0.0.1:9464, or a socket, such as ./run.sock")))?;
        let ask = self.ask(filter)?;
        let stop = Stop::new();
        crate::privileges::keep("the socket of a run is its user's, and is opened for each look");
        stop_on_signals(&stop)?;
        let until = duration.map(|duration| Instant::now() + duration);
        let is_over = || stop.is_requested() || until.is_some_and(|until| Instant::now() >= until);
        self.show(from, source, ask, interval, &is_over)
    }

    /// Shows until it is over.
    fn show(
        &self,
        from: &str,
        source: Source,
        ask: Ask,
        interval: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Exit> {
        if self.json {
            return self.lines(&source, &ask, interval, is_over);
        }
        let screen = if self.once { None } else { Screen::open(false) };
        let Some(screen) = screen else { return self.print(from, &source, ask, interval, is_over) };
        let looking = Looking::start(source, ask.clone(), interval)?;
        screen.show(&mut Model::new(from.to_owned(), ask, Some(looking)), is_over);
        Ok(Exit::Done)
    }

    fn lines(
        &self,
        source: &Source,
        ask: &Ask,
        interval: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Exit> {
        let ask = Ask { top: self.top.unwrap_or(USUAL).into(), ..ask.clone() };
        let mut is_first = true;
        loop {
            let began = Instant::now();
            match if is_first { begun(source, &ask, is_over) } else { source.look(&ask) } {
                // Of the first look there are no rates.
                Seen::Snapshot(_) if is_first && self.once => {}
                Seen::Snapshot(snapshot) => {
                    if !show_line(&*snapshot)? || self.once {
                        return Ok(Exit::Done);
                    }
                }
                Seen::Wrong(why) => return Err(usage(why)),
                Seen::Away(_) if is_over() => {}
                Seen::Away(why) => {
                    fail(format_args!("nobody answers: {why}"));
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

    /// One table: what the screen would show.
    fn print(
        &self,
        from: &str,
        source: &Source,
        ask: Ask,
        interval: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Exit> {
        let mut model = Model::new(from.to_owned(), Ask { top: self.top.unwrap_or(USUAL).into(), ..ask }, None);
        for look in 0..2 {
            if look > 0 && !wait(interval, is_over) {
                break;
            }
            match if look == 0 { begun(source, &model.ask, is_over) } else { source.look(&model.ask) } {
                Seen::Wrong(why) => return Err(usage(why)),
                Seen::Away(_) if is_over() => return Ok(Exit::Done),
                Seen::Away(why) => {
                    fail(format_args!("{from}: nobody answers: {why}"));
                    return Ok(Exit::Failed);
                }
                seen => model.see(seen),
            }
        }
        let lines = model.lines(WIDTH, HEIGHT);
        // Without the line of keys, and what is empty.
        let last = lines[..lines.len() - 1].iter().rposition(|line| !line.text.is_empty()).map_or(0, |last| last + 1);
        // Nobody reads what follows once that fails.
        let _ = lines[..last].iter().all(|line| show(format_args!("{}\n", shown(&line.text).trim())));
        Ok(Exit::Done)
    }

    /// Opens ports and meters what comes.
    fn receive(&self, interval: Duration) -> anyhow::Result<Exit> {
        let inputs = self.input.check()?;
        if let Some(file) = inputs.specs.iter().find(|spec| is_file(spec)) {
            return Err(usage(format!(
                "{file}: top shows what goes on; linerate flows and linerate count tell of a file"
            )));
        }
        let ask = self.ask("")?;
        let identity = self.receive.identity(&inputs)?;
        let config = self.config();
        let watched = Watch::new();
        let gatherer = Gatherer::new("top", None).counting(watched.clone(), inputs.names());
        let meters = Meters::new(&config, 1);
        let snap =
            if self.names.is_empty() && inputs.filter.is_empty() { linerate_meter::Spread::HEADERS as u32 } else { 0 };
        let (ports, mut notes) = self.receive.open(&inputs, Needs { snap, ..Needs::default() })?;
        notes.extend(identity.assume()?.confine(&[]));
        // They stand on the screen that comes back.
        if !self.once && !self.json {
            notes.iter().for_each(|note| tell(format_args!("{}\n", shown(note))));
        }
        let stop = Stop::new();
        stop_on_signals(&stop)?;
        let progress = Progress::new();
        watch(&progress, "received");
        let mut metering = Metering::new(meters, inputs.selection(), |_: &Flow| {}).progress(progress);
        let mut counting = Counting::new(inputs.selection(), false).watch(watched);
        let receive = self.receive.run(&inputs, ports, stop.clone());
        let over = Stop::new();
        let (seen, run) = std::thread::scope(|scope| {
            let (from, over, stopping) = (inputs.names().join(", "), &over, stop.clone());
            let view = std::thread::Builder::new().name("linerate-view".into()).spawn_scoped(scope, move || {
                // Whatever ends the view ends the run.
                let _stopping = Stopping(&stopping);
                let is_over = || over.is_requested() || stopping.is_requested();
                self.show(&from, Source::Own(Box::new(gatherer)), ask, interval, &is_over)
            });
            if view.is_err() {
                stop.request();
            }
            let run = receive.run(&mut [&mut metering, &mut counting]);
            over.request();
            let seen = view.map(|view| view.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the view died: a bug"))));
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

/// The first look, at a run that has begun.
fn begun(source: &Source, ask: &Ask, is_over: &dyn Fn() -> bool) -> Seen {
    loop {
        match source.look(ask) {
            Seen::Snapshot(snapshot) if matches!(source, Source::Own(_)) && snapshot.ports.is_empty() && !is_over() => {
                std::thread::sleep(Duration::from_millis(20));
            }
            seen => return seen,
        }
    }
}

/// Asks a run to stop when it is dropped.
struct Stopping<'a>(&'a Stop);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// Waits so long; false if it is over before.
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
