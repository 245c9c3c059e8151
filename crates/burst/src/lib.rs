//! The vocabulary that all crates share: time, descs, bursts, blocks, picks, sinks and the ledger.
//!
//! Packets lie back to back in memory, each with a small descriptor. The terms, each defined once:
//!
//! - a *frame* is the bytes of one packet from its link header on, as captured;
//! - a *desc* ([`Desc`]) is the fixed-size descriptor of one frame: time, position, lengths, interface, flags;
//! - a *burst* ([`Burst`]) is a run of frames with their descs in one memory, borrowed from its owner;
//! - a *lane* is one ordered input of the merge, such as a queue of a port or a file; it presents one burst at a time;
//! - a *pick* ([`FrameIndex`]) names one frame by lane and index; a list of picks is an order of frames;
//! - a *block* ([`Block`]) is memory that picked frames are copied into, as a nanosecond pcap body; a *slot* is the
//!   memory of one block in a shared ring, laid out like any block ([`slot`]);
//! - a *horizon* ([`Horizon`]) is the watermark of an input: it has no more frames older than this time;
//! - a *sink* ([`Sink`]) receives blocks; a *stage* owns [`counters`], which the [`ledger`] adds up and checks.
//!
//! Further modules: [`memory`] and `copy` write blocks, [`pool`] cuts memory into chunks with one owner each,
//! [`helper`] is a second thread to copy with, [`input`] opens files that users name, [`thread_panic`] turns panics into
//! errors, [`text`] finds characters that terminals do not show.
//!
//! # Time
//!
//! A desc's time is UTC nanoseconds in a `u64`, which reaches the year 2554; times before 1970 read as 0. `packet`
//! delivers `CLOCK_REALTIME` stamps that the kernel takes when the frame enters the stack. Each interface names the
//! source of its stamps (`hardware`, `kernel`, `xdp`, `user`, `file`), and pcapng files record it. No code here reads a
//! clock: `now` is an argument, so that every stage replays exactly from a seed or a capture.
//!
//! # Desc
//!
//! 32 bytes, two to a cache line, layout asserted at compile time:
//!
//! ```text
//!  0        8       12        16     20         22     24  25  26    28         32
//!  time     offset  captured  wire   interface  flags  l3  l4  note  hash
//!  u64      u32     u32       u32    u16        u16    u8  u8  u16   u32
//! ```
//!
//! `l3` and `l4` are the offsets of headers (0xff: none), `note` is a number defined by the capture file, `hash` is the
//! same for both directions of a flow. Descs lie in an array of their own, dense and in the order of the frames, so
//! that ordering and counting touch no frame. A captured length has 32 bits because GSO frames have 65,549 bytes and
//! capture files allow 262,144.
//!
//! The field is the *interface*, not the lane. A port with four queues is four lanes and one interface; a pcapng file
//! with three interfaces is one lane. The merge identifies lanes by their position, and a file must record interfaces.
//!
//! # Memory
//!
//! A [`Burst`] keeps its base private and returns `frame(i) -> &[u8]` for frames that its reader owns: a plain `&[u8]`
//! over memory that the kernel or another process is writing would be undefined behaviour. Bounds are checked once,
//! when a burst is made ([`Burst::over`]), or promised by the few unsafe files that make one from a kernel ring. Each
//! frame is followed by 64 mapped bytes (the packet ring maps a page of zeros after itself). They are never read, since
//! the kernel or another process may be writing there: the copy loads its last vector under a mask, or lets it end at
//! the end of the frame. The parts of a block lie where [`slot`]'s layout puts them, which only its checked
//! constructors can make.
//!
//! A [`Block`] is the memory that frames are copied into: a header, the descs, then nanosecond pcap records back to
//! back. With a 24-byte header in front the records are a pcap file, and the pcap writer writes them unchanged. Private
//! and shared memory have one layout, so there is one copy loop, and sharing costs no second copy.
//!
//! # The copy
//!
//! `copy` takes an order ([`FrameIndex`]: lane, index, late, in four bytes) and copies a frame as whole vectors, past its
//! end. It divides a time by a second only when a new second begins. The completion of a desc (interface, headers, flow
//! hash, selection) is a trait ([`FinishDesc`]) and not a closure: a closure was not inlined into the function compiled for
//! 64-byte vectors, which cost a third. Dense frames are prefetched a fixed distance ahead, across the end of a page;
//! scattered ones 16 picks ahead. (Looking ahead for dense frames too cost a seventh.) Totals are added up in a
//! separate loop afterwards.
//!
//! Tried and dropped: copying 64 frames first and completing their descs after (as fast, more code); prefetching lines
//! of block and descs for writing (`prefetchw`, as fast); prefetching the frames of a batch before it is ordered
//! (slower); smaller batches (slower). Property tests compare with pushing frames one by one. When benchmarking one
//! port against the limit, read the same number of bytes: 32 MiB lie half in the last-level cache and are read a
//! quarter faster.
//!
//! A second thread copies on request ([`helper`]). The lengths of the frames before a cut give the position of the
//! frame after it, so both threads fill the same block, each its own stretch, and nothing is published before both are
//! done: order, blocks and readers are unaffected. Frames that end within a vector of the cut are copied exactly, after
//! that. The cut moves until both threads finish together. It takes batches of 512 frames, and selections that keep
//! every frame whole, since otherwise positions are unknown. The hand-over is two atomic words and no allocation; work
//! that the helper has not started is taken back, so that a sleeping helper costs only a wake-up. It is off by default:
//! when other work takes its processor, it delays the current batch. Tried on top and dropped: ordering the next 512
//! frames of each lane while the last ones are copied (a tenth faster for random order, a fifth slower for runs).
//!
//! # The ledger
//!
//! [`counters`] declares every counter with stage, kind, name and description; `docs/counters.md` is generated from it.
//! For each account `received = delivered + refused + lost`, and what one stage delivers the next one receives; both
//! are checked on every run and reported. If several consumers receive the same frames, each has a branch of its own.
//! `rx_dropped` of an interface is a note and not a loss: the network stack also counts there the frames that only the
//! capture wanted (on veth, every VLAN frame of a replay).
#![deny(unsafe_code)]

