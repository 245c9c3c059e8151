//! Forwarding in the kernel: an XDP program that redirects frames from one interface to another, as a baseline for
//! benchmarks.

use crate::inventory::find;
use crate::netns::within;
use crate::sys::bpf::{Demands, Link, Map, Mode, Program};
use crate::xdp_live::{emit, loaded_program};
use std::io;

/// Redirects frames; detached on drop.
#[derive(Debug)]
pub struct Redirector {
    _link: Link,
    _program: Program,
    _devmap: Map,
}

impl Redirector {
    /// Redirects between two interfaces of a network namespace, in the driver. The peer of a veth needs an XDP program
    /// for this.
    pub fn attach(netns: Option<&str>, from: &str, to: &str) -> io::Result<Self> {
        within(netns, || {
            let devmap = loaded_program::devmap(find(to)?.index)?;
            let insns = emit::only_redirect(devmap.raw()).map_err(io::Error::other)?;
            let program = Program::load(&insns, Demands { frags: true, ..Demands::default() })?;
            let link = Link::attach(&program, find(from)?.index, Mode::Native)?;
            Ok(Redirector { _link: link, _program: program, _devmap: devmap })
        })
    }
}
