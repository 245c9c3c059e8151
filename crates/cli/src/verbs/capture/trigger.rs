//! Options of triggers: packets stay in memory until one fires.

use super::super::inputs::{Inputs, check_filter, span};
use crate::exit::usage;
use anyhow::Context;
use linerate_burst::Sink;
use linerate_engine::capture::trigger::{TriggerBuffer, Triggers};
use linerate_generate::rate::Rate;
use linerate_port::spec::parse_size;
use signal_hook::consts::SIGUSR2;
use signal_hook::flag;

/// Options of triggers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Triggers")]
pub(super) struct TriggerArgs {
    /// Keep the last S seconds in memory and write them at a trigger (--trigger, --trigger-rate, SIGUSR2)
    #[arg(long, value_name = "S")]
    before: Option<f64>,
    /// Memory limit of --before
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    before_memory: String,
    /// Continue writing for S seconds after the last trigger; a later trigger starts a new file
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    after: f64,
    /// Trigger on packets that match this filter
    #[arg(long, value_name = "FILTER")]
    trigger: Option<String>,
    /// Trigger on a rate over 100 ms, such as 100kpps or 2gbps
    #[arg(long, value_name = "RATE")]
    trigger_rate: Option<Rate>,
}

impl TriggerArgs {
    /// Returns whether a trigger is set.
    pub(super) fn is_wanted(&self) -> bool {
        self.before.is_some() || self.trigger.is_some() || self.trigger_rate.is_some()
    }

    /// Checks the options before anything is opened; `is_recording`: files are rotated.
    pub(super) fn check(&self, inputs: &Inputs, is_recording: bool) -> anyhow::Result<()> {
        if !self.is_wanted() {
            return Ok(());
        }
        if !is_recording {
            return Err(usage("--before and --trigger need rotated files: -w DIR/, -C or -G"));
        }
        if let Some(text) = &self.trigger {
            check_filter(text, &inputs.specs)?;
        }
        if self.trigger_rate.as_ref().is_some_and(|rate| matches!(rate, Rate::Top)) {
            return Err(usage("--trigger-rate: expected a rate in pps or bps, such as 100kpps"));
        }
        self.triggers().map(drop)
    }

    /// Puts the trigger before a sink, and makes SIGUSR2 a trigger.
    pub(super) fn before(&self, sink: Box<dyn Sink>) -> anyhow::Result<Box<dyn Sink>> {
        if !self.is_wanted() {
            return Ok(sink);
        }
        let triggers = self.triggers()?;
        flag::register(SIGUSR2, triggers.manual.flag()).context("cannot handle signals")?;
        Ok(Box::new(TriggerBuffer::new(triggers, sink)))
    }

    fn triggers(&self) -> anyhow::Result<Triggers> {
        let memory = parse_size(&self.before_memory).and_then(|bytes| usize::try_from(bytes).ok());
        Ok(Triggers {
            before: span("--before", self.before.unwrap_or_default())?,
            memory: memory.ok_or_else(|| {
                usage(format!(
                    "--before-memory {}: invalid size; expected a number and a unit, such as 64MiB",
                    self.before_memory
                ))
            })?,
            after: span("--after", self.after)?,
            filter: self.trigger.clone().unwrap_or_default(),
            rate: self.trigger_rate,
            ..Triggers::default()
        })
    }
}
