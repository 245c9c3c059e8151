//! The same result in the kernel as in this process, for texts and for arbitrary programs.

use super::*;
use crate::sys::bpf::{Demands, Program as Loaded};
use linerate_filter::{Filter, Insn};
use rustix::process::geteuid;

const PASSED: i32 = 2;
const REFUSED: i32 = 1;
const LENGTH: i16 = -16;

/// Loads a program that consists only of the filter.
fn load(program: &Program, frags: bool) -> std::io::Result<Loaded> {
    let mut asm = Assembler::new();
    let refused = asm.label();
    asm.mov(Reg::R6, Reg::R1);
    asm.call(helper::BUFFER_LENGTH);
    asm.store(Size::B8, Reg::Fp, LENGTH, Reg::R0);
    filter(&mut asm, program, FilterContext { context: Reg::R6, bounds: (0, 4), length: LENGTH, frags, refused });
    for (at, result) in [(None, PASSED), (Some(refused), REFUSED)] {
        at.into_iter().for_each(|label| asm.place(label));
        asm.mov(Reg::R0, result);
        asm.exit();
    }
    Loaded::load(&asm.finish().unwrap(), Demands { frags, bound_to: None })
}

fn is_root() -> bool {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: loading programs needs root");
    }
    geteuid().is_root()
}

/// Compares with this process's result, in one buffer and in several.
fn compare(program: &Program, frames: &[Vec<u8>], what: &str) {
    for frags in [false, true] {
        let loaded = load(program, frags).unwrap_or_else(|error| panic!("{what}, frags {frags}: {error}"));
        for frame in frames.iter().filter(|frame| frags || frame.len() <= 3000) {
            let (result, _) = loaded.run_once(frame).unwrap();
            let expected = if program.run(frame, frame.len() as u32) == 0 { REFUSED } else { PASSED };
            assert_eq!(
                result,
                expected as u32,
                "{what}, frags {frags}: {} bytes {:02x?}",
                frame.len(),
                &frame[..60.min(frame.len())]
            );
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(most)) as u32
    }
}

/// Frames of many kinds, whole and truncated.
fn frames(dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 0..300u32 {
        let kind: [u8; 2] = [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]][dice.below(4) as usize];
        let mut frame: Vec<u8> =
            (0..14 + dice.below(120)).map(|_| [0, 6, 17, 53, 80, 10, 255][dice.below(7) as usize]).collect();
        frame[12..14].copy_from_slice(&kind);
        if let Some(first) = frame.get_mut(14) {
            *first = if kind == [8, 0] { 0x40 | [5, 6, 15][dice.below(3) as usize] } else { 0x60 };
        }
        if number % 10 == 0 {
            frame.resize(4000 + dice.below(5000) as usize, number as u8);
        }
        frames.push(frame);
    }
    frames
}

#[test]
fn filters_have_the_same_result_in_the_kernel() {
    if !is_root() {
        return;
    }
    let frames = frames(&mut Dice(7));
    for text in [
        "ip",
        "tcp",
        "udp port 53",
        "tcp dst port 80",
        "host 10.10.10.10",
        "net 10.0.0.0/8 and not port 53",
        "ip6",
        "arp",
        "ip6 and udp",
        "vlan",
        "vlan 6 and ip",
        "len > 100",
        "greater 4000",
        "less 60",
        "ip[0] & 0xf > 5",
        "ether[0] & 1 = 0",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "ip proto 6 or ip proto 17",
        "portrange 50-90",
        "ether[4090:2] = 0",
        "ether[8000] = 0",
        "ip[2:2] > 500 and udp[4:2] != 0",
        "icmp or icmp6",
        "ether src 06:06:06:06:06:06",
        "ip multicast",
        "ether[100:4] >= 0x80000000",
        "(ip[8] * 3 + 1) / 2 % 7 = 3",
        "-ip[8] > 5",
        "ip[ip[9] + 4] = 53",
    ] {
        let filter = Filter::compile(text, 1).unwrap();
        assert!(filter.in_kernel(0).is_ok(), "{text}");
        compare(filter.program().unwrap(), &frames, text);
    }
}

/// Arbitrary programs that the kernel accepts.
#[test]
fn any_program_has_the_same_result_in_the_kernel() {
    if !is_root() {
        return;
    }
    let mut dice = Dice(11);
    let frames: Vec<Vec<u8>> = frames(&mut dice).into_iter().step_by(4).collect();
    let codes = [
        0x20u16, 0x28, 0x30, 0x40, 0x48, 0x50, 0x80, 0x00, 0x60, 0x81, 0x01, 0x61, 0xb1, 0x02, 0x03, 0x04, 0x0c, 0x14,
        0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x94, 0x9c, 0x44, 0x4c, 0x54, 0x5c, 0xa4, 0xac, 0x64, 0x6c, 0x74, 0x7c, 0x84,
        0x05, 0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d, 0x07, 0x87, 0x06,
    ];
    let mut tried = 0;
    for _ in 0..60_000 {
        let length = 4 + dice.below(12);
        let mut insns: Vec<Insn> = (0..length)
            .map(|at| {
                let code = codes[dice.below(codes.len() as u32) as usize];
                let left = (length - at) as u8;
                let mut jump = || dice.below(u32::from(left)) as u8;
                let (jt, jf) = if code & 7 == 5 && code != 5 { (jump(), jump()) } else { (0, 0) };
                let value =
                    [0, 1, 3, 4, 14, 23, 31, 33, 40, 255, 4000, 65_535, 70_000, 0x7fff_ffff, 0x8000_0000, u32::MAX];
                let k = match code & 7 {
                    2 | 3 => dice.below(4),
                    0 | 1 if code & 0xe0 == 0x60 => dice.below(4),
                    5 if code == 5 => dice.below(u32::from(left)),
                    _ => value[dice.below(16) as usize],
                };
                Insn { code, jt, jf, k }
            })
            .collect();
        insns.push(Insn { code: 6, jt: 0, jf: 0, k: dice.below(2) });
        let Ok(program) = Program::new(insns) else { continue };
        if linerate_filter::KernelProgram::new(&program, 0).is_ok() {
            compare(&program, &frames, &format!("{:?}", program.ops()));
            tried += 1;
        }
        if tried == 400 {
            return;
        }
    }
    assert!(tried > 100, "{tried} programs");
}
