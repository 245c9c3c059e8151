//! The harness: a case is our sides, their peers and a limit of the machine, measured in turn in each round.

use anyhow::Context;
use linerate_generate::rate::FCS;
use serde::Serialize;
use std::time::{Duration, Instant};

/// One round of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Packets, or another unit of the table.
    pub count: u64,
    /// Seconds that the rate is computed from.
    pub seconds: f64,
    /// CPU seconds of the measured thread, if they are not `seconds`.
    pub cpu: Option<f64>,
    pub lost: Option<u64>,
    /// Median, 99th percentile and maximum of a delay, in microseconds.
    pub delays: [Option<f64>; 3],
}

impl Sample {
    pub(crate) fn new(count: u64, seconds: f64) -> Self {
        Sample { count, seconds, ..Sample::default() }
    }

    /// Measures `work`, which returns its count, by the clock.
    pub(crate) fn timed(work: impl FnOnce() -> anyhow::Result<u64>) -> anyhow::Result<Self> {
        let started = Instant::now();
        let count = work()?;
        Ok(Sample::new(count, started.elapsed().as_secs_f64()))
    }

    /// Measures `work` by the CPU time of this thread: other work on the machine does not count.
    pub(crate) fn by_cpu(work: impl FnOnce() -> anyhow::Result<u64>) -> anyhow::Result<Self> {
        let before = crate::machine::thread_cpu();
        let count = work()?;
        Ok(Sample::cpu(count, crate::machine::thread_cpu() - before))
    }

    /// A rate by CPU time.
    pub(crate) fn cpu(count: u64, used: Duration) -> Self {
        Sample { cpu: Some(used.as_secs_f64()), ..Sample::new(count, used.as_secs_f64()) }
    }
}

/// Measures one round.
type Round<S> = Box<dyn FnMut() -> anyhow::Result<S>>;

/// A program or a loop that is measured.
pub(crate) struct Side<S = Sample> {
    pub name: String,
    round: Round<S>,
    pub samples: Vec<S>,
}

impl<S> Side<S> {
    pub(crate) fn new(name: impl Into<String>, round: impl FnMut() -> anyhow::Result<S> + 'static) -> Self {
        Side { name: name.into(), round: Box::new(round), samples: Vec::new() }
    }
}

/// Measures all sides in turn, so that a machine whose speed changes changes all of them. No round starts after `enough`.
pub(crate) fn alternate<'a, S: 'a>(
    rounds: usize,
    enough: Duration,
    sides: impl Iterator<Item = &'a mut Side<S>>,
) -> anyhow::Result<()> {
    let (started, mut sides) = (Instant::now(), sides.collect::<Vec<_>>());
    for round in 0..rounds {
        if round > 0 && started.elapsed() > enough {
            break;
        }
        for side in &mut sides {
            side.samples.push((side.round)().with_context(|| side.name.clone())?);
        }
    }
    Ok(())
}

/// Completes a row once its figures are known.
type Finish = Box<dyn FnOnce(&mut Row)>;

/// A side of ours, and the row that it becomes.
pub(crate) struct Ours {
    side: Side,
    row: Row,
    job: u8,
    baseline: Option<usize>,
    finish: Option<Finish>,
}

impl Ours {
    pub(crate) fn new(name: impl Into<String>, round: impl FnMut() -> anyhow::Result<Sample> + 'static) -> Self {
        let row = Row { layout: "contiguous", ports: 1, cores: 1, ..Row::default() };
        Ours { side: Side::new(name, round), row, job: 0, baseline: None, finish: None }
    }

    /// Compares it with the peers of this job, or with those of job 0 if it has none.
    pub(crate) fn job(mut self, job: u8) -> Self {
        self.job = job;
        self
    }

