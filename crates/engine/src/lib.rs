//! Runs and their threads, between ports and the code that consumes or generates frames.
//!
//! Receiving is one loop with consumers:
//!
//! - [`receive`]: ports -> `lanes` -> order -> consumers;
//! - [`consumer`]: the consumer trait;
//! - [`capture`]: ordered frames in blocks, for files and for other processes; [`count`](mod@count): without copies;
//!   [`check`]: streams with trailers; [`flows`]: flow records; [`follow`]: reassembled TCP streams; [`forward`]: to
//!   another port, and [`inline`], where another process decides; [`answer`]: replies to ARP, NDP and ping;
//! - [`print`](mod@print): one line per frame; [`frames`]: for a caller of [`stepped`], which advances a run itself;
//! - [`select`]: filter text, shards, duplicates, slices and frame limit, per consumer;
//! - `worker`: work on blocks in a separate thread;
//! - [`frame_ring`]: frames of received streams to and from another process.
//!
//! Sending:
//!
//! - [`streams`]: streams -> timeline -> frames -> the queues of a port;
//! - [`transmit`]: the same for streams that are added and removed while others run;
//! - [`replay`]: recording -> rules -> schedule -> the queues of one or two ports;
//! - `sender`: common part of all senders; `tx_queues`: the queues they send into; `live`: watching a port that
//!   generates frames itself.
//!
//! Both:
//!
//! - [`control`]: stopping a run, and watching it from another thread;
//! - [`metrics`]: counters of running runs, for another thread;
//! - [`clock`]: the time that is passed down as `now`, and detection of clock steps;
//! - [`thread_panic`]: handling of panics in a run.
//!
//! # Receiving
//!
//! One thread runs all lanes, the order and the consumers. The kernel's rings already are the single-producer queues
//! between cores: softirqs on every CPU fill them, and on two cores another thread would only alternate with the
//! sender. [`Consumer`] is the common interface of files, meters and other ports: it declares the order that it needs
//! ([`FrameOrder`]), takes each round, and accounts at the end for every frame that it was given, in its own branch of the
//! ledger. Each has its own selection; frames are ordered once, as strictly as the most demanding consumer needs.
//!
//! `?offset=` on any port is added to its times before the merge: its descs are copied with new times, frames are not;
//! other ports pay nothing. Frames of this machine's clock wait for externally fed lanes (a ring, a pipe) for 50 ms, or
//! the lag if that is more: a stopped sharer cannot stall a live port. Frames that arrive after that are late, and
//! `stalls` counts how often.
//!
//! # Waiting
//!
//! Waiting is adaptive. While input is likely and spinning has paid off recently, the thread spins for 50 us, then
//! polls. If frames become visible in batches, or each poll costs their producer time (`RxQueue::poll_interval`), it
//! sleeps between polls instead, unless a consumer needs each frame at once. While frames are ready that another lane could still precede, it sleeps for half
//! a millisecond: spinning lets a few frames through at a time and costs a core (measured on veth with the sender on
//! the other core: 0.40 M frames/s spinning, 0.63 sleeping). During the run only the queues' own counters are read:
//! querying a network card can take milliseconds, and holds locks.
//!
//! # Selecting
//!
//! Filter, shard, deduplication, slice and frame limit are applied after the merge, to the ordered stream, in this
//! order except for the slice, which is last. Deduplication compares 128 bits of hash with keys of the run (a frame
//! must not be able to hide another), exact within its window and bounded in memory. It needs untruncated frames, which
//! is why ports then deliver whole ones. It keeps a memory for each of four time ranges, so that a frame with a wrong
//! time evicts nothing.
//!
//! # Capturing
//!
//! Sinks have a thread of their own if there is a second processor (`worker`): a slow disk or compression blocks
//! nothing until 64 blocks are queued; then the lanes wait and count what they lose. With a shared ring sinks read the
//! same blocks in the thread of the run: a reader in another process is the better recorder then. The ring is filled by
//! the capture itself; its acceptor, which admits readers, is a thread. When lossless readers hold every block the
//! capture waits for one that it can name: the number and duration of these waits, and the frames that the ports lost
//! during them, are in the account of that reader.
//!
//! # Metering
//!
//! Workers share nothing ([`flows`]). The thread of the run copies the metered part of frames into blocks of 1,024 that
//! are recycled, six per worker: no allocation, and if all are full it waits. It reads a chunk of 512 frames, then
//! copies them worker by worker with the loop of the capture. The worker is chosen by addresses only
//! ([`FlowDistributor`](linerate_meter::FlowDistributor)), since fragments have no ports. Each block carries the time of the merged
//! input, so that the flows of a worker without frames time out too. Records are passed in batches under a lock.
//! Several lanes are merged first, with one worker too, through a block, since a meter that is given a frame or two at
//! a time hides no cache miss. With one lane and one worker nothing is copied, and the meter works in the thread of the
//! run, even with other consumers: passing frames to another thread costs as much as metering them (one pass over 4 M
//! frames: 0.87 s with a thread, 0.67 s without).
//!
//! # Counting, checking, forwarding, answering
//!
//! [`count`](mod@count) needs no order and no copy: one pass over the descs of each burst as its queue returns it.
//! Without a filter or `--protocols` no byte of a frame is read, and the kernel is asked for 64 bytes of each. Size
//! buckets are looked up in a table by length (measured against comparing with all limits, vectorised: half the time).
//! Peaks are per second of the frames' own times, so that they are the same for a file and for the wire.
//!
//! [`check`] takes the frames of a port with one queue as they are. Several queues are merged by time first: the frames
//! of a stream may arrive on all of them, and polling one queue after the other would be reordering, and soon exceed
//! any window.
//!
//! A wire is two [`forward`]s, each in a thread: frames of a queue are passed to the other port in place, without a
//! merge or a second copy; if both ports support it, frames are held and sent in place. (A merge would delay frames by
//! the lag; one lane keeps their order without it.) Frames for a port that is down are dropped and counted, as on an
//! unplugged cable. Super-frames cannot be forwarded, since they are longer than the MTU; they are counted, and the
//! user is shown which offload to disable.
//!
//! [`answer`] has its own port in addition to the sender's: `packet`, with a kernel filter, so that it works with every
//! send path and takes nothing from the host. Next hops are resolved in the calling thread, before the first frame; the
//! answering thread starts after privileges are dropped. `xdp` *receiving* on the same interface takes the requests
//! away.
//!
//! # Sending
//!
//! Streams and recordings use the same `sender`: one thread per queue, which waits (sleeping until 150 us before a
//! frame is due, with a timer slack of 1 ns instead of 50 us, then spinning), handles full queues and links that go
//! down, and keeps the account. Frames that are already due are sent together; at most 32 if they contain the time, so
//! that the last leaves soon after the first.
//!
//! [`replay`] sends from one thread, by one schedule and one clock, into all queues of one or two ports, so frames
//! leave in the recorded order whatever queue they take: the next one is submitted when the call for the previous one
//! has returned. One thread per queue would send more, but in the order of the scheduler. Other work (completions, the
//! link's state) is done only if more than 60 us are left. All processing of frames is done before: batches of 4 MiB
//! hold frames as they will leave, each with its transmit queue. A recording of up to 256 MiB is prepared once and
//! looped without further work; otherwise, and if each loop has its own addresses, a thread prepares batches ahead (32
//! of them, recycled), and sending starts when they are full.
//!
//! # Ending
//!
//! On a signal, a limit or a failed output the lanes are detached, what had arrived is drained and consumed, and the
//! ledger is closed. A panic in any thread is caught where it happens ([`thread_panic`]): the run stops and reports the thread
//! and the panic, and frames that an output did not receive are lost as `output_panicked`.
#![forbid(unsafe_code)]

