//! The backends: one file each, with a row for [`BACKENDS`]; and what they share.
//!
//! - [`packet`], [`xdp`], [`xdp_live`], [`pcap`], [`mem`], [`null`], [`shm`], [`memif`], [`tun`], [`dpdk`], [`faulty`]: the backends; system calls stay in `sys/`;
//! - [`inventory`]: what interfaces there are and what they can do; [`interface`]: all that is known of one;
//! - [`clocks`]: the clocks of the host and of cards;
//! - [`netns`]: opening things inside a network namespace;
//! - [`ebpf`]: instructions for programs that run in the kernel;
//! - [`transfer`]: bytes sent through the kernel's TCP and UDP;
//! - [`counting`]: a receiver that only counts; [`redirecting`]: a wire that is a program of the kernel.
//!
//! # packet
//!
//! TPACKET_V3 rings whose blocks are bursts as they lie: no copy on the way to the merge. One socket a CPU in a fanout group, because each
//! CPU stamps and stores in order while two CPUs feeding one ring do not. There are as many lanes as processors, whatever processors this
//! process is confined to: softirqs run on all of them. A VLAN tag that the kernel took out is put back in place (the ring reserves room in
//! front of each frame). Frames longer than the interface's MTU, or marked by the kernel, are flagged as super-frames: GRO made them. All
//! sockets stand behind a filter that refuses everything until the last one has joined the group, so that no frame is seen twice. `detach`
//! attaches such a filter too, because closing would throw the ring away.
//!
//! Blocks are small (128 KiB, above the longest classic super-frame), because the kernel hands one over at every timeout however little is in
//! it: a ring of N blocks bears a reader that stalls for N times 1 ms. With 1 MiB blocks and 16 lanes that was 8 ms.
//!
//! The block timeout is 1 ms, so a lone frame is seen within about that time. The lane's horizon is `now - lag`, 2 ms by default and at least
//! the timeout plus 1 ms, because the stamp is taken before the frame is stored. Before Linux 6.18 the kernel rounds the timeout up to timer
//! ticks and adds one (8 ms at 250 Hz); the lag follows.
//!
//! With `stamp=hardware` the card stamps frames (SIOCSHWTSTAMP, PACKET_TIMESTAMP), and its times are put onto the host's clock
//! ([`clocks`]), because the horizon and all other ports have that. The status of each frame says who stamped it. The walk through a block is
//! compiled twice, so that others pay nothing. No card with a clock was at hand: what is tested is the arithmetic, the status, and who is refused.
//!
//! # xdp
//!
//! AF_XDP, over `libc` and `bpf(2)`: no libbpf, no compiler, no object file. The program that an interface runs for each frame is made at run
//! time by an assembler of 200 lines (`ebpf`): what a committed object would need relocations, BTF and a reproducible compiler for is here a
//! constant in an instruction. It loads in milliseconds.
//!
//! - **The program writes frames itself** (`mode=ring`, the usual form): with their descs, back to back, into an array that this process has
//!   mapped (`sys/area`): a segment a queue, all of them one memory, which is the port's region. No socket, no ring of the kernel's, no chunk
//!   to give back; a burst is shown as it lies. A VLAN tag that the driver took out is written where it belongs, frames of several buffers
//!   come whole. The process says how far it has read, in a line of its own; it asks for more every 20 us at most, because each look takes the
//!   program's line away from it, which costs more than the frame. A reader in no hurry naps for 100 us meanwhile; one that sleeps says so, and is
//!   woken once (`sys/bell`). Segments hold 32,768 frames and 16 MiB; with `ring=N` N frames of a chunk's length. Slices are cut by the program.
//! - **The filter is part of that program** (`xdp/filtering`): libpcap's, translated, where it gives the same answer in the kernel. Frames that it
//!   refuses are counted there (`kernel_filtered`); those whose tag the driver has taken out are judged in this process, once it is back. Where the
//!   verifier refuses it this process filters.
//! - **AF_XDP** (`mode=af_xdp`, `native`, `generic`) where a driver copies nothing (its features say so), where `copy=` or `busy-poll=` ask for
//!   it, and where no program runs in the driver, since in generic mode several processors may bring frames of one queue.
//! - **Sending from where frames lie**: whoever sends on what an `xdp:` port has received names places in its area, and a program of
//!   [`xdp_live`] copies them into live frames (`xdp/direct`). The interface has to take redirected frames, which for a veth depends on its other
//!   end; its features are asked twice a second (generic netlink, `netdev`), and AF_XDP sends what cannot go that way, in order.
//! - **All queues by default**, one lane each; `@0-3` names some, the others stay with the host. AF_XDP has a socket and a memory for each.
//! - **Attached by a link.** The kernel removes the program with the process, however that ends (tested with SIGKILL). Another program is
//!   never replaced: the error names it. All ports of this process on an interface share one program.
//! - **Best form first, and said**: in the driver with the driver's word about VLAN tags it took out (`bpf_xdp_metadata_rx_vlan_tag`, found by
//!   name in the kernel's BTF, bound to the device), in the driver, in generic mode; zero copy, copied with frames of several buffers,
//!   copied. `?mode=` and `?copy=` choose.
//! - **Time** is taken in the program (`bpf_ktime_get_tai_ns`) and put into the 8 bytes in front of the frame; the offset of TAI is read at start
//!   and every second. Drivers that leave no room for it are told by a word of the queue; their frames get the time they are read at. A
//!   queue is served by one processor at a time and stays ordered; a stamp becomes visible at the end of a poll of 64 frames, so the lag
//!   is 1 ms.
//! - **A queue's word decides** whether its frames are taken. `detach` clears it in shared memory: no system call, no privilege, and what
//!   comes later goes to the host. The same cache line counts the frames handed to the socket, after the kernel has said that it took them.
//!   That count is what `received` means, and what makes the ledger an independent check of the kernel's drop counters.
//! - **Rings**: 16,384 frames a queue, fewer where a port has many, 65,536 with `--lossless`: a ring beyond the caches bears longer stalls and is
//!   slower (3.0 instead of 4.0 M frames/s). There are 2,048 chunks more than the ring has entries, and a fill ring that holds all of
//!   them: giving a chunk back cannot fail.
//! - **Frames of several buffers** are copied together into an area behind the chunks, flagged `joined` and counted; while there is no room
//!   they wait in the ring. Chunks are 2,048 bytes where the MTU fits, else 4,096.
//! - **Both directions.** The kernel gives a queue to one socket, so a lane opened to receive keeps the sending half of its socket for whoever
//!   opens the same queue to send. The halves share no state, each has its own chunks. The receiving side is to be opened first.
//! - **Sending** copies unless `?copy=zero` asks otherwise, because a driver without copying may take the receiving half of the queue from the
//!   host too. Frames are copied into chunks, one `sendto` for up to 2,048 (`XDP_MAX_TX_SKB_BUDGET`); `sent` is what completed. A frame that
//!   the driver drops comes back like one sent, and `EBUSY` says so: it is taken off again and counted as `driver_dropped`. `poll(2)` on a
//!   socket sends what still waits in its ring and keeps that error to itself: a drop in that moment counts as sent.
//! - **Not passive**: on an interface with an address, a default route or a master it wants `--take`.
//!
//! Partial checksums of local senders cannot be told in XDP: `ethtool -K ... tx off` on the sending side of a veth.
//!
//! # faulty
//!
//! Wraps any port. A plan decides what becomes of each frame; it is a pure function: whether a fault hits frame N is output N of SplitMix64
//! from a key of (seed, queue, kind of fault). So faults do not shift one another, a run repeats, and the tests compare sequence, bytes and every
//! count with a model that shares no code. Numbers count within a queue: with several lanes the kernel decides which frame has which
//! number, hence `lanes=1` where that matters (`wire` sets it).
//!
//! Frames pass: checksum left to hardware filled in (a wire carries none that is unfinished, and damage must show in it), plan, damage,
//! holding back, rate, delay. What is held up has its time moved by as much, as if it had arrived later, so merges see what a bad wire would have
//! shown; the horizon stays behind everything that is in the line. Other times are untouched. Delay and rate keep the order (jitter
//! too): order is changed by `reorder` alone, by a distance in frames, so that it can be counted. A frame that nothing passes goes on after
//! `hold`. After a step of the clock what waits is due as much earlier. Filter and snap length are applied behind the faults.
//!
//! What was asked for is *refused*, not lost: `--lossless` still finds real loss. Copies count as received, and by name; what was changed or
//! reordered is a note. Waiting frames take at most 64 MiB a queue; then the wrapped port waits, and its own ring counts what is lost. A rate
//! has a queue of its own (`queue=`), because the megabytes of a receive ring in front of a slow wire would be seconds of delay. In a wire, faults
//! stand behind the receiver, where frames have time stamps: a delay counts from the arrival, so the block timeout is part of it.
//!
//! It takes the options it knows and hands all others on; `port.NAME=` goes to the wrapped port whatever it is called. Without faults it still
//! copies: one path, and the conformance suite runs over it in front of every backend. It costs 60 to 110 ns a frame.
//!
//! # xdp-live
//!
//! The kernel runs an XDP program on frames that it takes from a pool of its own (`BPF_PROG_TEST_RUN` with live frames) and redirects them to
//! the interface: no system call, no packet of the kernel's, no copy for a frame. It sends in two forms. *Frames* of any kind are copied to
//! memory that the program shares, up to 4,096 for one call, in which the program copies each into a live frame. *Streams* are made by the
//! program itself.
//!
//! The program is made at run time from the plan of the set of streams (`linerate_generate::plan`), for this set alone: frame bytes are constants in instructions, fields have no loop
//! over them, a checksum is the constant sum plus what changes (RFC 1624; a number of any width counts as it is, or 256 times, since 65536 is 1
//! in one's complement) and is folded as often as its greatest value needs. A committed object would need a compiler to make, type
//! information to load, and a loop that reads descriptions of fields for every frame. The model says plainly what each frame is
//! (`Stream::frame`); programs for any streams are run on frames in memory and compared with it.
//!
//! An index in turn is a word that goes up and begins again, so nothing is divided; where powers of two are counted it is bits of the frame's number. Random indices are drawn (SplitMix64) at the beginning of a
//! frame and lie on the stack; likelihoods and lists are tables in memory. All arithmetic has 64 bits. A field of up to 64 bits needs no more
//! whatever its range; a longer one is two numbers as long as nothing carries from the lower 64 bits into the upper ones, which the plan
//! decides from its range.
//!
//! Streams that may be told something have a program whose gaps and numbers are words too (two loads more for a frame; at top speed it asks for the time
//! no more than another). A word says until when frames may be made: there the program stands, its call is ended, and before the next one words are written
//! for what follows, some 100 us later. So what is told is done behind the same frame as by every other sender, and nothing is half told. Streams that take
//! turns have one due time, so they are told something all together.
//!
//! What a program does not do it says (`Unable`), and whether the port sends such frames when this process makes them: Poisson gaps, CRC32c over
//! what changes, more than four changing checksums in a frame, interleaved streams of different rates or with bursts, more than 64 streams, a
//! longer field that carries, or that touches nine bytes and does not end with one, a field that is scattered over more than 2^64 values
//! that are no power of two, a program with a jump over more than 32,767
//! instructions (some 500 variants of short frames). No frame longer than the kernel's is sent by either form.
//!
//! What had to be found out, and is held by tests:
//! - A page comes back with whatever its receiver wrote in it, so every byte is written for every frame. Frames with up to 256 constant bytes
//!   are made of constants, others copied by one call.
//! - A call costs 25 ms (the kernel makes the program known to all processors, and forgets it again), unless the program is attached
//!   somewhere: then 40 us. So each program is attached to one end of a veth pair in a network namespace without a name. Nothing but
//!   descriptors holds it: it goes with the process, however that ends.
//! - The number of runs says nothing about frames sent. What the driver took and dropped is counted by a second program where the kernel
//!   hands frames to drivers (tracepoints `xdp_devmap_xmit`, `xdp_redirect_err`), for this thread alone. It costs 50 ns for 16 frames.
//! - A veth drops XDP frames unless its other end makes packets of them or has a program. The first call is of 16 frames; refusals end the
//!   run and name the mending command.
//! - With a rate the program looks at the clock in one long call and drops the live frame until the next is due (60 ns a look, sent after 16
//!   looks). Gaps have a fraction of 2^-32 ns. Calls are no longer than what is left of the streams; where their end shows only when they get
//!   there (a long sequence), the watcher ends the call.
//! - A call ends only when it has run as often as asked, or at a signal. So it has a thread of its own, another one watches, and stopping
//!   sets a word the program reads and sends the thread SIGURG, which is ignored by default and gets a handler that does nothing.
//! - Time in frames is the time since boot plus what UTC is beyond it, measured again every 2 ms: it changes only when somebody sets the clock.
//! - The longest live frame depends on the kernel (3,408 bytes on 6.18), so it is asked for when the port opens.
//!
//! One queue: the kernel sends from the processor that the thread runs on, and the words of a program belong to one processor at a time. Several
//! queues will be several programs, each with every n-th frame.
//!
//! # shm, to send to
//!
//! The writer of a ring and its acceptor are in the sender's thread: readers come in when it flushes, which it does every millisecond. Who
//! reads a stream of `generate` needs no capture between.
#![deny(unsafe_code)]

