//! Any bytes are read as an index without a panic, and return only parts inside the file, in order. For any program and
//! frames, no part with a matching frame is skipped.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Desc, Interface, LinkType, Nanos, StampSource};
use linerate_filter::program::code::*;
use linerate_filter::{Insn, Program};
use linerate_index::entry::Entry;
use linerate_index::parts::choose;
use linerate_index::plan::Plan;
use linerate_index::{EntryBuilder, layout};
use std::fs::File;
use std::sync::{Arc, OnceLock};

const CODES: [u16; 18] = [
    LD_H_ABS, LD_W_ABS, LD_B_ABS, LD_H_IND, LDX_MSH, JEQ_K, JEQ_K, JEQ_K, JGT_K, JGE_K, JSET_K, AND_K, TAX, TXA, ST,
    LD_MEM, RSH_K, RET_A,
];
/// Meaningful offsets and values, to make matches likely.
const KS: [u32; 24] = [
    0,
    6,
    9,
    12,
    14,
    16,
    18,
    20,
    22,
    23,
    26,
    30,
    38,
    54,
    56,
    0x800,
    0x86dd,
    0x806,
    0x8100,
    17,
    0xfff,
    0xff00_0000,
    0x40,
    0xf0,
];
const LINKS: [u16; 4] = [1, 101, 113, 0];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    match first % 2 {
        0 => index(rest),
        _ => plan(LINKS[usize::from(first / 2 % 4)], rest),
    }
});

fn index(bytes: &[u8]) {
    static FILE: OnceLock<Arc<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| Arc::new(File::open("/proc/self/exe").unwrap()));
    let length = file.metadata().unwrap().len();
    let mut index = layout::header().to_vec();
    // Checksums are corrected, since later checks are not reached otherwise.
    let mut rest = bytes;
    while let Some((entry, next)) = rest.split_at_checked(rest.len().min(96)).filter(|(entry, _)| !entry.is_empty()) {
        let mut entry = entry.to_vec();
        entry.resize(entry.len().next_multiple_of(8).max(72), 0);
        entry[..4].copy_from_slice(b"part");
        let length = entry.len();
        entry[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        let sets = u32::from(entry[60] % 4);
        entry[60..64].copy_from_slice(&sets.to_le_bytes());
        let sum = layout::checksum(&entry[..length - 8]);
        entry[length - 8..].copy_from_slice(&sum.to_le_bytes());
        index.extend(entry);
        rest = next;
    }
    let mut plan = Plan::new("");
    for index in [&index[..], bytes] {
        let Ok(parts) = choose(index, file, |entry| Ok(plan.may_pass(entry)?)) else { continue };
        let mut end = 0;
        for range in &parts.ranges {
            assert!(range.start >= end && range.start < range.end && range.end <= length, "{parts:?}");
            end = range.end + 1;
        }
        assert!(parts.chosen <= parts.entries && parts.rest <= length);
    }
}

fn plan(link: u16, bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (words, _) = rest.as_chunks::<4>();
    let count = words.len().min(usize::from(*count));
    let mut insns: Vec<Insn> = words[..count].iter().map(instruction).collect();
    insns.extend([Insn::ret(1), Insn::ret(0)]);
    let Ok(program) = Program::new(insns) else { return };
    let frames: Vec<&[u8]> = rest[4 * count..].chunks(100).collect();
    let mut block = Block::new(1 << 20, frames.len() + 1);
    for frame in &frames {
        assert!(block.push(&Desc::new(Nanos(1), 0, frame.len() as u32), frame));
    }
    let (mut gather, mut entry) = (EntryBuilder::new(), Vec::new());
    gather.add(block.burst(), &[Interface::new("", LinkType(link), StampSource::File)]);
    gather.entry(0..100, None, 0, &mut entry);
    let entry = Entry::parse(&entry).expect("the entry just written");
    let passes = frames.iter().any(|frame| program.run(frame, frame.len() as u32) != 0);
    assert!(!passes || Plan::of_program(&program, link).may_pass(&entry).unwrap(), "{:?}", program.insns());
}

fn instruction([code, jt, jf, k]: &[u8; 4]) -> Insn {
    let code = CODES[usize::from(*code) % CODES.len()];
    Insn {
        code,
        jt: jt & 7,
        jf: jf & 7,
        k: if code == ST || code == LD_MEM { 1 } else { KS[usize::from(*k) % KS.len()] },
    }
}
