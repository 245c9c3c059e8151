//! The GPU kernels without a GPU: compiled as C++, and compared with the CPU.
//!
//! `tests/contract.rs` and `tests/streams.rs` compare them on a GPU, if there is one.

use crate::crc::{POWERS, finish, tables};
use crate::form::Form;
use crate::list::split;
use linerate_headers::Crc32c;
use linerate_transport::frames::Entry;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that runs kernels.
struct Grid {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Grid {
    /// Compiles the kernels; `None`, with a note, if no compiler is found.
    fn new() -> Option<Grid> {
        let name = format!("linerate-kernels-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("grid");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.cpp");
        // Trap unaligned words and oversized shifts, which a GPU does not support.
        let options = ["-O1", "-std=c++17", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];
        let compiled = Command::new("c++").args(options).args([source, "-o"]).arg(&program).output();
        match compiled {
            Err(error) => {
                eprintln!("NOT TESTED: GPU kernels: c++: {error}");
                return None;
            }
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        }
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let _ = std::fs::remove_dir_all(&folder);
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Grid { child, to, from })
    }

    fn run(&mut self, numbers: &[u64], buffers: &[&[u8]], back: &mut [&mut [u8]]) {
        let mut job: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        for buffer in buffers {
            job.extend((buffer.len() as u64).to_le_bytes());
            job.extend_from_slice(buffer);
        }
        self.to.write_all(&job).unwrap();
        for buffer in back {
            self.from.read_exact(buffer).expect("the kernel was terminated for undefined behaviour");
        }
    }
}

impl Drop for Grid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn entries(list: &[Entry]) -> Vec<u8> {
    let one = |entry: &Entry| {
        let words = [entry.from, entry.len, entry.frame, 0].map(u32::to_le_bytes).concat();
        [entry.at.to_le_bytes().to_vec(), words].concat()
    };
    list.iter().flat_map(one).collect()
}

/// Pieces of a frame, consecutive with gaps, of bytes anywhere in a block; and their order.
fn pieces() -> impl Strategy<Value = (Vec<(u32, u64, u32, u32)>, bool)> {
    (prop::collection::vec((0_u32..2, 0_u64..40, 0_u32..300, 0_u32..64), 0..12), any::<bool>())
}

#[test]
fn bytes_are_placed() {
    let Some(grid) = Grid::new().map(RefCell::new) else { return };
    let mut runner = TestRunner::new(Config::with_cases(500));
    let case = (pieces(), 1_u32..5, 1_usize..200, 0_usize..5, 1_u64..4, 1_u32..600);
    runner
        .run(&case, |((pieces, back), blocks, granule, form, warps, most)| {
            let bytes = 4096_usize;
            let (form, is_nothing) = (Form::ALL[form % 4], form == 4);
            let (stride, granules) = (form.bytes(bytes), bytes.div_ceil(granule));
            let block: Vec<u8> = (0..4000_u32).map(|at| (at * at / 3 + at) as u8).collect();
            let (mut raw, mut counts) = (vec![vec![0_u8; bytes]; 2], vec![0_u32; 2 * granules]);
            let (mut list, mut ends, mut from) = (Vec::new(), [0_u64; 2], 0_u32);
            for (frame, gap, len, skip) in pieces {
                let at = ends[frame as usize] + gap;
                if at + u64::from(len) > bytes as u64 || from + skip + len > 4000 {
                    break;
                }
                from += skip;
                list.push(Entry { at, from, len, frame });
                let place = at as usize..at as usize + len as usize;
                raw[frame as usize][place.clone()].copy_from_slice(&block[from as usize..][..len as usize]);
                place.for_each(|at| counts[frame as usize * granules + at / granule] += 1);
                (ends[frame as usize], from) = (at + u64::from(len), from + len);
            }
            if back {
                list.reverse();
            }
            let list = split(&list, most);
            let wanted: Vec<u8> = raw.iter().flat_map(|raw| form.convert(raw)).collect();
            let wanted = if is_nothing { vec![0; wanted.len()] } else { wanted };
            let number = if is_nothing { 4 } else { Form::ALL.iter().position(|one| *one == form).unwrap() as u64 };
            let (mut frames, mut counted) = (vec![0; 2 * stride], vec![0; 8 * granules]);
            let numbers = [0, blocks.into(), warps * 32, stride as u64, granules as u64, granule as u64, number];
            let buffers = [&vec![0; 2 * stride][..], &vec![0; 8 * granules], &block, &entries(&list)];
            grid.borrow_mut().run(&numbers, &buffers, &mut [&mut frames, &mut counted]);
            prop_assert!(frames == wanted, "{list:?}, {form:?}");
            prop_assert_eq!(counted, words(&counts));
            Ok(())
        })
        .unwrap();
}