pub mod block;
pub mod burst;
mod copy;
pub mod counters;
mod cpu;
pub mod desc;
pub mod frame_index;
pub mod helper;
pub mod input;
pub mod interface;
pub mod ledger;
pub mod memory;
pub mod pool;
pub mod random;
pub mod sink;
pub mod sizes;
pub mod slot;
pub mod text;
pub mod thread_panic;
mod threads;
pub mod time;

pub use block::{Block, CommitState, RECORD_HEADER};
pub use burst::{Burst, MisplacedDesc};
pub use copy::FinishDesc;
pub use counters::{Count, Kind, Stage, Unit};
pub use cpu::{match_mask, prefetch, prefetch_address, prefetch_many};
pub use desc::{Desc, Flags};
pub use frame_index::FrameIndex;
pub use helper::Helper;
pub use interface::{Interface, LinkType, StampSource};
pub use ledger::{Account, Ledger};
pub use memory::{Memory, prefer_huge_pages, resident};
pub use sink::{Sink, SinkError};
pub use sizes::Sizes;
pub use slot::Layout;
pub use time::{Horizon, Nanos};

/// Mapped bytes after each frame of any burst. They must not be read: they belong to others, who may be writing there.
/// Blocks also keep this many after their end, which may be written, so that copy loops can store whole vectors.
pub const TAIL: usize = 64;

/// Longest frame that any part of linerate handles, in bytes: libpcap's `MAXIMUM_SNAPLEN` (pcap-int.h), above the
/// 65,549 bytes of the longest classic GSO frame.
pub const MAX_FRAME: usize = 262_144;
