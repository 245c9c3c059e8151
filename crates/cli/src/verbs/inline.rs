//! `linerate inline`: two ports joined while another process decides about each frame.

mod report;

use super::inputs::{size, span};
use super::joined::{JoinArgs, ends, receive_whole, send_as};
use super::rings::ring_name;
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, confine, group_number, socket_folder};
use crate::signals::stop_on_signals;
use crate::view::live::{Live, answer};
use crate::view::terminal::{shown, tell};
use linerate_backends::faulty::Faults;
use linerate_engine::{Fail, Inline, InlinePolicy, Progress, Receive, Release, Sharing, SharingOptions, Stop};
use linerate_port::Spec;
use linerate_share::{Access, Error};

/// Options of `linerate inline`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # what an engine called ids says becomes of frames; where it dies they pass
  linerate inline eth1 eth2 --share ids --engine ids --on-death open
  # any engine; frames that it is too slow for pass; without an engine none does
  linerate inline xdp:eth1 xdp:eth2 --share ids --on-overload open --spin
  # in another terminal an engine: the one of this program, which blocks DNS
  linerate inspect shm:ids --name ids --drop 'udp port 53'
--on-death says what becomes of frames that come while there is no engine, and
of those under way when it goes. --on-overload says it of frames that the engine
does not look at within --budget, keeps undecided for longer than --hold, or
cannot be shown, because it keeps too many; and of those undecided when the run
ends. Each is counted by name. An engine is any program that reads the ring and
says what becomes of each frame: in C, Rust or by the format
(docs/block-ring.md). Super-frames and frames that were cut are dropped and
counted: hosts at both ends must not make any (there,
ethtool -K eth0 tso off gso off gro off).")]
#[command(mut_arg("json", |arg| arg.help("Print one JSON document at the end (schema linerate/inline/1)")))]
pub struct Args {
    /// One end
    #[arg(value_name = "PORT")]
    one: String,
    /// The other end
    #[arg(value_name = "PORT")]
    other: String,
    /// Share frames under this name (with a / it is the path of a socket): the engine, and others who only look, read
    /// them as shm:NAME
    #[arg(long, value_name = "NAME")]
    share: String,
    /// Memory for frames that wait for the engine or for a port
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    share_memory: String,
    /// Memory of one block: a power of two from 512KiB to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    share_block: String,
    /// Let members of this group attach too, beside root and the user of this program
    #[arg(long, value_name = "GROUP")]
    share_group: Option<String>,
    /// Only an engine with this name may decide (inspect --name NAME) [default: the first that comes]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    engine: String,
    /// What happens to frames while there is no engine, and to those that it leaves undecided when it goes
    #[arg(long, value_name = "HOW", default_value = "closed")]
    on_death: How,
    /// What happens to frames that the engine does not decide in time, and to those undecided at the end of the run
    #[arg(long, value_name = "HOW", default_value = "closed")]
    on_overload: How,
    /// How many milliseconds the engine may keep a frame undecided once it has looked at it
    #[arg(long, value_name = "MS", default_value_t = 1100.0)]
    hold: f64,
    /// How many milliseconds a frame may wait until the engine looks at it
    #[arg(long, value_name = "MS", default_value_t = 50.0)]
    budget: f64,
    /// Which frames wait behind one that the engine keeps undecided
    #[arg(long, value_name = "BY", default_value = "flow")]
    order: By,
    #[command(flatten)]
    join: JoinArgs,
}

/// What becomes of frames without a verdict.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum How {
    /// They pass
    Open,
    /// They are dropped
    Closed,
}

/// Which frames wait behind one that is held.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    /// Those of its flow
    Flow,
    /// All that came later the same way
    Arrival,
}

/// What was asked for, as it is told.
#[derive(serde::Serialize)]
struct Said {
    share: String,
    engine: Option<String>,
    on_death: &'static str,
    on_overload: &'static str,
    hold_us: u64,
    budget_us: u64,
    order: &'static str,
    memory: String,
    block: String,
}

/// Fewest blocks: half for other readers, some for the engine, one to go on with.
const LEAST_BLOCKS: u64 = 8;

