//! What capture prints about filters and link types instead of capturing: `-d`, `-L`.

use super::super::inputs::{Inputs, is_file, link};
use crate::exit::Exit;
use crate::view::terminal::{show, show_as_is, shown};
use linerate_backends::REGISTRY;
use linerate_backends::inventory::is_here;
use linerate_backends::netns::within;
use linerate_burst::LinkType;
use linerate_filter::{Filter, Insn, link_name};
use linerate_pcap::Reader;
use linerate_port::Spec;
use std::fmt::Write;

/// Prints the program of the filter for the first port: as text, as C (`form` 2) or as numbers (3), like `tcpdump -d`.
pub(super) fn dump_filter(inputs: &Inputs, form: u8) -> anyhow::Result<Exit> {
    let link = inputs.specs.first().map_or(Ok(LinkType::ETHERNET), link_of)?;
    let filter = Filter::compile(&inputs.filter, link.0)?;
    let insns = filter.insns();
    let mut text = String::new();
    let mut line = |insn: &Insn| match form {
        2 => writeln!(text, "{{ {:#x}, {}, {}, {:#010x} }},", insn.code, insn.jt, insn.jf, insn.k),
        _ => writeln!(text, "{} {} {} {}", insn.code, insn.jt, insn.jf, insn.k),
    };
    if form == 1 {
        show_as_is((filter.listing()?.join("\n") + "\n").as_bytes());
        return Ok(Exit::Done);
    }
    insns.iter().try_for_each(&mut line)?;
    let length = if form == 2 { String::new() } else { format!("{}\n", insns.len()) };
    show(length + &text);
    Ok(Exit::Done)
}

/// Prints the link types of the ports.
pub(super) fn link_types(inputs: &Inputs) -> anyhow::Result<Exit> {
    for spec in &inputs.specs {
        let link = link_of(spec)?;
        let name = link_name(link.0).map_or_else(|| link.to_string(), |(name, about)| format!("{name} ({about})"));
        show(format!("{}: {name}\n", shown(&spec.to_string())));
    }
    Ok(Exit::Done)
}

fn link_of(spec: &Spec) -> anyhow::Result<LinkType> {
    if let Some(at) = REGISTRY.interface(spec) {
        let exists = within(at.option("netns"), || Ok(is_here(&at.target)));
        anyhow::ensure!(exists?, "{spec}: no such interface; linerate ports lists them");
    }
    let Some(path) = REGISTRY.file(spec).filter(|_| is_file(spec)) else { return Ok(link(spec)) };
    let mut reader = Reader::open(&path)?;
    reader.look()?;
    Ok(reader.interfaces().first().map_or(LinkType::ETHERNET, |interface| interface.link))
}
