//! Forwarding by the kernel alone: an XDP program that redirects what one interface receives to another, for benchmarks of wires.

use crate::inventory::find;
use crate::netns::within;
use crate::sys::bpf::{Demands, Link, Map, Mode, Program};
use crate::xdp_live::{emit, machine};
use std::io;

/// Redirects until it is dropped.
#[derive(Debug)]
pub struct Redirecting {
    _link: Link,
    _program: Program,
    _devmap: Map,
}

impl Redirecting {
    /// Between two interfaces of a network namespace, in the driver. A veth takes frames so if its other end has an XDP program.
    pub fn attach(netns: Option<&str>, from: &str, to: &str) -> io::Result<Self> {
        within(netns, || {
            let devmap = machine::devmap(find(to)?.index)?;
            let insns = emit::only_redirect(devmap.raw()).map_err(io::Error::other)?;
            let program = Program::load(&insns, Demands { frags: true, ..Demands::default() })?;
            let link = Link::attach(&program, find(from)?.index, Mode::Native)?;
            Ok(Redirecting { _link: link, _program: program, _devmap: devmap })
        })
    }
}
