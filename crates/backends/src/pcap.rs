//! `pcap:file`: a capture file as a port; `pcap:-` is standard input or output.
//!
//! Files and pipes use the same code, compressed or not. No read blocks: a pipe is read only when it has data, a FIFO
//! may have no writer yet, and data without frames is read a few MiB at a time. So a run can be stopped at any time,
//! and other lanes get their turn.

mod multi_file;

pub use multi_file::joined;

use linerate_burst::{
    Block, Burst, Count, Desc, Flags, Horizon, Interface, Ledger, Nanos, Sink, SinkError, Stage, StampSource,
};
use linerate_pcap::{Format, Output, ReadError, Reader, Writer};
use linerate_port::{
    Backend, Feed, Head, PortError, Registry, RxOptions, RxPort, RxQueue, Sent, Spec, Target, TxOptions, TxPort,
    TxQueue,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fstat};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "pcap",
    placeholder: "file or -",
    sentence: "capture files: reads pcap and pcapng, writes pcapng or nanosecond pcap",
    target: Target::File,
    rx_options: &[],
    tx_options: &[],
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| false,
};

/// Opens a capture file to read from.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let mut port = Recording::open(&spec.target)?.port()?;
    if port.feed != Feed::Stored {
        port.feed = Feed::others(options);
    }
    Ok(port)
}

/// A capture file that can be read repeatedly, even if it could not be reopened.
pub struct Recording {
    name: String,
    file: File,
}

impl Recording {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &str) -> Result<Self, PortError> {
        let name = Spec::file(path).to_string();
        let file = open(path).map_err(|error| PortError::broken(&name, error.to_string()))?;
        Ok(Recording { name, file })
    }

    /// Opens the file as a port, from its start; a pipe from its current position. One port at a time.
    pub fn port(&self) -> Result<RxPort, PortError> {
        let queue = self.queue()?;
        // Reading a regular file never blocks.
        let feed = if queue.wake.is_some() { Feed::others(&RxOptions::default()) } else { Feed::Stored };
        Ok(RxPort::new(self.name.clone(), vec![Box::new(queue)], feed))
    }

    fn queue(&self) -> Result<PcapRx, PortError> {
        let broken = |error: io::Error| PortError::broken(&self.name, error.to_string());
        let mut file = self.file.try_clone().map_err(broken)?;
        let stat = fstat(&file).map_err(|error| broken(error.into()))?;
        let waits = !FileType::from_raw_mode(stat.st_mode).is_file();
        if !waits {
            file.rewind().map_err(broken)?;
        }
        let wake = if waits { Some(file.try_clone().map_err(broken)?.into()) } else { None };
        Ok(PcapRx {
            name: self.name.clone(),
            reader: Reader::lazy(Box::new(Input { file, waits }), self.name.trim_start_matches("pcap:")),
            wake,
            newest: Nanos::ZERO,
            shown: 0,
            delivered: 0,
            detached: false,
        })
    }
}

/// Opens a capture file to write to: pcap if it ends in `.pcap`, else pcapng; compressed if `.gz` or `.zst` follows.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let name = spec.to_string();
    let format = Format::of_path(&spec.target).map_err(|error| PortError::wrong(&name, error.to_string()))?;
    let output = Output::open(&spec.target).map_err(|error| PortError::broken(&name, error.to_string()))?;
    let queue = PcapTx {
        name: name.clone(),
        writer: Writer::new(output, format),
        block: Block::new(BLOCK_BYTES, BLOCK_FRAMES),
        interfaces: [Interface::new("linerate", options.link, StampSource::User)],
        received: 0,
        sent: Sent::default(),
        is_used: false,
    };
    Ok(TxPort { name, queues: vec![Box::new(queue)], monitor: None })
}

const BLOCK_BYTES: usize = 512 << 10;
const BLOCK_FRAMES: usize = 2048;

fn open(path: &str) -> io::Result<File> {
    if path == "-" {
        return Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    }
    // Opening a FIFO would wait for its writer, and reading some kernel files for an event.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let is_socket = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let file = match opened {
        Err(_) if is_socket() => return Err(io::Error::other("is a socket; expected a file, a FIFO or -")),
        other => other?,
    };
    if file.metadata()?.is_dir() {
        return Err(io::Error::other(
            "is a directory; expected a file (linerate merge DIR -w FILE joins those of a directory)",
        ));
    }
    Ok(file)
}

/// A file that returns `WouldBlock` where reading would block.
struct Input {
    file: File,
    waits: bool,
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.waits {
            let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
            if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        self.file.read(into)
    }
}

