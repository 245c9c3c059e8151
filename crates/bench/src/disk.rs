//! Write rate of a disk, by the writes of a recorder: through the page cache, and direct.
//!
//! Each case writes a file of its own, which is unlinked before its first byte: it does not outlive the program. A case ends after a
//! number of bytes or seconds.

use super::harness::Row;
use super::text::number;
use super::{Args, Effort, OwnTable};
use anyhow::Context;
use linerate_cli::view::rates::grouped;
use linerate_cli::view::table::table;
use linerate_pcap::AlignedBytes;
use rustix::fs::{CWD, Mode, OFlags, openat, statvfs, unlink};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum bytes and time of a case.
const MOST_BYTES: u64 = 1 << 30;
const MOST_TIME: Duration = Duration::from_secs(5);
/// A case uses at most this part of the free space: a quarter.
const FREE_PART: u64 = 4;
/// Bytes of a write: a piece of a pcapng file, a block of a pcap file, and more.
const WRITES: [usize; 3] = [256 << 10, 1 << 20, 4 << 20];
/// Threads that write together, as a queue of requests would.
const TOGETHER: usize = 4;
/// Rates that memory is computed for, in Gb/s.
const RATES: [f64; 4] = [1.0, 10.0, 40.0, 100.0];

/// Path of writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WritePath {
    Cache,
    Direct,
    /// Several threads, each a part of the file.
    DirectTogether,
}

/// Result of a case.
struct DiskResult {
    bytes: u64,
    seconds: f64,
    /// Seconds with the sync.
    synced: f64,
    /// Seconds of each write.
    waits: Vec<f64>,
}

pub(super) fn own(args: &Args, effort: Effort) -> anyhow::Result<OwnTable> {
    let folder = args.folder.as_deref().unwrap_or(Path::new("."));
    let rows = run(effort, folder)?;
    Ok((rows.iter().map(serde_json::to_value).collect::<Result<_, _>>()?, text(&rows, folder)))
}

fn run(effort: Effort, folder: &Path) -> anyhow::Result<Vec<Row>> {
    let free = statvfs(folder).with_context(|| folder.display().to_string())?;
    let most = (free.f_bavail * free.f_frsize / FREE_PART).min(effort.of(MOST_BYTES as usize) as u64);
    let mut rows = Vec::new();
    for bytes in WRITES {
        let case = Case { folder, bytes, most, time: effort.of(5000) as u32 };
        let cache = case.measure(WritePath::Cache)?;
        rows.push(cache.row("page cache", bytes, cache.seconds));
        rows.push(cache.row("and sync", bytes, cache.synced));
        match case.measure(WritePath::Direct) {
            Ok(direct) => rows.push(direct.row("direct", bytes, direct.synced)),
            Err(error) if is_unknown(&error) => continue,
            Err(error) => return Err(error),
        }
        if bytes == 1 << 20 {
            let together = case.measure(WritePath::DirectTogether)?;
            rows.push(together.row("direct x4", bytes, together.synced));
        }
    }
    Ok(rows)
}

/// The table, and the memory that bridges stalls.
fn text(rows: &[Row], folder: &Path) -> String {
    let mut lines = table(&["write", "KiB", "GB/s", "Gb/s", "p50 us", "p99 us", "longest ms"], 1);
    for row in rows {
        lines.add_row([
            row.case.clone(),
            row.size.map_or_else(String::new, |size| (size >> 10).to_string()),
            number(row.gbytes),
            number(row.gbytes.map(|rate| rate * 8.0)),
            number(row.p50_us),
            number(row.p99_us),
            number(row.max_us.map(|wait| wait / 1e3)),
        ]);
    }
    let longest = rows.iter().filter_map(|row| row.max_us).fold(0.0, f64::max) / 1e6;
    let mut text =
        format!("{lines}\n\n  in {}\n  sync: with the time until all bytes are on the disk\n", folder.display());
    text += &format!("  memory that bridges a stall of {longest:.3} s, the longest here, and of 1 s:\n");
    for rate in RATES {
        let mebibytes = |seconds: f64| grouped((rate * 1e9 / 8.0 * seconds / f64::from(1 << 20)).ceil() as u64);
        text += &format!("    {rate:>3.0} Gb/s: {:>7} MiB, {:>7} MiB\n", mebibytes(longest), mebibytes(1.0));
    }
    text + "  a capture has 64 MiB for that, and its ring: 'packet:eth0?ring=1GiB'\n"
}