    /// Changes facts of the row that are known before it is measured.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Row)) -> Self {
        change(&mut self.row);
        self
    }

    /// Changes the row after it is measured.
    pub(crate) fn finish(mut self, finish: impl FnOnce(&mut Row) + 'static) -> Self {
        self.finish = Some(Box::new(finish));
        self
    }

    /// Compares it with another side of ours, by its number in the case; `finish` finds the ratio in the row.
    pub(crate) fn baseline(mut self, number: usize) -> Self {
        self.baseline = Some(number);
        self
    }
}

/// Sides that are measured in turn, in the same rounds.
#[derive(Default)]
pub(crate) struct Case {
    /// Size of packets with FCS; `None` for a mix.
    pub size: Option<usize>,
    /// Mean captured bytes of a packet; 0 if the case has other units.
    pub bytes: f64,
    pub ours: Vec<Ours>,
    /// Peers, each with its job.
    pub peers: Vec<(u8, Side)>,
    pub limit: Option<(&'static str, Side)>,
}

/// Prepares a case; memory and hosts of a case live until it is measured.
pub(crate) type Prepare = Box<dyn FnOnce() -> anyhow::Result<Case>>;

/// Boxes a function that prepares a case.
pub(crate) fn case(prepare: impl FnOnce() -> anyhow::Result<Case> + 'static) -> Prepare {
    Box::new(prepare)
}

impl Case {
    /// A case of packets of one size, with FCS.
    pub(crate) fn sized(size: usize) -> Self {
        Case { size: Some(size), bytes: (size - FCS as usize) as f64, ..Case::default() }
    }

    /// Adds a side of ours.
    pub(crate) fn ours(mut self, ours: Ours) -> Self {
        self.ours.push(ours);
        self
    }

    /// Adds a peer of job 0.
    pub(crate) fn peer(mut self, name: &str, round: impl FnMut() -> anyhow::Result<Sample> + 'static) -> Self {
        self.peers.push((0, Side::new(name, round)));
        self
    }

    /// Sets the limit.
    pub(crate) fn limit(mut self, name: &'static str, round: impl FnMut() -> anyhow::Result<Sample> + 'static) -> Self {
        self.limit = Some((name, Side::new(name, round)));
        self
    }

    /// Measures all sides and returns their rows.
    pub(crate) fn measure(mut self, bench: &'static str, rounds: usize) -> anyhow::Result<Group> {
        let ours = self.ours.iter_mut().map(|ours| &mut ours.side);
        let peers = self.peers.iter_mut().map(|(_, side)| side);
        let limit = self.limit.iter_mut().map(|(_, side)| side);
        alternate(rounds, Duration::MAX, ours.chain(peers).chain(limit)).with_context(|| format!("bench {bench}"))?;
        let peers: Vec<(u8, PeerFigures)> =
            self.peers.iter().map(|(job, side)| (*job, PeerFigures::of(side))).collect();
        let limit = self.limit.as_ref().map(|(name, side)| (*name, PeerFigures::of(side)));
        let baselines: Vec<Option<f64>> = self
            .ours
            .iter()
            .map(|ours| ours.baseline.and_then(|number| ours.side.paired(&self.ours[number].side)))
            .collect();
        let mut group = Group { others: peers.iter().map(|(_, peer)| peer.clone()).collect(), ..Group::default() };
        group.others.extend(limit.iter().map(|(_, limit)| PeerFigures { is_limit: true, ..limit.clone() }));
        for (ours, of_baseline) in self.ours.into_iter().zip(baselines) {
            let job = if peers.iter().any(|(job, _)| *job == ours.job) { ours.job } else { 0 };
            let peers = peers.iter().filter(|(of, _)| *of == job).map(|(_, peer)| peer.clone()).collect();
            let bytes = ours.row.size.map_or(self.bytes, |size| (size - FCS as usize) as f64);
            let mut row = ours.side.row(Row { bench, size: ours.row.size.or(self.size), ..ours.row }, bytes);
            row.compare(peers, limit.as_ref());
            row.of_baseline = of_baseline;
            if let Some(finish) = ours.finish {
                finish(&mut row);
            }
            group.rows.push(row);
        }
        Ok(group)
    }
}

/// Rows of one case, and the sides that they are compared with.
#[derive(Default)]
pub(crate) struct Group {
    pub rows: Vec<Row>,
    pub others: Vec<PeerFigures>,
}

/// Figures of a peer or a limit.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PeerFigures {
    pub name: String,
    #[serde(skip)]
    pub is_limit: bool,
    /// `None` if it counted nothing.
    pub mpps: Option<f64>,
    pub cpu_ns: Option<f64>,
    pub lost: Option<u64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub max_us: Option<f64>,
}

