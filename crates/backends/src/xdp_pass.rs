//! A program that passes every packet on, for interfaces whose drivers send redirected frames only while some program is
//! attached: they allocate the queues for such frames with it (`xdp_features_set_redirect_target`, Linux 6.3).

use crate::carrier::wait_until_up;
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
        let features = XdpFeatures::new()?;
        // Whether a veth sends depends on its peer.
        if found.driver == "veth" || features.of(found.index)? & (XDP_BASIC | XDP_SENDS) != XDP_BASIC {
            return None;
        }
        let attached = [true, false].into_iter().find_map(|frags| Self::attach(found.index, frags).ok())?;
        let reset = found.running.then(|| wait_until_up(found.index)).flatten();
        if features.of(found.index)? & XDP_SENDS == 0 {
            return None;
        }
        let reset =
            reset.map_or(String::new(), |time| format!(", which took its link down for {:.1} s", time.as_secs_f64()));
        let note =
            format!("attached an XDP program that passes all packets{reset}: {} sends only with one", found.driver);
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
