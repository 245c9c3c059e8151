//! Rounds, medians, rows.

use linerate_generate::rate::FCS;
use serde::Serialize;
use std::time::Instant;

/// One row of a table; names as in docs/json.md.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub bench: &'static str,
    pub case: String,
    /// `contiguous` or `scattered` source memory.
    pub layout: &'static str,
    /// Frame size with FCS; none for a mix.
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
    pub ratio: Option<f64>,
    pub rounds: usize,
    pub spread_percent: f64,
    /// Active flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<usize>,
    /// Time a frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<f64>,
    /// Memory written, in GB/s, and what a plain copy does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_gbytes: Option<f64>,
    /// Delays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_us: Option<f64>,
    /// Of a wire of the same ports, with nothing in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_wire: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remark: String,
}

/// Frames and seconds of each round of one side.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds(Vec<f64>);

impl Rounds {
    /// Takes one round: how many frames in how many seconds.
    pub(crate) fn add(&mut self, frames: u64, seconds: f64) {
        self.0.push(frames as f64 / seconds.max(1e-9) / 1e6);
    }

    /// Times `work`, which says how many frames it handled.
    pub(crate) fn time(&mut self, work: impl FnOnce() -> u64) {
        let started = Instant::now();
        let frames = work();
        self.add(frames, started.elapsed().as_secs_f64());
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// M frames/s in the middle round.
    pub(crate) fn median(&self) -> f64 {
        middle(self.0.clone())
    }

    /// What part of `other` it was in the middle pair of rounds that were run one after the other: a machine whose speed changes changes
    /// both.
    pub(crate) fn beside(&self, other: &Rounds) -> f64 {
        middle(self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect())
    }

    /// A row with this side's figures; frames have `bytes` captured bytes on average.
    pub(crate) fn row(&self, bench: &'static str, case: impl Into<String>, bytes: f64) -> Row {
        let (min, max) = self.0.iter().fold((f64::MAX, 0.0f64), |(min, max), mpps| (min.min(*mpps), max.max(*mpps)));
        let median = self.median();
        Row {
            bench,
            case: case.into(),
            layout: "contiguous",
            ports: 1,
            cores: 1,
            mpps: median,
            mpps_min: min,
            mpps_max: max,
            gbps_l2: median * (bytes + FCS as f64) * 8.0 / 1e3,
            rounds: self.0.len(),
            spread_percent: (max - min) / median * 100.0,
            ..Row::default()
        }
    }
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

impl Row {
    /// Sets the limit of the machine beside the row.
    pub(crate) fn limited(mut self, limit: &'static str, rounds: &Rounds) -> Self {
        self.limit = Some(limit);
        self.limit_mpps = Some(rounds.median());
        self.ratio = self.ratio.or(Some(self.mpps / rounds.median()));
        self
    }

    /// Sets a peer's figures beside the row.
    pub(crate) fn beside(mut self, peer: impl Into<String>, rounds: &Rounds) -> Self {
        self.peer = Some(peer.into());
        self.peer_mpps = Some(rounds.median());
        self.ratio = Some(self.mpps / rounds.median());
        self
    }

    /// Says how much that is of what a wire does.
    pub(crate) fn of_wire(mut self, own: &Rounds, wire: &Rounds) -> Self {
        let part = own.median() / wire.median();
        self.of_wire = Some(part);
        self.remark += &format!("; {part:.2} of a wire");
        self
    }

    /// Sets the frame size, with FCS.
    pub(crate) fn sized(mut self, size: usize) -> Self {
        self.size = Some(size);
        self
    }
}
