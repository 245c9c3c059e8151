//! The output of `-w`: one file, or several with rotation.

use super::super::inputs::{are_live, is_file, link, listed};
use super::recording::FileProperties;
use super::{Args, CaptureOptions};
use crate::exit::usage;
use crate::signals::opening;
use anyhow::Context;
use linerate_burst::{LinkType, Sink};
use linerate_index::IndexedWriter;
use linerate_pcap::{Format, Output, Writer};
use std::os::fd::OwnedFd;

impl Args {
    /// Opens the output. Returns it with the directory in which new files are created.
    pub(super) fn open_output(
        &self,
        asked: &CaptureOptions,
        path: &str,
    ) -> anyhow::Result<(Box<dyn Sink>, Option<OwnedFd>)> {
        let format = self.format(path)?;
        if format != Format::Pcapng && !self.comments.is_empty() {
            return Err(usage("--comment needs pcapng; use a name such as x.pcapng, or --format pcapng"));
        }
        if self.recording.is_wanted(path, self.analysis.rotate()) {
            let (comments, threads) = (self.comments.clone(), self.compress_threads.into());
            let of = FileProperties { format, comments, snap: asked.write.longest(), threads, is_indexed: self.index };
            let opened = self.recording.open(path, of, self.analysis.rotate());
            let (recording, folder) = opened.with_context(|| format!("cannot write {path}"))?;
            return Ok((self.trigger.before(Box::new(recording))?, Some(folder)));
        }
        let (writer, folder) = self.open_writer(asked, path, format)?;
        Ok((write(writer, self.index)?, folder))
    }

    /// Opens one file. Returns it with its directory, if it can be reopened.
    fn open_writer(
        &self,
        asked: &CaptureOptions,
        path: &str,
        format: Format,
    ) -> anyhow::Result<(Writer, Option<OwnedFd>)> {
        let specs = &asked.inputs.specs;
        // The link type of rings and files is known only from the first packet.
        let is_live = specs.iter().all(|spec| are_live([spec]));
        let links: Vec<LinkType> = specs.iter().map(link).collect();
        let is_mixed = is_live && links.iter().any(|link| *link != links[0]);
        let may_change = path == "-" && self.format.is_none();
        if is_mixed && format != Format::Pcapng && !may_change {
            let names = listed(&asked.inputs.names());
            return Err(usage(format!(
                "{path}: a pcap file holds one link type, but {names} have several; write pcapng"
            )));
        }
        let format = if is_mixed { Format::Pcapng } else { format };
        let output = opening(path, || Output::open(path)?.threads(self.compress_threads.into()))
            .with_context(|| format!("cannot write {path}"))?;
        let folder = output.folder().map(OwnedFd::try_clone).transpose()?;
        let mut writer = Writer::new(output, format).or_pcapng(may_change).snap(asked.write.longest());
        for comment in &self.comments {
            writer.comment(comment);
        }
        // Makes the file readable before the first packet; an error is reported again with that packet. Link type and
        // sections of input files are known only from their first packet.
        let _ = match (is_live, specs.iter().all(is_file)) {
            (true, _) => writer.begin(links.first().copied().unwrap_or(LinkType::ETHERNET)),
            (false, false) => writer.flush(),
            (false, true) => Ok(()),
        };
        Ok((writer, folder))
    }
}

/// Returns the sink of the file, with an index if wanted.
fn write(writer: Writer, is_indexed: bool) -> anyhow::Result<Box<dyn Sink>> {
    Ok(if is_indexed { Box::new(IndexedWriter::new(writer)?) } else { Box::new(writer) })
}