/// Writes of one size.
struct Case<'a> {
    folder: &'a Path,
    bytes: usize,
    most: u64,
    /// Milliseconds.
    time: u32,
}

impl Case<'_> {
    fn measure(&self, how: WritePath) -> anyhow::Result<DiskResult> {
        let threads = if how == WritePath::DirectTogether { TOGETHER } else { 1 };
        let (file, path) = self.file(how)?;
        let failed = || format!("{}: writing to measure the disk", path.display());
        let mut block = AlignedBytes::new(self.bytes);
        let mut noise = 7u32;
        block.iter_mut().for_each(|byte| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (noise >> 24) as u8;
        });
        let block: &[u8] = &block;
        let started = Instant::now();
        let parts = std::thread::scope(|scope| {
            let work = |thread| {
                scope.spawn({
                    let file = &file;
                    move || self.write(file, block, (thread, threads), started)
                })
            };
            let threads: Vec<_> = (0..threads).map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ok(Vec::new()))).collect::<Vec<_>>()
        });
        let parts = parts.into_iter().collect::<std::io::Result<Vec<_>>>().with_context(failed)?;
        let seconds = started.elapsed().as_secs_f64();
        file.sync_data().with_context(failed)?;
        let waits = parts.concat();
        let bytes = (waits.len() * self.bytes) as u64;
        Ok(DiskResult { bytes, seconds, synced: started.elapsed().as_secs_f64(), waits })
    }

    /// Writes its share of the blocks, at least one; returns the seconds of each write.
    fn write(
        &self,
        file: &File,
        block: &[u8],
        (thread, threads): (usize, usize),
        started: Instant,
    ) -> std::io::Result<Vec<f64>> {
        let mut waits = Vec::new();
        let time = Duration::from_millis(self.time.into()).min(MOST_TIME);
        for number in (thread..).step_by(threads) {
            let at = number as u64 * self.bytes as u64;
            let is_over = at + self.bytes as u64 > self.most.max(self.bytes as u64) || started.elapsed() > time;
            if is_over && !waits.is_empty() {
                break;
            }
            let before = Instant::now();
            file.write_all_at(block, at)?;
            waits.push(before.elapsed().as_secs_f64());
        }
        Ok(waits)
    }

    /// A file without a name.
    fn file(&self, how: WritePath) -> anyhow::Result<(File, PathBuf)> {
        let path = self.folder.join(format!("linerate-bench-disk-{}", std::process::id()));
        let direct = if how == WritePath::Cache { OFlags::empty() } else { OFlags::DIRECT };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | direct;
        let file = openat(CWD, &path, flags, Mode::from_raw_mode(0o600));
        // A file that cannot be opened for direct writes was created; after another error the file is not of this run.
        let is_made = matches!(file, Ok(_) | Err(Errno::INVAL));
        let removed = if is_made { unlink(&path) } else { Ok(()) };
        let file = file.with_context(|| path.display().to_string())?;
        removed.with_context(|| path.display().to_string())?;
        Ok((file.into(), path))
    }
}

impl DiskResult {
    fn row(&self, case: &str, size: usize, seconds: f64) -> Row {
        let mut waits: Vec<f64> = self.waits.iter().map(|wait| wait * 1e6).collect();
        waits.sort_by(f64::total_cmp);
        let at =
            |part: f64| waits.get(((waits.len() as f64 * part) as usize).min(waits.len().saturating_sub(1))).copied();
        Row {
            bench: "disk",
            case: case.to_owned(),
            size: Some(size),
            rounds: 1,
            gbytes: Some(self.bytes as f64 / seconds.max(1e-9) / 1e9),
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: waits.last().copied(),
            ..Row::default()
        }
    }
}

/// Returns true if the file system has no direct writes.
fn is_unknown(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Errno>() == Some(&Errno::INVAL)
}