mod acceptor;
pub mod answer;
mod arrival_times;
pub mod capture;
pub mod check;
pub mod clock;
pub mod consumer;
pub mod control;
pub mod count;
mod egress;
mod error;
pub mod flows;
pub mod follow;
pub mod forward;
pub mod frame_ring;
pub mod frames;
pub mod inline;
mod lanes;
mod live;
pub mod metrics;
pub mod print;
pub mod receive;
pub mod reception;
pub mod replay;
mod reply_port;
pub mod select;
mod sender;
pub mod stepped;
pub mod streams;
pub mod switching;
mod timing;
pub mod transmit;
mod tx_queues;
pub mod verdict;
mod worker;

pub use answer::{Answers, InterfaceResponder, ResolveError, ResponderReport};
pub use capture::share::{Sharing, SharingOptions};
pub use capture::{Capture, CaptureTotals};
pub use check::{CheckConsumer, CheckReport, CheckThread, CheckWatch};
pub use consumer::{Consumer, Demand, FrameOrder, HeldFrames, Round, RunCounters, RunEnd, RunStart, ScatterQueues};
pub use control::{Progress, ReopenRequest, Stop};
pub use count::{CountConsumer, CountSnapshot, CountWatch};
pub use error::ReceiveError;
pub use flows::{Load, MeterConsumer, MeteringReport, Meters};
pub use follow::{FollowConsumer, FollowReport};
pub use forward::Forward;
pub use inline::{FailMode, Inline, Policy as InlinePolicy, ReleaseOrder};
pub use linerate_burst::thread_panic::{self, ThreadPanic, survive};
pub use print::{LineWriter, PrintConsumer};
pub use receive::wait::WaitStrategy;
pub use receive::{Receive, RunReport};
pub use reception::Reception;
pub use replay::{Edits, RecordingMemory, Replay, ReplayReport};
pub use select::{Selection, Shard, Slice, imbalance};
pub use streams::{Control, StreamWatch, Streams, StreamsReport};
pub use verdict::{Inspect, Policy, Verdict};
