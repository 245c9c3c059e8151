//! Compares all kernels with the plain one.

use super::*;
use linerate_headers::Crc32c;
use std::cell::Cell;

/// Checks all lengths up to a few lines, and some longer ones, at all alignments of source and destination.
fn everywhere(mut check: impl FnMut(usize, usize, usize)) {
    for len in (0..700).chain([1448, 4095, 4096, 7960, 8192, 20_000, 65_483]) {
        for (to, from) in [(0, 0), (1, 0), (63, 1), (17, 40), (len % 64, len / 7 % 64)] {
            check(len, to, from);
        }
    }
    for to in 0..64 {
        for from in 0..64 {
            check(1000 + to, to, from);
        }
    }
}

fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn every_kernel_copies_exactly_its_input() {
    let source = sample(70_000);
    let mut room = vec![0xee_u8; 70_000];
    for kernel in Kernel::all() {
        everywhere(|len, to, from| {
            let start = room.as_ptr().align_offset(64) + 64 + to;
            let from = &source[from..from + len];
            let wanted = Crc32c::NEW.with(b"before").with(from).value();
            for with_sum in [false, true] {
                room[start - 64..start + len + 64].fill(0xee);
                let place = &mut room[start..start + len];
                if with_sum {
                    let crc = kernel.copy_summed(place, from, Crc::NEW.with(b"before"));
                    assert_eq!(crc.value(), wanted, "{kernel}: sum of {len} bytes");
                } else {
                    kernel.copy(place, from);
                }
                kernel.fence();
                assert!(room[start..start + len] == *from, "{kernel}: {len} bytes, {to} after a line");
                let around = room[start - 64..start].iter().chain(&room[start + len..start + len + 64]);
                assert!(around.copied().all(|byte| byte == 0xee), "{kernel} wrote around {len} bytes");
            }
        });
    }
}

#[test]
fn sum_equals_the_plain_sum_for_any_split() {
    let bytes = sample(70_000);
    everywhere(|len, cut, from| {
        let (front, back) = bytes[from..from + len].split_at(cut.min(len));
        let wanted = Crc32c::NEW.with(front).with(back).value();
        assert_eq!(Crc::NEW.with(front).with(back).value(), wanted, "{len} bytes, cut at {cut}");
    });
}

#[test]
fn pieces_are_contiguous() {
    let source = sample(10_000);
    for kernel in Kernel::all() {
        let mut to = vec![0; 10_100];
        assert_eq!(kernel.copy_all(&mut to, source.chunks(1448)), 10_000);
        assert!(to[..10_000] == source && to[10_000..] == [0; 100]);
        assert_eq!(Kernel::named(kernel.name()), Some(kernel));
    }
    assert_eq!(Kernel::named("fastest"), None);
}

/// With a clock that advances by the kernel's assumed cost.
#[test]
fn calibration_ends_with_any_clock() {
    let now = Cell::new(0_u64);
    let (mut one, mut other) = (vec![7; 3 << 20], vec![7; 5000]);
    let found = calibrate(&mut [&mut one, &mut other], 1448, &|| {
        now.set(now.get() + 100_000);
        now.get()
    });
    assert_eq!(found.len(), Kernel::all().count());
    assert!(found.is_sorted_by(|a, b| a.rate >= b.rate));
    assert!(one.iter().all(|byte| *byte == 0), "bytes were not copied");
    assert_eq!(calibrate(&mut [], 1448, &|| 0), []);
    assert_eq!(calibrate(&mut [&mut []], 1448, &|| 0), []);
    assert_eq!(calibrate(&mut [&mut [0; 10]], 0, &|| 0).len(), Kernel::all().count());
}
