//! Options that keep frames in memory until something happens.

use super::super::inputs::{Inputs, check_filter, span};
use crate::exit::usage;
use anyhow::Context;
use linerate_burst::Sink;
use linerate_engine::capture::trigger::{Triggered, Triggers};
use linerate_generate::rate::Rate;
use linerate_port::spec::parse_size;
use signal_hook::consts::SIGUSR2;
use signal_hook::flag;

/// Options of triggers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Recordings that wait for --trigger, --trigger-rate, or SIGUSR2 by --before")]
pub(super) struct TriggerArgs {
    /// Keep the last S seconds in memory, and write them with a trigger
    #[arg(long, value_name = "S")]
    before: Option<f64>,
    /// The most memory for that
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    before_memory: String,
    /// Write on for S seconds from the last trigger on; the next one then begins another file
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    after: f64,
    /// Frames that pass this text are triggers
    #[arg(long, value_name = "FILTER")]
    trigger: Option<String>,
    /// As many frames or bits as this rate makes in 100 ms are a trigger (as in 100kpps, 2gbps)
    #[arg(long, value_name = "RATE")]
    trigger_rate: Option<Rate>,
}

impl TriggerArgs {
    /// Whether there is something to wait for.
    pub(super) fn is_wanted(&self) -> bool {
        self.before.is_some() || self.trigger.is_some() || self.trigger_rate.is_some()
    }

    /// Mistakes before anything is opened; `is_recording` says that files follow each other.
    pub(super) fn check(&self, inputs: &Inputs, is_recording: bool) -> anyhow::Result<()> {
        if !self.is_wanted() {
            return Ok(());
        }
        if !is_recording {
            return Err(usage("--before and --trigger want files that follow each other: -w DIR/, -C or -G"));
        }
        if let Some(text) = &self.trigger {
            check_filter(text, &inputs.specs)?;
        }
        if self.trigger_rate.as_ref().is_some_and(|rate| matches!(rate, Rate::Top)) {
            return Err(usage("--trigger-rate: a rate in pps or bps"));
        }
        self.triggers().map(drop)
    }

    /// Puts it in front of a sink. From here on SIGUSR2 is a trigger.
    pub(super) fn before(&self, sink: Box<dyn Sink>) -> anyhow::Result<Box<dyn Sink>> {
        if !self.is_wanted() {
            return Ok(sink);
        }
        let triggers = self.triggers()?;
        flag::register(SIGUSR2, triggers.manual.flag()).context("cannot handle signals")?;
        Ok(Box::new(Triggered::new(triggers, sink)))
    }

    fn triggers(&self) -> anyhow::Result<Triggers> {
        let memory = parse_size(&self.before_memory).and_then(|bytes| usize::try_from(bytes).ok());
        Ok(Triggers {
            before: span("--before", self.before.unwrap_or_default())?,
            memory: memory.ok_or_else(|| usage(format!("--before-memory {}: not a size", self.before_memory)))?,
            after: span("--after", self.after)?,
            filter: self.trigger.clone().unwrap_or_default(),
            rate: self.trigger_rate,
            ..Triggers::default()
        })
    }
}
