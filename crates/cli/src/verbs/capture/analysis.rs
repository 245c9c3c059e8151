//! Flow records, statistics and printed lines of the packets of a capture, in the same pass.

use super::super::count::{self, CountedPorts, CountsJson};
use super::super::flows::{self, ExportArgs, FlowsJson, Level, MeterArgs, Tee, Totals, WriteFormat};
use super::super::inputs::{Inputs, is_file};
use super::super::print_options::PrintArgs;
use super::CaptureOptions;
use crate::exit::usage;
use crate::view::rates::counted;
use linerate_burst::Ledger;
use linerate_engine::{
    Consumer, CountConsumer, CountSnapshot, CountWatch, MeterConsumer, MeteringReport, Meters, PrintConsumer, Progress,
    RunReport, Selection, Stop,
};
use linerate_export::{Exporter, Format};
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Options of flows, statistics and printing.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Flows and statistics of the same packets")]
pub(super) struct AnalysisArgs {
    /// Record flows too, into a file, a directory or a collector, like linerate flows -w; repeatable
    #[arg(long, value_name = "FILE|DIR/|URL")]
    flows: Vec<String>,
    /// Report sizes and rates too, like linerate count
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    export: ExportArgs,
    #[command(flatten)]
    meter: MeterArgs,
    #[command(flatten)]
    pub(super) print: PrintArgs,
}

/// Consumers of a running capture.
pub(super) struct Analysis<'a> {
    args: &'a AnalysisArgs,
    meters: Option<Meters>,
    exporters: Vec<Box<dyn Exporter>>,
    observed: Arc<linerate_engine::flows::UnmeteredCounters>,
    metering: Option<MeterConsumer<Tee>>,
    counting: Option<CountConsumer>,
    watch: CountWatch,
    printing: Option<PrintConsumer>,
}

/// Results of a capture.
#[derive(Default)]
pub(super) struct AnalysisResult {
    metered: Option<(MeteringReport, Totals)>,
    counts: Option<CountSnapshot>,
    printed: Option<u64>,
}

impl AnalysisArgs {
    /// Returns the targets of flow records.
    pub(super) fn written(&self) -> &[String] {
        &self.flows
    }

    /// Returns the interval of new files in seconds, if given.
    pub(super) fn rotate(&self) -> Option<f64> {
        self.export.rotate()
    }

    /// Returns whether sizes and rates are counted too.
    pub(super) fn counts(&self) -> bool {
        self.stats
    }

    /// Returns whether flows or counts are an output.
    pub(super) fn has_output(&self) -> bool {
        self.stats || !self.flows.is_empty()
    }

    /// Returns whether packets are printed too.
    pub(super) fn prints(&self) -> bool {
        self.print.is_wanted()
    }

    /// Refuses two outputs on standard output; `write` is the target of packets.
    pub(super) fn check(&self, write: Option<&str>) -> anyhow::Result<()> {
        let taken = write.into_iter().chain(self.flows.iter().map(String::as_str)).any(|target| target == "-");
        if self.prints() && taken {
            return Err(usage("--print and - both go to standard output; write one to a file"));
        }
        self.print.check()
    }

    /// Returns whether lines or records go to standard output.
    pub(super) fn is_on_output(&self) -> bool {
        self.prints() || self.flows.iter().any(|target| target == "-")
    }

    /// Returns the bytes needed of each packet, 0 for all; `None` if no consumer reads them.
    pub(super) fn snap(&self, asked: &CaptureOptions) -> Option<u32> {
        let looks = |own: &Selection| !own.also.is_empty() || own.shard.is_some();
        let is_whole = looks(&asked.flows) || !asked.flows.filter.is_empty();
        let flows = (!self.flows.is_empty()).then(|| if is_whole { 0 } else { self.meter.snap() });
        let count = (self.stats && looks(&asked.count)).then_some(0);
        let print = self.prints().then(|| asked.print.snap());
        let wanted = || [flows, count, print].into_iter().flatten();
        if wanted().any(|snap| snap == 0) { Some(0) } else { wanted().max() }
    }
}

impl<'a> Analysis<'a> {
    /// Allocates memory before ports open; `writes`: capture files are written too.
    pub(super) fn new(args: &'a AnalysisArgs, writes: bool, is_quiet: bool) -> anyhow::Result<Self> {
        args.export.check(&args.flows, WriteFormat::default(), writes)?;
        let usual = if args.flows.iter().any(|target| is_zeek(target)) { Level::Tcp } else { Level::Counters };
        let mut config = args.meter.config(usual)?;
        let meters = (!args.flows.is_empty()).then(|| args.meter.meters(&mut config, is_quiet)).transpose()?;
        let watch = CountWatch::new();
        Ok(Analysis {
            args,
            meters,
            exporters: Vec::new(),
            observed: Arc::default(),
            metering: None,
            counting: None,
            watch,
            printing: None,
        })
    }

