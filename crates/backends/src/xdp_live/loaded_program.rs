//! A loaded program and its resources.

use super::emit::{self, Tracepoint};
use super::shared_state::{ERROR, State, TASK};
use crate::ebpf::Insn;
use crate::rtnl::Rtnetlink;
use crate::sys::bpf::{Demands, Link, Map, MapKind, Mode, Program};
use crate::sys::bpf_live::Tracer;
use crate::sys::thread::in_new_network;
use std::fs::File;
use std::io;

/// Frames that the kernel makes before receivers can run: the batch of a veth's receiver, and a quarter of its ring.
const BATCH: u32 = 64;
/// Batch with a schedule: the kernel checks the time once per run, and sends the frames of this many runs together.
const PACED_BATCH: u32 = 16;
const SCRATCH: (u32, u32) = (2, 3);

pub(crate) struct LoadedProgram {
    // Dropped in this order: tracers are detached before the program is freed.
    _tracers: Vec<Tracer>,
    _scratch: Scratch,
    program: Program,
    state: State,
}

impl LoadedProgram {
    /// Loads a program that uses these words.
    pub(crate) fn new(insns: &[Insn], state: &State) -> io::Result<Self> {
        let mut machine = Self::unwatched(insns, state)?;
        let count_outcomes = |watched, name| {
            let program = emit::count_outcomes(state.raw(), watched).finish().map_err(io::Error::other)?;
            Tracer::attach(&program, name)
        };
        machine._tracers = vec![
            count_outcomes(Tracepoint::Transmitted, c"xdp_devmap_xmit")?,
            count_outcomes(Tracepoint::Refused, c"xdp_redirect_err")?,
        ];
        Ok(machine)
    }

    /// Loads a program without counting the outcome of frames.
    pub(crate) fn unwatched(insns: &[Insn], state: &State) -> io::Result<Self> {
        let program = Program::load(insns, Demands::default())?;
        let scratch = Scratch::attach(&program)?;
        Ok(LoadedProgram { _tracers: Vec::new(), _scratch: scratch, program, state: state.clone() })
    }

    /// Runs the program `times` times on frames that begin as `frame`; `EINTR` when a signal arrives.
    pub(crate) fn run(&self, frame: &[u8], times: u32, paced: bool) -> io::Result<()> {
        self.state.set(ERROR, 0);
        let result = self.program.run_live(frame, times, if paced { PACED_BATCH } else { BATCH });
        // Another thread may run it next.
        self.state.set(TASK, 0);
        result
    }
}

/// Creates the map that names the interface to send to; call it inside the interface's network namespace.
pub(crate) fn devmap(interface: u32) -> io::Result<Map> {
    let map = Map::new(MapKind::Devmap, 4, 1)?;
    map.set(0, &interface.to_ne_bytes())?;
    Ok(map)
}

/// Attaches a program to an unused interface: this keeps the kernel's dispatcher for it, so that a call takes
/// microseconds instead of 25 ms for synchronising all processors.
///
/// The interface is in an unnamed network namespace, held only by descriptors of this process; it is removed with them
/// however the process ends.
struct Scratch {
    _link: Link,
    _namespace: File,
}

impl Scratch {
    fn attach(program: &Program) -> io::Result<Self> {
        let (link, namespace) = in_new_network(|| {
            Rtnetlink::new()?.add_veth(SCRATCH)?;
            Link::attach(program, SCRATCH.0, Mode::Native)
        })
        .map_err(|error| {
            io::Error::new(error.kind(), format!("cannot create a scratch interface for the program: {error}"))
        })?;
        Ok(Scratch { _link: link, _namespace: namespace })
    }
}
