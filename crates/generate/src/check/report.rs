//! Results of all streams: a summary, and a row per stream.

use super::gaps::Gaps;
use super::histogram::Sums;
use super::stream::Stream;
use super::{Check, LiveRow};
use crate::rate::{FCS, L1_OVERHEAD};
use linerate_burst::{Desc, Nanos};
use serde::Serialize;

/// Counts at the end of a run.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    check: &'a Check,
    sent: Option<&'a [u64]>,
}

/// Results of one stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamRow {
    /// Stream number.
    pub stream: u32,
    /// Identification of its frames: `trailer`, or `count`.
    pub mark: &'static str,
    /// Frame counts.
    #[serde(flatten)]
    pub counts: FrameCounts,
    /// Times and rates.
    #[serde(flatten)]
    pub pace: Pace,
    /// Latencies.
    #[serde(flatten)]
    pub delay: Delay,
}

/// Results of all streams together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckSummary {
    /// Streams with frames sent or received.
    pub streams: u64,
    /// Streams with a loss.
    pub streams_with_loss: u64,
    /// Source of `lost`: `sent` counts, or `sequence` numbers only, up to the highest of each stream.
    pub lost_by: &'static str,
    /// Frame counts.
    #[serde(flatten)]
    pub counts: FrameCounts,
    /// Frames of ours that lost their trailer: their streams are unknown.
    pub damaged: u64,
    /// Frames that are not ours.
    pub foreign: u64,
    /// Frames whose end was not captured.
    pub cut: u64,
    /// Frames of streams above the limit, which have no memory.
    pub over_limit: u64,
    /// Times and rates.
    #[serde(flatten)]
    pub pace: Pace,
    /// Latencies.
    #[serde(flatten)]
    pub delay: Delay,
    /// Errors of the gaps between frames; only where all gaps are expected to be equal.
    #[serde(flatten)]
    pub gap: Option<GapError>,
}

/// Deviation of the gaps between frames, by receive timestamps, from the expected gap. A lost frame makes a long gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GapError {
    /// Expected gap in nanoseconds.
    pub gap_wanted_ns: f64,
    /// Median error.
    pub gap_error_p50_ns: u64,
    /// 99th percentile of the error.
    pub gap_error_p99_ns: u64,
    /// Maximum error.
    pub gap_error_max_ns: u64,
}

impl GapError {
    fn new(gaps: &Gaps) -> Self {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| gaps.errors.quantile(part).as_nanos() as u64);
        GapError { gap_wanted_ns: gaps.wanted, gap_error_p50_ns: p50, gap_error_p99_ns: p99, gap_error_max_ns: max }
    }
}

/// Counts of frames by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FrameCounts {
    /// Sent; if the sender reports it.
    pub sent: Option<u64>,
    /// Received, duplicates included.
    pub received: u64,
    /// Their bytes on the wire, without FCS.
    pub bytes: u64,
    /// Not received: of those sent, else of all up to the highest number.
    pub lost: u64,
    /// Lost frames with numbers below the lowest received: these were sent before the receiver started, if it started
    /// late.
    pub lost_before_first: u64,
    /// Received more than once.
    pub duplicated: u64,
    /// Received after one with a greater number (RFC 4737).
    pub reordered: u64,
    /// Maximum number of frames with greater numbers received before a reordered one.
    pub reorder_extent: u64,
    /// Received too late to know whether they were received before: they count as lost.
    pub stale: u64,
    /// Received with a wrong checksum.
    pub corrupted: u64,
}

/// Times and rates of received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pace {
    /// Time of the first frame, nanoseconds of UTC.
    pub first_time_ns: Option<u64>,
    /// Time of the last frame.
    pub last_time_ns: Option<u64>,
    /// Seconds from the first to the last frame.
    pub seconds: f64,
    /// Million frames per second in that time: one gap fewer than frames.
    pub mpps: f64,
    /// With preamble, FCS and gap.
    pub gbps_l1: f64,
    /// With FCS.
    pub gbps_l2: f64,
}