struct PcapRx {
    name: String,
    /// Reads the file header with the first frames: that of a pipe may arrive later.
    reader: Reader,
    /// Descriptor to wait on, if reading can block.
    wake: Option<OwnedFd>,
    /// Latest time shown.
    newest: Nanos,
    /// Frames shown and not consumed.
    shown: usize,
    delivered: u64,
    detached: bool,
}

/// Converts an error, which names the file itself.
fn broken(error: ReadError) -> PortError {
    PortError::broken("pcap", error.to_string())
}

impl RxQueue for PcapRx {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        if self.detached && self.shown == 0 {
            return Ok(Head { burst: Burst::EMPTY, horizon: Horizon::Ended, interfaces: &[] });
        }
        let reader = &mut self.reader;
        if !self.detached {
            match reader.look() {
                Ok(_) => {}
                Err(ReadError::Io { reason, .. }) if reason.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(broken(error)),
            }
        }
        let mut burst = reader.shown();
        if self.detached {
            burst = burst.slice(0..self.shown);
        }
        self.shown = burst.len();
        self.newest = burst.descs().iter().map(|desc| desc.time).fold(self.newest, Nanos::max);
        let horizon = if reader.ended() { Horizon::Ended } else { Horizon::At(self.newest) };
        Ok(Head { burst, horizon, interfaces: reader.interfaces() })
    }

    fn consume(&mut self, frames: usize) {
        assert!(frames <= self.shown, "{frames} frames consumed, {} shown", self.shown);
        self.reader.consume(frames);
        self.shown -= frames;
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        self.detached = true;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }

    fn has_pending_work(&self) -> bool {
        !self.detached && self.reader.has_pending_work()
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, &self.name);
        account.add(Count::Received, self.delivered + self.shown as u64).add(Count::Delivered, self.delivered);
        let (seen, dropped) = self.reader.seen_and_dropped();
        for (count, frames) in [(Count::FileSeen, seen), (Count::FileDropped, dropped)] {
            if let Some(frames) = frames {
                account.add(count, frames);
            }
        }
        account.add(Count::FileNotCopied, self.reader.left_out()).add(Count::TimeChanged, self.reader.times_changed());
    }
}

impl Drop for PcapTx {
    fn drop(&mut self) {
        // Write frames that were not flushed too; errors cannot be reported any more.
        if !self.is_used {
            let _ = self.writer.finish_unused(&Ledger::new());
        } else if self.write().is_ok() {
            let _ = self.writer.finish(&Ledger::new());
        }
    }
}

struct PcapTx {
    name: String,
    writer: Writer,
    block: Block,
    interfaces: [Interface; 1],
    received: u64,
    sent: Sent,
    /// True if a frame or the end arrived. Otherwise the run failed before, and the file's contents stay.
    is_used: bool,
}

impl PcapTx {
    fn write(&mut self) -> Result<(), PortError> {
        let result = self.writer.accept(self.block.view(0, &self.interfaces));
        self.block.clear();
        result.map_err(|error| unwritten(&self.name, &error))
    }
}

fn unwritten(port: &str, error: &SinkError) -> PortError {
    let (port, reason) = (port.to_owned(), error.to_string());
    match error.reason.kind() {
        io::ErrorKind::BrokenPipe => PortError::Unread { port, reason },
        _ => PortError::Broken { port, reason },
    }
}

impl TxQueue for PcapTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.is_used = true;
        for (index, (desc, frame)) in burst.iter().enumerate() {
            let desc = Desc { interface: 0, flags: desc.flags.without(Flags::FCS), ..*desc };
            if !self.block.push(&desc, frame) {
                if let Err(error) = self.write() {
                    self.received += index as u64;
                    return Err(error);
                }
                self.block.push(&desc, frame);
            }
        }
        self.received += burst.len() as u64;
        self.sent.add(burst);
        Ok(burst.len())
    }

    fn flush(&mut self, _now: Nanos) -> Result<bool, PortError> {
        self.is_used = true;
        self.write()?;
        self.writer.flush().map_err(|error| unwritten(&self.name, &error))?;
        Ok(true)
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn counters(&self, ledger: &mut Ledger) {
        let mut written = Ledger::new();
        self.writer.counters(&mut written);
        let sent = written.total(Count::Written);
        let refused = self.received - sent;
        let account = ledger.account(Stage::Send, &self.name);
        account.add(Count::SendReceived, self.received).add(Count::Sent, sent).add(Count::SendRefused, refused);
    }
}