#[test]
fn complete_parts_become_a_bitmap() {
    let Some(grid) = Grid::new().map(RefCell::new) else { return };
    let mut runner = TestRunner::new(Config::with_cases(300));
    let (tables, powers) = (words(&tables()), words(&POWERS));
    let case = (1_u64..300, 1_u64..50, any::<u64>(), 0_u64..20_000, 1_u64..12);
    runner
        .run(&case, |(granules, granule, seed, len, blocks)| {
            let len = len % (granules * granule + 1);
            let counts: Vec<u32> = (0..granules)
                .map(|part| {
                    let whole = granule.min(len.saturating_sub(part * granule)) as u32;
                    if seed.rotate_left(part as u32) & 1 == 1 { whole } else { whole.saturating_sub(1) }
                })
                .collect();
            let mut wanted = vec![0_u32; granules.div_ceil(32) as usize];
            for (part, count) in counts.iter().enumerate() {
                let whole = granule.min(len.saturating_sub(part as u64 * granule)) as u32;
                wanted[part / 32] |= u32::from(whole > 0 && *count == whole) << (part % 32);
            }
            let (mut after, mut left) = (vec![1; counts.len() * 4], vec![1; 8 + wanted.len() * 4]);
            let (mut found, results) = (left.clone(), vec![0; left.len()]);
            let buffers = [&words(&counts)[..], &[], &tables, &powers, &results, &left.clone()];
            let numbers = [1, blocks, 32, granules, granule, len, 8];
            grid.borrow_mut().run(&numbers, &buffers, &mut [&mut after, &mut left, &mut found]);
            prop_assert_eq!((after, left), (vec![0; counts.len() * 4], results), "they are zeroed for the next run");
            prop_assert_eq!(&found[8..], &words(&wanted)[..]);
            Ok(())
        })
        .unwrap();
}

#[test]
fn frames_are_summed_in_parts() {
    let Some(mut grid) = Grid::new() else { return };
    let (tables, powers) = (words(&tables()), words(&POWERS));
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at * at / 5 + at / 256) as u8).collect();
    for len in [0, 1, 3, 4, 127, 128, 129, 131, 255, 256, 4096, 8191, 8192, 20_001, 39_999, 40_000] {
        for rows in [1, 2, 7, 64, 1000] {
            let warps = (len as u64 / 128).div_ceil(rows).max(1);
            let (mut counts, mut left, mut results) = ([0; 4], [0; 12], [0; 12]);
            let numbers = [1, warps.div_ceil(2), 64, 1, 65_536, len as u64, rows];
            let buffers = [&[0; 4], &bytes[..len], &tables, &powers, &[0; 12], &[1; 12]];
            grid.run(&numbers, &buffers, &mut [&mut counts, &mut left, &mut results]);
            let remainder = results.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
            let found = finish(remainder, len as u64);
            assert_eq!(found, Crc32c::NEW.with(&bytes[..len]).value(), "{len} bytes, {rows} lines per warp");
        }
    }
}
