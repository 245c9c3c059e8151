//! Allocation of an arena's memory: huge pages if available, with a note of the reason if not.

use crate::arena::Options;
use crate::error::Error;
use crate::layout::{HUGE, PAGE};
use crate::mapping::Mapping;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, memfd_create, open};
use rustix::fs::{fchmod, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{fs, io};

/// Memory that only this process can write.
pub(crate) struct Pages {
    pub mapping: Mapping,
    /// For readers: read-only.
    pub fd: OwnedFd,
    /// Page size in bytes.
    pub page: usize,
    /// Choices made and their reasons, for users.
    pub notes: Vec<String>,
}

/// Allocates the memory, populates every page and seals it.
pub(crate) fn make(options: &Options, bytes: usize) -> Result<Pages, Error> {
    let mut notes = Vec::new();
    let (fd, mapping, page) = match options.huge.then(|| reserved(bytes)) {
        Some(Ok((fd, mapping))) => {
            notes.push(format!("{} of huge pages", mib(bytes)));
            place(&mapping, options, bytes)?;
            (fd, mapping, HUGE)
        }
        Some(Err(_)) => {
            enough(bytes)?;
            let (fd, mapping) = ordinary(bytes)?;
            mapping.request_huge_pages();
            place(&mapping, options, bytes)?;
            let (note, page) = transparent(&mapping, bytes);
            notes.push(note);
            (fd, mapping, page)
        }
        None => {
            enough(bytes)?;
            let (fd, mapping) = ordinary(bytes)?;
            place(&mapping, options, bytes)?;
            notes.push(format!("{} of ordinary pages, as requested", mib(bytes)));
            (fd, mapping, PAGE)
        }
    };
    let failed = |error: rustix::io::Errno| Error::system("sealing the memory of the ring", error);
    // Any process may reopen it through /proc, but never write to it, truncate it or punch holes in it.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(&fd, seals).map_err(failed)?;
    fchmod(&fd, Mode::RUSR).map_err(failed)?;
    let again = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let fd = open(&*again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::system(format!("opening the memory of the ring for reading ({again})"), error))?;
    Ok(Pages { mapping, fd, page, notes })
}

/// Rejects another user's memory in reserved huge pages: access to a missing one is SIGBUS, while a missing ordinary
/// page is allocated.
pub(crate) fn check_ordinary(fd: BorrowedFd<'_>) -> Result<(), String> {
    if fstatfs(fd).map_err(|error| format!("its memory is not usable: {error}"))?.f_type as u64 == HUGETLBFS {
        let reason = "it belongs to another user and is in reserved huge pages, which can disappear; share \
                      it with --share-small-pages";
        return Err(reason.into());
    }
    Ok(())
}

/// Rejects another user's memory that is not fully present, or could disappear: a missing page would be charged to this
/// process once it is read.
pub(crate) fn check_whole(fd: BorrowedFd<'_>) -> Result<(), String> {
    check_ordinary(fd)?;
    let wrong = |error: rustix::io::Errno| format!("its memory is not usable: {error}");
    if !fcntl_get_seals(fd).map_err(wrong)?.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err("it belongs to another user, who may punch holes in its memory while it is read".into());
    }
    // With this seal no hole can be punched.
    let stat = fstat(fd).map_err(wrong)?;
    if (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64 {
        return Err(
            "it belongs to another user, and its memory has holes, which this process would have to fill".into()
        );
    }
    Ok(())
}

/// `HUGETLBFS_MAGIC` (linux/magic.h).
const HUGETLBFS: u64 = 0x9584_58f6;

/// Allocates memory of reserved huge pages.
fn reserved(bytes: usize) -> io::Result<(OwnedFd, Mapping)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = memfd_create("linerate-ring", flags)?;
    ftruncate(&fd, bytes as u64)?;
    // Fails unless enough are free.
    let mapping = Mapping::new(fd.as_fd(), bytes, true)?;
    Ok((fd, mapping))
}