impl PeerFigures {
    fn of(side: &Side) -> Self {
        let [p50_us, p99_us, max_us] = side.delays();
        let name = side.name.clone();
        PeerFigures {
            name,
            is_limit: false,
            mpps: side.rate(),
            cpu_ns: side.cpu_ns(),
            lost: side.lost(),
            p50_us,
            p99_us,
            max_us,
        }
    }
}

/// One row of a table; names as in docs/json.md. Only [`KEPT`] figures are `null` in JSON, others are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub bench: &'static str,
    pub case: String,
    /// `contiguous` or `scattered` source memory.
    pub layout: &'static str,
    /// Packet size with FCS; `None` for a mix.
    pub size: Option<usize>,
    pub ports: usize,
    pub cores: usize,
    pub mpps: f64,
    pub mpps_min: f64,
    pub mpps_max: f64,
    pub gbps_l2: f64,
    pub peer: Option<String>,
    pub peer_mpps: Option<f64>,
    pub limit: Option<&'static str>,
    pub limit_mpps: Option<f64>,
    /// Rate compared with the first peer, or with the limit if the row has no peer.
    pub ratio: Option<f64>,
    pub rounds: usize,
    /// `None` with one round.
    pub spread_percent: Option<f64>,
    pub peers: Vec<PeerFigures>,
    /// Active flows.
    pub flows: Option<usize>,
    /// Time per packet.
    pub ns: Option<f64>,
    /// CPU time per packet.
    pub cpu_ns: Option<f64>,
    pub lost: Option<u64>,
    /// Memory written, in GB/s, and the rate of a plain copy.
    pub gbytes: Option<f64>,
    pub copy_gbytes: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub max_us: Option<f64>,
    /// Rate compared with a wire of the same ports.
    pub of_wire: Option<f64>,
    /// Rate compared with the baseline of the side, in the middle pair of rounds.
    #[serde(skip)]
    pub of_baseline: Option<f64>,
    pub remark: String,
}

/// Keys of rows that are always there.
pub(crate) const KEPT: [&str; 7] = ["size", "peer", "peer_mpps", "limit", "limit_mpps", "ratio", "spread_percent"];

impl Row {
    fn compare(&mut self, peers: Vec<PeerFigures>, limit: Option<&(&'static str, PeerFigures)>) {
        let ratio =
            |mpps: f64, other: Option<f64>| other.filter(|other| mpps > 0.0 && *other > 0.0).map(|other| mpps / other);
        if let Some((name, limit)) = limit {
            (self.limit, self.limit_mpps) = (Some(*name), limit.mpps);
            self.ratio = ratio(self.mpps, limit.mpps);
        }
        if let Some(peer) = peers.first() {
            (self.peer, self.peer_mpps) = (Some(peer.name.clone()), peer.mpps);
            self.ratio = ratio(self.mpps, peer.mpps);
        }
        self.peers = peers;
    }

    /// Rate compared with the limit.
    pub(crate) fn of_limit(&self) -> Option<f64> {
        self.limit_mpps.filter(|limit| *limit > 0.0 && self.mpps > 0.0).map(|limit| self.mpps / limit)
    }
}

/// The middle one of some figures, if there are any.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl Side {
    /// Rates of all rounds that counted anything, in millions per second.
    fn rates(&self) -> impl Iterator<Item = f64> {
        let counted = self.samples.iter().filter(|sample| sample.count > 0);
        counted.map(|sample| sample.count as f64 / sample.seconds.max(1e-9) / 1e6)
    }

