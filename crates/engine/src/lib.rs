//! Runs, and their threads: ports on one side, whoever takes or makes frames on the other.
//!
//! Receiving is one loop with consumers:
//!
//! - [`receive`]: ports -> `lanes` -> order -> consumers;
//! - [`consumer`]: what a consumer must do;
//! - [`capture`]: ordered frames in blocks, for files and for other processes; [`count`](mod@count): with nothing copied;
//!   [`check`]: streams with trailers; [`flows`]: flow records; [`follow`]: TCP streams rebuilt; [`forward`]: to another port, and [`inline`] while another process decides;
//!   [`answer`]: back to whoever asked;
//!   [`print`](mod@print): to people;
//! - [`select`]: filter text, shards, duplicates, slices and frame limit, of each consumer;
//! - `worker`: work on blocks in a thread of its own;
//! - [`frame_ring`]: frames of received streams for another process, and from there.
//!
//! Sending:
//!
//! - [`streams`]: streams -> timeline -> frames -> the queues of a port;
//! - [`transmit`]: the same of streams that come and go one by one, while others go on;
//! - [`replay`]: recording -> rules -> schedule -> the queues of one port or two;
//! - `sender`: what all senders do; `tx_queues`: the queues they send into; `live`: watching a port that makes frames itself.
//!
//! Both:
//!
//! - [`control`]: stopping a run, and watching it from another thread;
//! - [`metrics`]: what runs have counted so far, for a thread that asks;
//! - [`clock`]: the time that is handed down as `now`, and whether somebody has set it;
//! - [`died`]: what becomes of a run that panics.
//!
//! # Receiving
//!
//! One thread runs all lanes, the order and the consumers. The kernel's rings already are the single-producer queues between cores:
//! softirqs on every CPU fill them, and on two cores another thread would only take turns with the sender. [`Consumer`] is what files,
//! meters and other ports have in common: it says how far frames have to be put in order for it ([`Order`]), takes each round, and
//! accounts at the end for every frame that it was given, in a branch of the ledger of its own. Each has its own selection; order is
//! made once, as far as the most demanding of them needs it.
//!
//! `?offset=` on any port is added to its times before the merge: its descs are copied with new times, frames are not; other ports
//! pay nothing. Beside frames of this machine's clock, lanes that others feed (a ring, a pipe) are waited for 50 ms, or the lag if
//! that is more: a stopped sharer cannot hold a live port up. What comes then is late, and `stalls` counts how often.
//!
//! # Waiting
//!
//! Waiting is adaptive. While input may come at once and looking again has paid lately, the thread looks again for 50 us, then polls. Where each look takes
//! time from whoever brings the frames (`RxQueue::nap`) it sleeps between looks instead, unless a consumer is to have each frame at once.
//! While frames are there that another lane could still precede, it sleeps half a millisecond: looking again lets a few frames
//! through at a time and costs a core (measured on veth with the sender on the other core: 0.40 M frames/s spinning, 0.63 sleeping).
//! While the run lasts only the queues' own counters are looked at: asking a network card can take milliseconds, and holds locks.
//!
//! # Selecting
//!
//! Filter, shard, deduplication, slice and frame limit are applied after the merge, to the ordered stream, in this order but for the
//! slice, which is last. Deduplication compares 128 bits of hash with keys of the run (a frame must not be able to hide another),
//! exact within its window and bounded in memory. It looks at frames before they are cut, which is why ports then hand over whole ones.
//! It keeps a memory for each of four stretches of time, so that a frame of a wrong time makes it forget nothing.
//!
//! # Capturing
//!
//! Sinks have a thread of their own where there is a second processor (`worker`): a slow moment of a disk, or compression,
//! holds nobody up until 64 blocks are on their way; then the lanes wait and count what they lose. With a shared ring sinks read the
//! same blocks in the thread of the run: a reader in another process is the better recorder then. The ring is filled by the capture
//! itself; its acceptor, where readers come in, is a thread. When lossless readers hold every block the capture waits, for one it can
//! name: how often, how long, and how many frames the ports lost meanwhile stand in the account of that reader.
//!
//! # Metering
//!
//! Workers share nothing ([`flows`]). The thread of the run copies what counts of frames into blocks of 1,024 that go round, six a
//! worker: no allocation, and where all are full it waits. It looks at a chunk of 512 frames, then copies them worker by worker with
//! the loop of the capture. Which worker is decided by addresses alone ([`Spread`](linerate_meter::Spread)), since fragments have no
//! ports. Each block says what time has come by the frames of all, so that the flows of a worker without frames end too. Records come
//! in batches under a lock. Several lanes are merged first, with one worker too, through a block, since a meter that is handed a frame
//! or two at a time hides no cache miss. With one lane and one worker nothing is copied, and the meter is at work in the thread of
//! the run, also beside other consumers: handing frames to another thread costs as much as metering them (one pass over 4 M frames:
//! 0.87 s with a thread, 0.67 s without).
//!
//! # Counting, checking, forwarding, answering
//!
//! [`count`](mod@count) needs no order and no copy: one pass over the descs of each burst as its queue shows it. Without a filter or
//! `--protocols` no byte of a frame is read, and the kernel is asked for 64 bytes of each. Size buckets come from a table by length
//! (measured against comparing with all limits, vectorised: half the time). Peaks are of seconds by the frames' own times, so that
//! they are the same for a file and for the wire.
//!
//! [`check`] takes a port with one queue as it shows its frames. Several queues are merged by time first: the frames of a stream may
//! come over all of them, and looking at one queue after the other would be reordering, and soon beyond any window.
//!
//! A wire is two [`forward`]s, each in a thread: what a queue shows is handed to the other port as it lies, no merge, no second copy; where
//! both ports can, frames are held and sent from where they lie. (A merge would hold frames back by the lag; one lane keeps their order
//! without it.) Frames for a port that is down are lost by name, as on a cable that leads nowhere. Super-frames cannot be sent on, since they
//! are longer than the MTU; they are counted, and the user is told what to switch off.
//!
//! [`answer`] has a port of its own beside whatever sends: `packet`, with a kernel filter, so that every send path has it and nothing
//! is taken from the host. Next hops are asked for in the calling thread, before there is a frame; the thread that answers starts when
//! privileges are gone. `xdp` *receiving* on the same interface takes the questions away.
//!
//! # Sending
//!
//! Streams and recordings leave by the same `sender`: one thread a queue, which waits (asleep until 150 us before a frame is due, with
//! a timer slack of 1 ns instead of 50 us, then looking at the clock), bears full queues and links that go down, and keeps the account.
//! What is due already goes together; of frames with the time in them at most 32, so that the last leaves soon behind the first.
//!
//! [`replay`] sends from one thread, by one schedule and one clock, into all queues of one port or two, so frames leave in the recorded
//! order whatever queue they take: the next one is handed over when the call for the one before has returned. A thread a queue would
//! send more, but the order would be that of the scheduler. What else there is to do (completions, the link's state) is done only where
//! more than 60 us are left. All work on frames is done before: batches of 4 MiB hold frames as they will leave, each with its transmit queue. A
//! recording of up to 256 MiB is made ready once and looped without another look at it; else, and where each loop has its own
//! addresses, a thread makes batches ahead (32 of them, used in turn), and sending begins when they are full.
//!
//! # Ending
//!
//! On a signal, a limit or a failed output the lanes are detached, what had arrived is drained and taken, and the ledger is closed. A
//! panic in any thread is caught where it happens ([`died`]): the run stops, says which thread died of what, and what an output did
//! not get is lost as `output_died`.
#![forbid(unsafe_code)]