fn ordinary(bytes: usize) -> Result<(OwnedFd, Mapping), Error> {
    let make = || -> io::Result<(OwnedFd, Mapping)> {
        let fd = memfd_create("linerate-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes as u64)?;
        let mapping = Mapping::new(fd.as_fd(), bytes, true)?;
        Ok((fd, mapping))
    };
    make().map_err(|error| {
        Error::Memory(format!("out of memory for a ring of {}: {error}; use a smaller ring", mib(bytes)))
    })
}

/// Applies the options to the pages: node, population, lock.
fn place(mapping: &Mapping, options: &Options, bytes: usize) -> Result<(), Error> {
    if let Some(node) = options.node {
        mapping.bind(node).map_err(|error| {
            let there = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
            let there = if there.is_empty() { "no nodes".into() } else { format!("node {}", there.trim()) };
            Error::Memory(format!("no memory of NUMA node {node}: {error}; this machine has {there}"))
        })?;
    }
    mapping.populate().map_err(|error| {
        let from = options.node.map_or(String::new(), |node| format!(" on NUMA node {node}"));
        Error::Memory(format!("out of memory{from} for a ring of {}: {error}; use a smaller ring", mib(bytes)))
    })?;
    if options.lock {
        mapping.lock().map_err(|error| {
            let reason =
                format!("locking {} failed: {error}; raise the limit (`ulimit -l`) or run as root", mib(bytes));
            Error::Memory(reason)
        })?;
    }
    Ok(())
}

/// Checks that enough memory is available.
fn enough(bytes: usize) -> Result<(), Error> {
    let available = meminfo("MemAvailable:").unwrap_or(u64::MAX);
    if bytes as u64 > available {
        let available = mib(available as usize);
        let reason =
            format!("a ring of {} exceeds the {available} of available memory; use a smaller ring", mib(bytes));
        return Err(Error::Memory(reason));
    }
    Ok(())
}

/// Returns a note of how much of the mapping has transparent huge pages, and the page size in bytes.
fn transparent(mapping: &Mapping, bytes: usize) -> (String, usize) {
    let free = meminfo("HugePages_Free:").unwrap_or(0);
    let why = format!(
        "{} huge pages are needed and {free} are free; `sysctl vm.nr_hugepages={}` reserves them",
        bytes / HUGE,
        bytes / HUGE
    );
    match huge_bytes(mapping.address()) {
        Some(huge) if huge >= bytes => (format!("{} of transparent huge pages ({why})", mib(bytes)), HUGE),
        Some(huge) if huge > 0 => {
            (format!("{} of memory, {} of it in transparent huge pages ({why})", mib(bytes), mib(huge)), PAGE)
        }
        _ => (format!("{} of ordinary pages ({why})", mib(bytes)), PAGE),
    }
}

/// Returns the bytes of the mapping at `address` that are mapped by huge pages.
fn huge_bytes(address: usize) -> Option<usize> {
    let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
    let begins = format!("{address:x}-");
    let mapping = smaps.lines().skip_while(|line| !line.starts_with(&begins)).skip(1);
    let fields = mapping.take_while(|line| line.split(' ').next().is_some_and(|word| word.ends_with(':')));
    let huge = fields.filter(|line| line.starts_with("ShmemPmdMapped:") || line.starts_with("FilePmdMapped:"));
    Some(huge.filter_map(kib).sum::<u64>() as usize * 1024)
}

/// Returns a field of `/proc/meminfo`: bytes, or a count if it has no unit.
fn meminfo(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let unit = if line.ends_with("kB") { 1024 } else { 1 };
    kib(line).map(|number| number * unit)
}

/// Returns the number of a line of the form `Name:   12 kB`.
fn kib(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn mib(bytes: usize) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_other_users_must_be_present_and_sealed() {
        let bytes = 4 << 20;
        let make = || memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let own = super::make(&Options { huge: false, ..Options::default() }, bytes).unwrap();
        assert_eq!(check_whole(own.fd.as_fd()), Ok(()));
        for (written, seals, words) in [
            (0, SealFlags::FUTURE_WRITE, "holes"),
            (bytes - PAGE, SealFlags::FUTURE_WRITE, "holes"),
            (bytes, SealFlags::SHRINK, "may punch"),
        ] {
            let fd = make();
            ftruncate(&fd, bytes as u64).unwrap();
            rustix::io::pwrite(&fd, &vec![1; written], 0).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            let said = check_whole(fd.as_fd()).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
        // A hole that is punched before the seal.
        let fd = make();
        rustix::io::pwrite(&fd, &vec![1; bytes], 0).unwrap();
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&fd, punch, 1 << 20, PAGE as u64).unwrap();
        fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE).unwrap();
        assert!(check_whole(fd.as_fd()).unwrap_err().contains("holes"));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        match memfd_create("test", flags) {
            Ok(fd) => {
                assert!(check_ordinary(fd.as_fd()).unwrap_err().contains("--share-small-pages"));
                // Since Linux 4.16; needs no pages to be present.
                fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
                assert!(fcntl_get_seals(&fd).unwrap().contains(SealFlags::SHRINK));
            }
            Err(error) => eprintln!("SKIPPED: no huge pages here: {error}"),
        }
    }
}