/// Latencies in nanoseconds: percentiles to 3.1 %, extremes exact. Duplicates and stale frames are excluded.
/// Percentiles below zero, as of clocks that differ, are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delay {
    /// Minimum.
    pub latency_min_ns: Option<i64>,
    /// Median.
    pub latency_p50_ns: Option<i64>,
    /// 90th percentile.
    pub latency_p90_ns: Option<i64>,
    /// 99th percentile.
    pub latency_p99_ns: Option<i64>,
    /// 99.9th percentile.
    pub latency_p999_ns: Option<i64>,
    /// Maximum.
    pub latency_max_ns: Option<i64>,
    /// Delay variation as in RFC 5481, section 4.2: p99.9 less the minimum.
    pub pdv_p999_ns: Option<i64>,
    /// Delay variation as in RFC 3393: the mean absolute difference between a frame and its predecessor, of frames that
    /// were received right after their predecessor.
    pub ipdv_mean_ns: Option<f64>,
    /// Maximum such difference; 4,294,967,295 stands for all above.
    pub ipdv_max_ns: Option<u32>,
}

/// Counts of a stream without trailers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedStream {
    frames: u64,
    bytes: u64,
    corrupted: u64,
    span: Option<(Nanos, Nanos)>,
}

impl CountedStream {
    pub(super) fn add(&mut self, desc: &Desc, corrupted: bool) {
        self.frames += 1;
        self.bytes += u64::from(desc.wire);
        self.corrupted += u64::from(corrupted);
        let (first, last) = self.span.unwrap_or((desc.time, desc.time));
        self.span = Some((first.min(desc.time), last.max(desc.time)));
    }

    /// Returns the number of frames received.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the live row, given the frames sent some time ago.
    pub(super) fn live(&self, stream: u32, sent: u64) -> LiveRow {
        LiveRow { stream, received: self.frames, lost: sent.saturating_sub(self.frames) }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(check: &'a Check, sent: Option<&'a [u64]>) -> Self {
        Report { check, sent }
    }

    /// Returns a row for each stream with frames sent or received, ordered by number.
    pub fn rows(&self) -> impl Iterator<Item = StreamRow> + use<'a> {
        let Report { check, sent } = *self;
        let counted = check.counted.last_key_value().map_or(0, |(id, _)| *id as usize + 1);
        let end = check.streams.end().max(sent.map_or(0, <[u64]>::len)).max(counted);
        (0..end as u32)
            .filter_map(move |id| row(check, id, sent.map(|sent| sent.get(id as usize).copied().unwrap_or(0))))
    }

    /// Returns the row of one stream, if it has frames sent or received.
    pub fn row(&self, stream: u32) -> Option<StreamRow> {
        let sent = self.sent.map(|sent| sent.get(stream as usize).copied().unwrap_or(0));
        row(self.check, stream, sent)
    }

    /// Returns the mean latency of one stream in nanoseconds, to 3.1 %, if known.
    pub fn mean_latency(&self, stream: u32) -> Option<i64> {
        let stream = self.check.streams.get(stream)?;
        let mut latencies = Sums::new();
        latencies.add(&stream.latencies);
        latencies.mean((stream.least, stream.most))
    }

    /// Returns the results of all streams together.
    pub fn summary(&self) -> CheckSummary {
        let totals = self.check.totals();
        let mut summary = CheckSummary {
            lost_by: if self.sent.is_some() { "sent" } else { "sequence" },
            damaged: totals.damaged,
            foreign: totals.foreign(),
            cut: totals.cut,
            over_limit: totals.over_limit,
            gap: self.check.gaps.as_ref().map(GapError::new),
            ..CheckSummary::default()
        };
        let (mut latencies, mut extremes, mut variation) = (Sums::new(), (i64::MAX, i64::MIN), Variation::default());
        for row in self.rows() {
            summary.streams += 1;
            summary.streams_with_loss += u64::from(row.counts.lost > 0);
            summary.counts.add(&row.counts);
            summary.pace.span(&row.pace);
            if let Some(stream) = self.check.streams.get(row.stream) {
                latencies.add(&stream.latencies);
                extremes = (extremes.0.min(stream.least), extremes.1.max(stream.most));
                variation.add(stream);
            }
        }
        summary.pace = Pace::new(
            summary.counts.received,
            summary.counts.bytes,
            summary.pace.first_time_ns.zip(summary.pace.last_time_ns),
        );
        summary.delay = Delay::new(&latencies, extremes, &variation);
        summary
    }
}