pub mod carrier;
pub mod clocks;
pub mod counting;
pub mod dpdk;
pub mod ebpf;
pub mod faulty;
pub mod interface;
pub mod inventory;
pub mod mem;
pub mod memif;
mod native;
pub mod netns;
mod nic;
pub mod null;
pub mod packet;
pub mod pcap;
pub mod redirecting;
mod rtnl;
pub mod shm;
pub(crate) mod sys;
pub mod transfer;
pub mod tun;
mod virtio;
pub mod xdp;
pub mod xdp_live;

/// Gives the program at PROGRAM the rights to open ports, and its group the right to run it. The mode is part of it: whoever runs such a
/// program reads what passes the interfaces of the host. Without CAP_PERFMON the verifier of some kernels (6.12) refuses the program
/// of `xdp:` that writes into a ring, since pointers are checked for speculative execution too.
pub const GRANT: &str = "sudo groupadd -f -r linerate && sudo chgrp linerate PROGRAM && sudo chmod 0750 PROGRAM && sudo setcap \
     cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_ipc_lock+p PROGRAM";

/// The remedy for a right that is missing, behind what is missing.
pub(crate) fn remedy(needed: &str) -> String {
    format!(
        "{needed}: run as root or with sudo, or be in the group linerate and run a program that was given the rights: {GRANT}"
    )
}

use linerate_port::{Backend, PortError, Registry, RxOptions, RxPort, Spec, TxOptions, TxPort};

/// Every backend that the program has.
pub const BACKENDS: &[Backend] = &[
    packet::BACKEND,
    xdp::BACKEND,
    xdp_live::BACKEND,
    pcap::BACKEND,
    mem::BACKEND,
    null::BACKEND,
    shm::BACKEND,
    memif::BACKEND,
    tun::BACKEND,
    dpdk::BACKEND,
    faulty::BACKEND,
];

/// They as a registry; with others beside them by [`Registry::with`].
pub static REGISTRY: Registry = Registry::of(BACKENDS);

/// Opens a port of the program's own backends to receive from.
pub fn open_rx(spec: &Spec, options: &RxOptions) -> Result<RxPort, PortError> {
    REGISTRY.open_rx(spec, options)
}

/// Opens a port of the program's own backends to send to.
pub fn open_tx(spec: &Spec, options: &TxOptions) -> Result<TxPort, PortError> {
    REGISTRY.open_tx(spec, options)
}