mod acceptor;
pub mod answer;
mod arrivals;
pub mod capture;
pub mod check;
pub mod clock;
pub mod consumer;
pub mod control;
pub mod count;
mod error;
pub mod flows;
pub mod follow;
pub mod forward;
pub mod frame_ring;
pub mod inline;
mod lanes;
mod live;
pub mod metrics;
mod outlet;
pub mod print;
pub mod receive;
pub mod reception;
pub mod replay;
pub mod select;
mod sender;
pub mod streams;
pub mod switching;
mod timing;
pub mod transmit;
mod tx_queues;
pub mod verdict;
mod worker;

pub use answer::{Answering, AnsweringReport, Answers, Unresolved};
pub use capture::share::{Sharing, SharingOptions};
pub use capture::{Capture, Captured};
pub use check::{CheckReport, CheckWatch, Checker, Checking};
pub use consumer::{Consumer, Demand, End, Holds, Look, Order, Reads, Round, Start};
pub use control::{Progress, Reopen, Stop};
pub use count::{Counting, Counts, Watch};
pub use error::ReceiveError;
pub use flows::{Load, Metered, Metering, Meters};
pub use follow::{Followed, Following};
pub use forward::Forward;
pub use inline::{Fail, Inline, Policy as InlinePolicy, Release};
pub use linerate_burst::died::{self, Died, survive};
pub use print::{Lines, Printing};
pub use receive::wait::Waiting;
pub use receive::{Receive, Received};
pub use reception::Reception;
pub use replay::{Edits, Memory, Replay, ReplayReport};
pub use select::{Selection, Shard, Slice, imbalance};
pub use streams::{Control, StreamWatch, Streams, StreamsReport};
pub use verdict::{Inspect, Policy, Verdict};
