//! The words everything shares: time, descriptors, bursts, blocks, sinks and the ledger.
//!
//! Packets lie back to back in blocks of memory, each with a small descriptor ([`Desc`]); a run of
//! them is a [`Burst`]. Every other crate is a source or a sink of bursts. In the order data takes:
//!
//! - [`time`]: UTC nanoseconds ([`Nanos`]) and how far an input is complete ([`Horizon`]);
//! - [`interface`]: where a frame was seen, and what its first byte means ([`LinkType`]);
//! - [`desc`]: the fixed-size record about one frame;
//! - [`burst`]: frames with their descs in one memory;
//! - [`pick`]: one entry of an order: which frame of which lane comes next;
//! - [`block`]: memory that frames are copied into, back to back, as a nanosecond pcap body; [`slot`] is how it
//!   lies in memory, private or shared, [`memory`] and `copy` are what writes there;
//! - [`pool`]: memory cut into chunks that are owned one by one;
//! - [`helper`]: a second thread to copy with;
//! - [`sink`]: what takes bursts;
//! - [`counters`]: every counter and drop reason, declared once;
//! - [`ledger`]: what every stage has counted, and the identity that must hold;
//! - [`input`]: opening files that users name;
//! - [`died`]: what remains of a thread in which this program has a bug;
//! - [`text`]: which characters of a text are not what they seem.
//!
//! # Time
//!
//! A desc's time is UTC nanoseconds in a `u64`, which reaches the year 2554; times before 1970 read as 0. `packet` gives
//! `CLOCK_REALTIME` stamps that the kernel takes when the frame enters the stack. Each interface says who took its stamps
//! (`hardware`, `kernel`, `xdp`, `user`, `file`), and pcapng files record it. Nothing here reads a clock: `now` is an argument,
//! so that every stage replays exactly from a seed or a capture.
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
//! `l3` and `l4` are where headers begin (0xff: none), `note` is a number that the capture file knows, `hash` is the same for both
//! directions of a flow. Descs lie in an array of their own, ascending and dense, apart from the frames, so that ordering and
//! counting touch no frame. A captured length has 32 bits because GSO frames have 65,549 bytes and capture files allow 262,144.
//!
//! The field is the *interface*, not the lane. A port with four queues is four lanes and one interface; a pcapng file with three
//! interfaces is one lane. The merge knows lanes by their position, and a file must record interfaces.
//!
//! # Memory
//!
//! A [`Burst`] holds its base privately and hands out `frame(i) -> &[u8]` for frames that its reader owns: a plain `&[u8]` over
//! memory that the kernel or another process is writing would be undefined behaviour. Bounds are checked once, when a burst is
//! made ([`Burst::over`]), or promised by the few unsafe files that make one from a kernel ring. 64 mapped bytes lie behind each
//! frame (the packet ring maps a page of zeros behind itself). Nobody reads them, since the kernel or another process may be
//! writing there: the copy loads its last vector under a mask, or lets it end where the frame ends. Where the parts of a block lie
//! only [`slot`]'s layout says, which nobody else can make up.
//!
//! A [`Block`] is the memory that frames are copied into: a header, the descs, then nanosecond pcap records back to back. So with a
//! 24-byte header in front the records are a pcap file, and the pcap writer writes them as they lie. Private and shared memory have
//! one layout, so there is one copy loop, and sharing costs no second copy.
//!
//! # The copy
//!
//! `copy` takes an order ([`Pick`]: lane, index, late, in four bytes) and copies a frame as whole vectors, over its end. The time
//! is divided by a second only where a second begins. What completes a desc (interface, headers, flow hash, selection) is a trait
//! ([`Finish`]) and not a closure: a closure was not inlined into the function made for 64-byte vectors, which cost a third.
//! Frames that lie dense are asked for a fixed distance ahead, which carries over the end of a page; for scattered ones the loop
//! looks 16 picks ahead. (Looking ahead for dense ones too cost a seventh.) Totals are added up in a loop of their own behind it.
//!
//! Tried and dropped: copying 64 frames first and completing their descs after (as fast, more code); asking for lines of block and
//! descs to write them (`prefetchw`, as fast); asking for the frames of a round before it is ordered (slower); smaller rounds
//! (slower). Property tests compare with pushing frames one by one. Who measures a limit with one port must read as many bytes:
//! 32 MiB lie half in the last cache and are read a quarter faster.
//!
//! A second thread copies on request ([`helper`]). The lengths of the frames ahead of a cut say where the frame behind it will lie,
//! so both threads fill the same block, each its own stretch, and nothing is published before both are done: order, blocks and
//! readers know nothing of it. Frames that end within a vector of the cut are copied exactly, after that. The cut moves until both
//! end together. It takes rounds of 512 frames, and selections that keep every frame whole, since otherwise nobody knows the
//! places. The hand-over is two atomic words and no allocation; work that the helper has not begun is taken back, so that one
//! which sleeps costs a wake-up and nothing else. It is off unless asked for: with its processor taken by others, it holds up the
//! round it is in. Tried on top: ordering the next 512 frames of each lane while the last ones are copied. That gained a tenth at
//! random and lost a fifth in runs; it was left out.
//!
//! # The ledger
//!
//! [`counters`] declares every counter with stage, kind, name and one sentence; `docs/counters.md` is made from it. For each account
//! `received = delivered + refused + lost`, and what one stage delivers the next one receives; both are checked on every run and
//! said. Where several consumers take the same frames each has a branch of its own. `rx_dropped` of an interface is a note and no
//! loss: the network stack counts there also the frames that nothing but the capture wanted (on veth, every VLAN frame of a replay).
#![deny(unsafe_code)]

pub mod block;
pub mod burst;
mod copy;
pub mod counters;
mod cpu;
pub mod desc;
pub mod died;
pub mod helper;
pub mod input;
pub mod interface;
pub mod ledger;
pub mod memory;
pub mod pick;
pub mod pool;
pub mod random;
pub mod sink;
pub mod sizes;
pub mod slot;
pub mod text;
mod threads;
pub mod time;

pub use block::{Block, Committed, RECORD_HEADER};
pub use burst::{Burst, Misplaced};
pub use copy::Finish;
pub use counters::{Count, Kind, Stage, Unit};
pub use cpu::{places_of, prefetch, prefetch_many};
pub use desc::{Desc, Flags};
pub use helper::Helper;
pub use interface::{Interface, LinkType, StampSource};
pub use ledger::{Account, Ledger};
pub use memory::{Memory, prefer_huge_pages, resident};
pub use pick::Pick;
pub use sink::{Sink, SinkError};
pub use sizes::Sizes;
pub use slot::Layout;
pub use time::{Horizon, Nanos};

/// Bytes behind each frame of any burst that are mapped. They are not to be read: they belong to others, who may be writing
/// there. Blocks keep as many behind their end, which are written, so that copy kernels may store whole vectors.
pub const TAIL: usize = 64;

/// The longest frame any part of linerate handles, in bytes: libpcap's `MAXIMUM_SNAPLEN`
/// (pcap-int.h), above the 65,549 bytes of the longest classic GSO frame.
pub const MAX_FRAME: usize = 262_144;