fn row(check: &Check, id: u32, sent: Option<u64>) -> Option<StreamRow> {
    if let Some(counted) = check.counted.get(&id) {
        let CountedStream { frames, bytes, corrupted, span } = *counted;
        let lost = sent.map_or(0, |sent| sent.saturating_sub(frames));
        let counts = FrameCounts { sent, received: frames, bytes, lost, corrupted, ..FrameCounts::default() };
        let span = span.map(|(first, last)| (first.0, last.0));
        return Some(StreamRow {
            stream: id,
            mark: "count",
            counts,
            pace: Pace::new(frames, bytes, span),
            ..StreamRow::default()
        });
    }
    let Some(stream) = check.streams.get(id) else {
        let sent = sent.filter(|sent| *sent > 0)?;
        let counts = FrameCounts { sent: Some(sent), lost: sent, ..FrameCounts::default() };
        return Some(StreamRow { stream: id, mark: "trailer", counts, ..StreamRow::default() });
    };
    let mut latencies = Sums::new();
    latencies.add(&stream.latencies);
    let mut variation = Variation::default();
    variation.add(stream);
    Some(StreamRow {
        stream: id,
        mark: "trailer",
        counts: FrameCounts::of(stream, sent),
        pace: Pace::new(stream.received(), stream.bytes, Some((stream.first, stream.last))),
        delay: Delay::new(&latencies, (stream.least, stream.most), &variation),
    })
}

impl FrameCounts {
    fn of(stream: &Stream, sent: Option<u64>) -> Self {
        FrameCounts {
            sent,
            received: stream.received(),
            bytes: stream.bytes,
            lost: sent.map_or(stream.missing, |sent| sent.saturating_sub(stream.distinct())),
            lost_before_first: stream.lowest,
            duplicated: stream.duplicated,
            reordered: stream.reordered,
            reorder_extent: stream.extent.into(),
            stale: stream.stale,
            corrupted: stream.corrupted,
        }
    }

    fn add(&mut self, other: &FrameCounts) {
        self.sent = self.sent.or(other.sent.map(|_| 0)).map(|sum| sum + other.sent.unwrap_or(0));
        self.received += other.received;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.lost_before_first += other.lost_before_first;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.reorder_extent = self.reorder_extent.max(other.reorder_extent);
        self.stale += other.stale;
        self.corrupted += other.corrupted;
    }
}

impl Pace {
    fn new(frames: u64, bytes: u64, span: Option<(u64, u64)>) -> Self {
        let (first_time_ns, last_time_ns) = span.unzip();
        let nanos = span.map_or(0, |(first, last)| last.saturating_sub(first));
        // The last frame ends the time span and is not part of it.
        let gaps = frames.saturating_sub(1) as f64;
        let per_nano = if nanos == 0 { 0.0 } else { gaps / nanos as f64 };
        let mean_bytes = bytes as f64 / frames.max(1) as f64;
        let gbps = |overhead: u64| (mean_bytes + overhead as f64) * 8.0 * per_nano;
        Pace {
            first_time_ns,
            last_time_ns,
            seconds: nanos as f64 / 1e9,
            mpps: per_nano * 1e3,
            gbps_l1: gbps(L1_OVERHEAD),
            gbps_l2: gbps(FCS),
        }
    }

    /// Extends the span to cover both.
    fn span(&mut self, other: &Pace) {
        self.first_time_ns = self.first_time_ns.into_iter().chain(other.first_time_ns).min();
        self.last_time_ns = self.last_time_ns.max(other.last_time_ns);
    }
}

/// Delay variation of one stream, or of several.
#[derive(Default)]
struct Variation {
    sum: u128,
    pairs: u64,
    max: u32,
}

impl Variation {
    fn add(&mut self, stream: &Stream) {
        self.sum += u128::from(stream.variation);
        self.pairs += stream.pairs();
        self.max = self.max.max(stream.variation_max);
    }
}

impl Delay {
    fn new(latencies: &Sums, extremes: (i64, i64), variation: &Variation) -> Self {
        let [p50, p90, p99, p999] = latencies.quantiles([0.5, 0.9, 0.99, 0.999], extremes);
        let known = |value: i64| (extremes.0 <= extremes.1).then_some(value);
        let mean = variation.sum as f64 / variation.pairs.max(1) as f64;
        Delay {
            latency_min_ns: known(extremes.0),
            latency_p50_ns: p50,
            latency_p90_ns: p90,
            latency_p99_ns: p99,
            latency_p999_ns: p999,
            latency_max_ns: known(extremes.1),
            pdv_p999_ns: p999.map(|p999| p999 - extremes.0),
            ipdv_mean_ns: (variation.pairs > 0).then_some(mean),
            ipdv_max_ns: (variation.pairs > 0).then_some(variation.max),
        }
    }
}
