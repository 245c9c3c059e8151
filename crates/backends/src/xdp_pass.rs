//! A program that passes every packet on, for interfaces whose drivers send redirected frames only while some program is
//! attached: they allocate the queues for such frames with it (`xdp_features_set_redirect_target`, Linux 6.3).

use crate::carrier::wait_until_up;
use crate::drivers::sends_with_program;
use crate::ebpf::{Assembler, Reg};
use crate::rtnl::{XDP_BASIC, XDP_SENDS, XdpFeatures};
use crate::sys::bpf::{Demands, Link, Mode, Program};
use linerate_port::InterfaceInfo;
use std::io;

/// `XDP_PASS` (linux/bpf.h).
const PASS: i32 = 2;

/// The program, attached while this lives.
#[derive(Debug)]
pub(crate) struct PassProgram {
    _link: Link,
    _program: Program,
}

impl PassProgram {
    /// Attaches it if the interface sends no redirected frames without; returns a note, too. Never replaces another
    /// program. Call it inside the interface's network namespace.
    pub(crate) fn attach_if_needed(found: &InterfaceInfo) -> Option<(Self, String)> {
        let features = || XdpFeatures::new().and_then(|ask| ask.of(found.index));
        let is_needed = match features() {
            // Whether a veth sends depends on its peer.
            Some(has) => found.driver != "veth" && has & (XDP_BASIC | XDP_SENDS) == XDP_BASIC,
            None => sends_with_program(found),
        };
        if !is_needed {
            return None;
        }
        let attached = [true, false].into_iter().find_map(|frags| Self::attach(found.index, frags).ok())?;
        let reset = wait_until_up(found).map_or(String::new(), |note| format!("; {note}"));
        if features().is_some_and(|has| has & XDP_SENDS == 0) {
            return None;
        }
        let note = format!(
            "attached an XDP program that passes all packets, because the driver {} sends only with one{reset}",
            found.driver
        );
        Some((attached, note))
    }

    fn attach(index: u32, frags: bool) -> io::Result<Self> {
        let mut asm = Assembler::new();
        asm.mov(Reg::R0, PASS);
        asm.exit();
        let insns = asm.finish().map_err(io::Error::other)?;
        let program = Program::load(&insns, Demands { frags, ..Demands::default() })?;
        Ok(PassProgram { _link: Link::attach(&program, index, Mode::Native)?, _program: program })
    }
}