    /// Returns whether nothing is to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.args.flows.is_empty() && !self.args.stats && !self.args.prints()
    }

    /// Opens the targets with the current privileges. Returns the directories in which files are created.
    pub(super) fn open(&mut self) -> anyhow::Result<Vec<OwnedFd>> {
        self.exporters = self.args.export.exporters_of(&self.args.flows, WriteFormat::default(), &self.observed)?;
        Ok(flows::made_in(&self.exporters)?)
    }

    /// Starts the consumers; one of them updates `progress`, if given.
    pub(super) fn start(
        &mut self,
        asked: &CaptureOptions,
        detail: (bool, bool),
        stop: &Stop,
        progress: Option<&Arc<Progress>>,
    ) -> anyhow::Result<()> {
        if let Some(meters) = self.meters.take() {
            let records = Tee::start(std::mem::take(&mut self.exporters), stop.clone())?;
            let metering =
                MeterConsumer::new(meters, asked.flows.clone(), records).observed(Arc::clone(&self.observed));
            self.metering = Some(match progress {
                Some(progress) => metering.progress(Arc::clone(progress)),
                None => metering,
            });
        }
        self.counting = self.args.stats.then(|| {
            let counting = CountConsumer::new(asked.count.clone(), false).watch(self.watch.clone());
            match progress.filter(|_| self.metering.is_none()) {
                Some(progress) => counting.progress(Arc::clone(progress)),
                None => counting,
            }
        });
        self.printing = self.args.prints().then(|| {
            let has_others = progress.is_none() || !self.args.flows.is_empty();
            let specs = &asked.inputs.specs;
            let lines = self.args.print.lines(detail, specs.len() > 1 && !specs.iter().all(is_file));
            let printing = PrintConsumer::new(asked.print.clone(), lines, has_others && !specs.iter().all(is_file));
            match progress.filter(|_| self.metering.is_none() && self.counting.is_none()) {
                Some(progress) => printing.progress(Arc::clone(progress)),
                None => printing,
            }
        });
        Ok(())
    }

    /// Returns a function that describes the results so far.
    pub(super) fn so_far(&self, inputs: &Inputs) -> impl FnMut() -> String + Send + use<> {
        let flows = self.metering.as_ref().map(|metering| metering.records());
        let counts = self.counting.is_some().then(|| (CountedPorts::new(&inputs.specs), self.watch.clone()));
        move || {
            let flows = flows.as_ref().map(|records| flows::so_far(records));
            let counts = counts.as_ref().map(|(subject, watch)| count::summary(subject, false, &watch.counts()));
            flows.unwrap_or_default() + &counts.unwrap_or_default()
        }
    }

    /// Returns a function that closes the record files and starts new ones.
    pub(super) fn reopen(&self, report: fn(String)) -> impl FnMut() + Send + use<> {
        let records = self.metering.as_ref().map(|metering| metering.records());
        move || records.iter().for_each(|records| flows::locked(records).reopen(report))
    }

    /// Returns the consumers of packets.
    pub(super) fn consumers(&mut self) -> impl Iterator<Item = &mut dyn Consumer> {
        let metering = self.metering.as_mut().map(|metering| metering as &mut dyn Consumer);
        let counting = self.counting.as_mut().map(|counting| counting as &mut dyn Consumer);
        let printing = self.printing.as_mut().map(|printing| printing as &mut dyn Consumer);
        metering.into_iter().chain(counting).chain(printing)
    }

    /// Returns the results, and whether all records could be written.
    pub(super) fn finish(self, run: &mut RunReport) -> (AnalysisResult, anyhow::Result<()>) {
        let (counts, printed) = (self.counting.map(CountConsumer::done), self.printing.map(PrintConsumer::done));
        let Some(metering) = self.metering else { return (AnalysisResult { metered: None, counts, printed }, Ok(())) };
        let (metered, records) = metering.done();
        run.ledger.set_branch("flows");
        let (totals, written) = records.finish(run.failure.is_some(), &mut run.ledger);
        run.ledger.set_branch("");
        (AnalysisResult { metered: Some((metered, totals)), counts, printed }, written)
    }
}

impl AnalysisResult {
    /// Returns the report.
    pub(super) fn text(&self, inputs: &Inputs, ledger: &Ledger) -> String {
        let flows =
            self.metered.as_ref().map(|(metered, totals)| flows::summary(metered, totals, ledger, inputs.are_files()));
        let printed = self.printed.map(|frames| format!("{} printed\n", counted(frames, "packet")));
        flows.unwrap_or_default() + &self.counted(inputs) + &printed.unwrap_or_default()
    }

    /// Returns the statistics as text; empty without --stats.
    pub(super) fn counted(&self, inputs: &Inputs) -> String {
        let counts =
            self.counts.as_ref().map(|counts| count::summary(&CountedPorts::new(&inputs.specs), false, counts));
        counts.unwrap_or_default()
    }

    /// Returns the results for the JSON document.
    pub(super) fn json(&self, inputs: &Inputs, ledger: &Ledger) -> AnalysisJson<'_> {
        AnalysisJson {
            flows: self
                .metered
                .as_ref()
                .map(|(metered, totals)| FlowsJson::new(metered, totals, ledger, inputs.are_files())),
            stats: self.counts.as_ref().map(|counts| CountsJson::new(&CountedPorts::new(&inputs.specs), false, counts)),
            printed: self.printed,
        }
    }
}

/// Results as in `linerate/flows/1` and `linerate/count/1`, without the fields of the run.
#[derive(Serialize)]
pub(super) struct AnalysisJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<FlowsJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<CountsJson>,
    /// Number of printed packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    printed: Option<u64>,
}

fn is_zeek(path: &str) -> bool {
    Format::of_path(path, None).is_ok_and(|(format, _)| format.is_of_connections())
}
