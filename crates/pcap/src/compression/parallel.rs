//! Compresses a piece with several threads: each makes a zstd frame of a share of it.
//!
//! Consecutive frames form a zstd file, and each is independent. Threads are started for each piece: that takes about
//! 30 us each, a piece of 1 MiB about 1,300. A share has no access to earlier data, which costs 0.4 % of size on real
//! traffic, and 4 % on repetitive one. With a reader running on the same two processors, two threads write 6 % more
//! than one.

use super::encode::zstd_error;
use std::io::{ErrorKind, Result};
use std::thread::Builder;
use zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_end;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

/// Minimum size of a share.
const LEAST: usize = 128 << 10;

pub(super) struct Parallel {
    workers: Vec<Worker>,
}

struct Worker {
    context: CCtx<'static>,
    out: Vec<u8>,
}

impl Parallel {
    /// Returns `threads` compressors, one of which runs on the calling thread.
    pub(super) fn new(threads: usize, level: i32) -> Result<Self> {
        let worker = |_| {
            let mut context = CCtx::try_create().ok_or(ErrorKind::OutOfMemory)?;
            context.set_parameter(CParameter::CompressionLevel(level)).map_err(zstd_error)?;
            Ok(Worker { context, out: Vec::new() })
        };
        Ok(Parallel { workers: (0..threads.max(1)).map(worker).collect::<Result<_>>()? })
    }

    pub(super) fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Appends the compressed `piece` to `out`.
    pub(super) fn compress(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let share = piece.len().div_ceil(self.workers.len()).max(LEAST);
        let shares: Vec<&[u8]> = if piece.is_empty() { vec![piece] } else { piece.chunks(share).collect() };
        // Shares whose thread could not be started.
        let mut left = Vec::new();
        std::thread::scope(|scope| {
            let [first, rest @ ..] = &mut self.workers[..] else { return Ok(()) };
            let mut started = Vec::new();
            for (at, (worker, share)) in rest.iter_mut().zip(&shares[1..]).enumerate() {
                match Builder::new().spawn_scoped(scope, move || worker.compress(share)) {
                    Ok(thread) => started.push(thread),
                    Err(_) => left.push(at + 1),
                }
            }
            let mut result = first.compress(shares[0]);
            for thread in started {
                let other = thread.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()));
                result = result.and(other);
            }
            result
        })?;
        left.into_iter().try_for_each(|at| self.workers[at].compress(shares[at]))?;
        self.workers.iter().take(shares.len()).for_each(|worker| out.extend_from_slice(&worker.out));
        Ok(())
    }
}

impl Worker {
    /// Compresses a share into a frame.
    fn compress(&mut self, share: &[u8]) -> Result<()> {
        self.out.clear();
        self.out.resize(zstd_safe::compress_bound(share.len()), 0);
        let mut input = InBuffer::around(share);
        let mut room = OutBuffer::around(&mut self.out[..]);
        let left = self.context.compress_stream2(&mut room, &mut input, ZSTD_e_end).map_err(zstd_error)?;
        let written = room.pos();
        self.out.truncate(written);
        if left == 0 { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }
}
