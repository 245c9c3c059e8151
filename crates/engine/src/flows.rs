//! Ports -> select -> flow records.
//!
//! One lane and one worker: each burst goes to the meter as its queue shows it, and nothing is copied. Several lanes are put in
//! order first, since the packets of a flow may come over all of them. Several workers have a meter and a thread each and share
//! nothing: this thread copies frames, as a rule their headers, into blocks, whole flows to one worker ([`Spread`](linerate_meter::Spread)).
//!
//! `worker`: a meter and its thread; `crew`: all of them, and the block that is filled for each; `time`: how far
//! time goes while no frame comes; `session`: the rounds.

mod crew;
mod meters;
mod session;
mod time;
mod worker;

pub use self::meters::Meters;
pub use self::worker::Load;

use self::crew::Crew;
use self::session::{Hands, Session};
use self::worker::{Shared, Worker};
use crate::capture::CaptureError;
use crate::control::{Progress, Stop};
use crate::lanes::Lanes;
use crate::select::Selection;
use crate::wait::Waiting;
use linerate_burst::{Ledger, Pick};
use linerate_meter::{Counts, Records};
use linerate_port::RxPort;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What to meter.
pub struct Metering<'a> {
    /// Where frames come from.
    pub ports: Vec<RxPort>,
    /// Which frames to meter; the slice means nothing here.
    pub selection: Selection,
    /// What meters. More than one have a thread each, beside the thread of the run.
    pub meters: Meters,
    /// What takes finished flows, from one worker at a time.
    pub records: &'a mut (dyn Records + Send),
    /// How to wait for frames.
    pub waiting: Waiting,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What was done so far.
    pub progress: Arc<Progress>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct FlowsReport {
    /// What was counted beside the flows.
    pub counts: Counts,
    /// Numbers of the link types that are not known, of the interfaces there were
    /// ([registry](https://www.tcpdump.org/linktypes.html)); their frames are counted apart.
    pub unknown_links: Vec<u16>,
    /// Frames whose time was 16 hours and more from what time it was by all others.
    pub far_frames: u64,
    /// How often most frames were suddenly of such a time, and all flows of before ended.
    pub time_jumps: u64,
    /// Bytes of memory for each flow, plain and wide ([`bytes_per_flow`](linerate_meter::Config::bytes_per_flow)).
    pub bytes_per_flow: [usize; 2],
    /// The most bytes of memory that all meters may take.
    pub most_bytes: usize,
    /// What each worker has done.
    pub workers: Vec<Load>,
    /// How long it took.
    pub elapsed: Duration,
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// Whether all queues ran dry, so that the ledger is exact.
    pub quiesced: bool,
    /// What was noteworthy, in order.
    pub events: Vec<String>,
    /// What went wrong, if anything; the records before that are complete.
    pub failure: Option<CaptureError>,
}

/// How a run goes on and ends.
struct Course {
    selection: Selection,
    waiting: Waiting,
    duration: Option<Duration>,
    stop: Stop,
    progress: Arc<Progress>,
}

impl Metering<'_> {
    /// Meters until every port has ended, a limit is reached, or stopping is requested; then ends all flows.
    pub fn run(self) -> FlowsReport {
        let Metering { ports, selection, mut meters, records, waiting, duration, stop, progress } = self;
        let course = Course { selection, waiting, duration, stop, progress };
        let lanes = Lanes::merged(ports);
        let found = lanes.len();
        if found > Pick::MAX_LANES {
            return FlowsReport { failure: Some(CaptureError::Lanes { found }), ..FlowsReport::default() };
        }
        let (bytes_per_flow, most_bytes) = (meters.config.bytes_per_flow(), meters.most_bytes());
        let report = match (meters.meters.len(), found) {
            (1, 1) => {
                let worker = Worker::new(meters.meters.remove(0));
                Session::new(lanes, Hands::Here(Box::new(worker), records), course).run()
            }
            (1, _) => Session::new(lanes, Hands::Crew(Box::new(Crew::own(meters, records))), course).run(),
            _ => {
                let records: Shared<'_> = Mutex::new(records);
                std::thread::scope(|scope| match Crew::hire(scope, meters, &records) {
                    Ok(crew) => Session::new(lanes, Hands::Crew(Box::new(crew)), course).run(),
                    Err(error) => FlowsReport { failure: Some(CaptureError::Worker(error)), ..FlowsReport::default() },
                })
            }
        };
        FlowsReport { bytes_per_flow, most_bytes, ..report }
    }
}
