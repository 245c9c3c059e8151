//! Where records go.

use super::json::FlowJson;
use anyhow::Context;
use linerate_engine::Stop;
use linerate_meter::{Flow, Records};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;

/// Where records are written, a JSON line each.
pub(super) enum Output {
    /// Nowhere.
    Null,
    /// Standard output.
    Stdout(BufWriter<std::io::Stdout>),
    /// A file, which has its name once it is complete.
    File { file: BufWriter<File>, partial: PathBuf, path: PathBuf },
}

impl Output {
    pub fn open(name: &str) -> anyhow::Result<Self> {
        match name {
            "null" => Ok(Output::Null),
            "-" => Ok(Output::Stdout(BufWriter::with_capacity(BUFFER, std::io::stdout()))),
            name => {
                let (path, partial) = (PathBuf::from(name), PathBuf::from(format!("{name}.part")));
                let file = File::create(&partial).with_context(|| format!("{}: cannot be made", partial.display()))?;
                Ok(Output::File { file: BufWriter::with_capacity(BUFFER, file), partial, path })
            }
        }
    }

    fn write(&mut self, flow: &Flow) -> std::io::Result<()> {
        let out: &mut dyn Write = match self {
            Output::Null => return Ok(()),
            Output::Stdout(out) => out,
            Output::File { file, .. } => file,
        };
        serde_json::to_writer(&mut *out, &FlowJson::new(flow))?;
        out.write_all(b"\n")
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Output::Null => Ok(()),
            Output::Stdout(mut out) => out.flush(),
            Output::File { mut file, partial, path } => {
                file.flush()?;
                std::fs::rename(partial, path)
            }
        }
    }
}

const BUFFER: usize = 1 << 18;

/// How many records there were, and those with the most bytes.
#[derive(Default)]
pub(super) struct Totals {
    /// All, and those in tunnels.
    pub flows: u64,
    pub inner_flows: u64,
    /// Most bytes first.
    pub top: Vec<Flow>,
    /// Most packets first.
    pub top_packets: Vec<Flow>,
}

/// How many records are shown.
const TOP: usize = 10;

impl Totals {
    fn add(&mut self, flow: &Flow) {
        self.flows += flow.flows;
        self.inner_flows += u64::from(flow.tunnel.is_some());
        keep(&mut self.top, flow, Flow::frame_bytes);
        keep(&mut self.top_packets, flow, Flow::packets);
    }
}

/// Keeps a flow if it is among those of which there is the most.
fn keep(top: &mut Vec<Flow>, flow: &Flow, size: impl Fn(&Flow) -> u64) {
    let own = size(flow);
    if top.len() < TOP || top.last().is_some_and(|least| size(least) < own) {
        let place = top.partition_point(|other| size(other) >= own);
        top.insert(place, flow.clone());
        top.truncate(TOP);
    }
}

/// Writes records and adds them up.
pub(super) struct Tee {
    output: Output,
    totals: Totals,
    failure: Option<std::io::Error>,
    stop: Stop,
}

impl Tee {
    /// Asks for a stop when records cannot be written.
    pub fn new(output: Output, stop: Stop) -> Self {
        Tee { output, totals: Totals::default(), failure: None, stop }
    }

    /// What was added up, and whether all was written; a reader that has gone is no failure.
    pub fn finish(self) -> (Totals, anyhow::Result<()>) {
        let result = match self.failure {
            Some(error) => Err(error),
            None => self.output.finish(),
        };
        let result = match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.context("records could not be written"),
        };
        (self.totals, result)
    }
}

impl Records for Tee {
    fn take(&mut self, flow: &Flow) {
        self.totals.add(flow);
        if self.failure.is_none()
            && let Err(error) = self.output.write(flow)
        {
            self.failure = Some(error);
            self.stop.request();
        }
    }
}