/// Joins.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    ring_name("--share", &args.share)?;
    let (specs, policy) = (ends(&args.one, &args.other, args.join.yes)?, args.policy()?);
    let duration = args.join.duration()?;
    let identity = args.join.identity(&specs)?;
    let options = args.sharing(&identity)?;
    let [one, other] = &specs;
    let plain = Faults::parse("seed=1").map_err(usage)?;
    // Both ends receive before one sends: an xdp: queue is sent into by the socket that receives from it.
    let mut ports = vec![receive_whole(one, &plain, true)?, receive_whole(other, &plain, true)?];
    let to = [send_as(other, one)?, send_as(one, other)?];
    let (sharing, mut notes) = args.share(&identity, options)?;
    let progress = Progress::new();
    let mut inline = Inline::new([&ports[0].name, &ports[1].name], to, sharing, policy, progress.clone());
    identity.assume()?;
    notes.extend(identity.note());
    notes.extend(confine(&socket_folder(&args.share)?.into_iter().collect::<Vec<_>>()));
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    if args.join.is_told() {
        args.announce(&specs, &notes);
    }
    let news = args.join.show.news(args.join.json);
    let live = Live::start(&progress, "forwarded", args.join.show.interval(args.join.json)?);
    let answers = answer(&progress, "sent on", String::new)?;
    ports.iter_mut().flat_map(|port| &mut port.queues).for_each(|queue| queue.start());
    let run = Receive { ports, waiting: args.join.waiting(), duration, stop }.run(&mut [&mut inline]);
    drop((live, answers, news));
    report::conclude(args, &specs, &run, inline.sent())
}

impl Args {
    fn policy(&self) -> anyhow::Result<InlinePolicy> {
        let fail = |how| match how {
            How::Open => Fail::Open,
            How::Closed => Fail::Closed,
        };
        let release = match self.order {
            By::Flow => Release::ByFlow,
            By::Arrival => Release::ByArrival,
        };
        let (hold, budget) = (span("--hold", self.hold / 1e3)?, span("--budget", self.budget / 1e3)?);
        let (on_death, on_overload) = (fail(self.on_death), fail(self.on_overload));
        Ok(InlinePolicy { on_death, on_overload, hold, budget, release })
    }

    /// How the ring is to be.
    fn sharing(&self, identity: &Identity) -> anyhow::Result<SharingOptions> {
        let (memory, block) = (size("--share-memory", &self.share_memory)?, size("--share-block", &self.share_block)?);
        if memory / block < LEAST_BLOCKS {
            return Err(usage(format!(
                "--share-memory {}: {LEAST_BLOCKS} blocks of {} are the least there can be",
                self.share_memory, self.share_block
            )));
        }
        let mut access = Access { engine: Some(self.engine.clone()), ..Access::of_owner(identity.owner()) };
        if let Some(group) = &self.share_group {
            access.groups.push(group_number(group)?);
        }
        Ok(SharingOptions {
            name: self.share.clone(),
            ring: linerate_share::Options {
                slots: u32::try_from(memory / block).unwrap_or(u32::MAX),
                slot_bytes: usize::try_from(block).unwrap_or(usize::MAX),
                ..linerate_share::Options::default()
            },
            access,
            wait_for: 0,
            patience: None,
        })
    }

    /// Makes the ring, before privileges are dropped: readers believe in who began to share.
    fn share(&self, identity: &Identity, options: SharingOptions) -> anyhow::Result<(Sharing, Vec<String>)> {
        let (blocks, bytes) = (options.ring.slots, options.ring.slot_bytes);
        let sharing = Sharing::create(options).map_err(|error| match error {
            Error::Invalid(reason) => usage(format!("cannot share {}: {reason}", self.share)),
            error => identity.explain(anyhow::Error::new(error).context(format!("cannot share {}", self.share))),
        })?;
        let mut notes = vec![format!("shared as shm:{}: {blocks} blocks of {} KiB", self.share, bytes >> 10)];
        notes.extend(sharing.notes().iter().cloned());
        Ok((sharing, notes))
    }

    /// What was asked for, as text.
    fn said(&self) -> Said {
        let how = |how| match how {
            How::Open => "open",
            How::Closed => "closed",
        };
        Said {
            share: self.share.clone(),
            engine: Some(self.engine.clone()).filter(|name| !name.is_empty()),
            on_death: how(self.on_death),
            on_overload: how(self.on_overload),
            hold_us: (self.hold * 1e3) as u64,
            budget_us: (self.budget * 1e3) as u64,
            order: match self.order {
                By::Flow => "flow",
                By::Arrival => "arrival",
            },
            memory: self.share_memory.clone(),
            block: self.share_block.clone(),
        }
    }

    fn announce(&self, [one, other]: &[Spec; 2], notes: &[String]) {
        let Said { engine, on_death, on_overload, order, .. } = self.said();
        let engine = engine.map_or("any engine decides".to_owned(), |name| format!("engine {name} decides"));
        tell(format_args!("{}\n", shown(&format!("{one} <-> {other}"))));
        let lines = [
            format!("{engine}; on death {on_death}, on overload {on_overload}"),
            format!("a frame is looked at within {} ms, held for {} ms; order by {order}", self.budget, self.hold),
        ];
        for line in lines.iter().chain(notes) {
            tell(format_args!("  {}\n", shown(line)));
        }
    }
}