    fn rate(&self) -> Option<f64> {
        median(self.rates())
    }

    /// Rate compared with another side, in the middle pair of rounds.
    fn paired(&self, other: &Side) -> Option<f64> {
        median(self.rates().zip(other.rates()).map(|(own, other)| own / other))
    }

    /// CPU time per packet over all rounds; `None` if the scheduler counted none.
    fn cpu_ns(&self) -> Option<f64> {
        let cpu: f64 = self.samples.iter().filter_map(|sample| sample.cpu).sum();
        let count: u64 = self.samples.iter().map(|sample| sample.count).sum();
        (cpu > 0.0 && count > 0).then(|| cpu * 1e9 / count as f64)
    }

    fn lost(&self) -> Option<u64> {
        self.samples.iter().filter_map(|sample| sample.lost).reduce(|sum, lost| sum + lost)
    }

    fn delays(&self) -> [Option<f64>; 3] {
        [0, 1, 2].map(|part| median(self.samples.iter().filter_map(|sample| sample.delays[part])))
    }

    fn row(&self, row: Row, bytes: f64) -> Row {
        let (mpps, rounds) = (self.rate().unwrap_or_default(), self.rates().count());
        let min = self.rates().reduce(f64::min).unwrap_or_default();
        let max = self.rates().reduce(f64::max).unwrap_or_default();
        let [p50_us, p99_us, max_us] = self.delays();
        Row {
            case: self.name.clone(),
            mpps,
            mpps_min: min,
            mpps_max: max,
            gbps_l2: if bytes > 0.0 { mpps * (bytes + FCS as f64) * 8.0 / 1e3 } else { 0.0 },
            rounds,
            spread_percent: (rounds > 1 && mpps > 0.0).then(|| (max - min) / mpps * 100.0),
            cpu_ns: self.cpu_ns(),
            lost: self.lost(),
            p50_us,
            p99_us,
            max_us,
            ..row
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(counts: &'static [u64]) -> impl FnMut() -> anyhow::Result<Sample> + 'static {
        let mut counts = counts.iter();
        move || Ok(Sample::new(*counts.next().unwrap(), 1.0))
    }

    #[test]
    fn rows_are_medians_compared_with_the_first_peer_of_their_job() {
        let ours = |name: &str| Ours::new(name, rounds(&[4_000_000, 2_000_000, 3_000_000]));
        let mut case = Case::sized(64).ours(ours("plain")).ours(ours("to a file").job(1)).ours(ours("other").job(2));
        case = case.peer("tcpdump", rounds(&[1_000_000; 3])).limit("drop", rounds(&[6_000_000; 3]));
        case.peers.push((1, Side::new("dumpcap", rounds(&[0; 3]))));
        let group = case.measure("capture", 3).unwrap();
        let [plain, file, other] = &group.rows[..] else { panic!("{}", group.rows.len()) };
        assert_eq!((plain.mpps, plain.ratio, plain.spread_percent.unwrap().round()), (3.0, Some(3.0), 67.0));
        assert_eq!((plain.of_limit(), plain.peer.as_deref()), (Some(0.5), Some("tcpdump")));
        // A peer that counted nothing has no rate and no ratio.
        assert_eq!((file.peer.as_deref(), file.peer_mpps, file.ratio), (Some("dumpcap"), None, None));
        assert_eq!(other.peer.as_deref(), Some("tcpdump"));
        assert_eq!(group.others.len(), 3);
        let once = Case::sized(64).ours(Ours::new("once", rounds(&[1]))).measure("x", 1).unwrap();
        assert_eq!(once.rows[0].spread_percent, None);
    }
}
