//! Programs have the results of libpcap's own `bpf_filter`.

use crate::programs::program;
use libloading::Library;
use linerate_filter::program::code;
use linerate_filter::{Insn, Program};
use proptest::prelude::*;
use std::sync::OnceLock;

type BpfFilter = unsafe extern "C" fn(*const Insn, *const u8, u32, u32) -> u32;

/// Returns libpcap's result; `None` without libpcap.
fn bpf_filter(program: &Program, frame: &[u8], wire: u32) -> Option<u32> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let load = || {
        let names = ["libpcap.so.1", "libpcap.so.0.8", "libpcap.so"];
        // SAFETY: libpcap's initialisers only set up its own variables.
        let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        if library.is_none() {
            eprintln!("SKIPPED: no libpcap to compare with");
        }
        library
    };
    let library = LIBRARY.get_or_init(load).as_ref()?;
    // SAFETY: the type is the declaration in pcap/bpf.h.
    let run = unsafe { library.get::<BpfFilter>(c"bpf_filter") }.expect("libpcap has bpf_filter");
    // SAFETY: the program is valid, has no loops, writes memory before it reads it; the frame has its length.
    Some(unsafe { run(program.insns().as_ptr(), frame.as_ptr(), wire, frame.len() as u32) })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_on_random_frames(
        program in program(prop_oneof![Just(vec![Insn::new(code::RET_A, 0)]), any::<u32>().prop_map(|k| vec![Insn::ret(k)])]),
        frame in prop::collection::vec(any::<u8>(), 0..80),
        more in 0_u32..2000,
    ) {
        let wire = frame.len() as u32 + more;
        if let Some(expected) = bpf_filter(&program, &frame, wire) {
            prop_assert_eq!(program.run(&frame, wire), expected);
        }
    }
}
