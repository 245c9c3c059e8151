//! The backends: one file each, with a row in [`BACKENDS`]; and their common parts.
//!
//! - [`packet`], [`xdp`], [`xdp_live`], [`pcap`], [`mem`], [`null`], [`shm`], [`memif`], [`tun`], [`dpdk`], [`faulty`]: the backends; system calls stay in `sys/`;
//! - [`inventory`]: interfaces and their capabilities; [`interface`]: all properties of one;
//! - [`clocks`]: the clocks of the host and of cards;
//! - `program_clock`: the clocks that programs in the kernel read;
//! - [`netns`]: opening ports inside a network namespace;
//! - `drivers`: facts on drivers that the kernel does not report;
//! - [`ebpf`]: instructions for programs that run in the kernel;
//! - [`transfer`]: data sent through the kernel's TCP and UDP;
//! - [`xdp_counter`]: a receiver that only counts; [`xdp_redirect`]: a wire implemented by a program in the kernel.
//!
//! # packet
//!
//! TPACKET_V3 rings whose blocks are used as bursts in place: no copy on the way to the merge. One socket per CPU in a
//! fanout group, because each CPU stamps and stores in order while two CPUs feeding one ring do not. The number of
//! lanes is the number of processors, regardless of this process's affinity: softirqs run on all of them. A VLAN tag
//! stripped by the kernel is restored (the ring reserves room before each frame). Frames longer than the
//! interface's MTU, or marked by the kernel, are flagged as super-frames: they are a result of GRO. All sockets start
//! with a filter that drops everything until the last one has joined the group, so that no frame is seen twice.
//! `detach` attaches such a filter too, because closing would discard the ring.
//!
//! Blocks are small (128 KiB, above the longest classic super-frame), because the kernel hands one over at every
//! timeout however little it contains: a ring of N blocks tolerates a reader that stalls for N times 1 ms. With 1 MiB
//! blocks and 16 lanes that was 8 ms.
//!
//! The block timeout is 1 ms, so a single frame is visible within about that time. The lane's horizon is `now - lag`, 2
//! ms by default and at least the timeout plus 1 ms, because the stamp is taken before the frame is stored. Before
//! Linux 6.18 the kernel rounds the timeout up to timer ticks and adds one (8 ms at 250 Hz); the lag follows.
//!
//! Frames to be forwarded or answered (`RxOptions::prompt`) do not wait for that: TPACKET_V2 has a slot per frame, which
//! is walked as a block of one frame. Its slots hold a frame of MTU length, so super-frames are truncated. `block=` and
//! `timeout=` select blocks for these too.
//!
//! With `stamp=hardware` the card stamps frames (SIOCSHWTSTAMP, PACKET_TIMESTAMP), and its times are converted to host
//! time ([`clocks`]), which the horizon and all other ports use. The status of each frame names the source of its
//! stamp. The walk through a block is compiled twice, so that others pay nothing. Not tested with a card that has a
//! clock: tests cover the arithmetic, the status, and refused interfaces.
//!
//! # xdp
//!
//! AF_XDP, over `libc` and `bpf(2)`: no libbpf, no compiler, no object file. The program that an interface runs for
//! each frame is generated at run time by an assembler of 200 lines (`ebpf`): values for which a committed object would
//! need relocations, BTF and a reproducible compiler are constants in instructions. It loads in milliseconds.
//!
//! - **The program writes frames itself** (`mode=ring`, the usual form): with their descs, packed, into an array that
//!   this process has mapped (`sys/area`): one segment per queue in one memory, which is the port's region. No socket,
//!   no kernel ring, no chunk to return; a burst is shown in place. A VLAN tag stripped by the driver is restored,
//!   frames of several buffers arrive whole. The process publishes its read position in a separate cache line; it polls
//!   every 20 us at most, because each poll takes the program's line away from it, which costs more than the frame. A
//!   reader without deadline sleeps 100 us between polls; one that waits sets a flag, and is woken once (`sys/bell`).
//!   Segments hold 32,768 frames and 16 MiB; with `ring=N` N frames of a chunk's length. While the reader keeps up, the
//!   program fills a ring of 2 MiB before them, which stays in the second-level cache: 2.8 -> 4.2 M frames/s of 1518
//!   bytes. (One ring, to whose start it returns early, loses frames if the reader stalls after that.) It truncates
//!   frames to the snap length.
//! - **The filter is part of that program** (`xdp/filtering`): libpcap's, translated, if it has the same result in the
//!   kernel. Filtered frames are counted there (`kernel_filtered`); frames with a stripped tag are filtered in this
//!   process, after it is restored. If the verifier rejects the filter, this process applies it.
//! - **AF_XDP** (`mode=af_xdp`, `xdp_features`, `generic`) if a driver supports zero copy (its features report it), if
//!   `copy=` or `busy-poll=` require it, and if no program runs in the driver, since in generic mode several processors
//!   may process frames of one queue.
//! - **Sending in place**: a forwarder names frames of an `xdp:` port by their positions in its area, and a program of
//!   [`xdp_live`] copies them into live frames (`xdp/direct`). The interface must accept redirected frames, which for a
//!   veth depends on its peer; its features are queried twice a second (generic netlink, `netdev`), and AF_XDP sends
//!   the rest, in order.
//! - **All queues by default**, one lane each; `@0-3` selects some, the others stay with the host. AF_XDP has a socket
//!   and a memory for each.
//! - **Attached by a link.** The kernel removes the program with the process, however that ends (tested with SIGKILL).
//!   Another program is never replaced: the error names it. All ports of this process on an interface share one
//!   program.
//! - **Best form first, and reported**: in the driver with stripped VLAN tags (`bpf_xdp_metadata_rx_vlan_tag`, found by
//!   name in the kernel's BTF, bound to the device), in the driver, in generic mode; zero copy, copied with frames of
//!   several buffers, copied. `?mode=` and `?copy=` choose.
//! - **Time** is taken in the program (`bpf_ktime_get_tai_ns`) and put into the 8 bytes before the frame; the
//!   offset of TAI is read at start and every second (before Linux 6.1: the time since boot, and its offset). A word of the queue marks drivers without room for it; their
//!   frames get the read time. A queue is served by one processor at a time and stays ordered; a stamp becomes visible
//!   at the end of a poll of 64 frames, so the lag is 1 ms.
//! - **A word of the queue decides** whether its frames are taken. `detach` clears it in shared memory: no system call,
//!   no privilege, and later frames go to the host. The same cache line counts the frames handed to the socket, after
//!   the kernel has accepted them. That count is `received`, and makes the packet accounting an independent check of
//!   the kernel's drop counters.
//! - **Rings**: 16,384 frames per queue, fewer for a port with many, 65,536 with `--lossless`: a ring larger than the
//!   caches tolerates longer stalls and is slower (3.0 instead of 4.0 M frames/s). 2,048 chunks exist in addition to
//!   the ring's entries, and the fill ring holds all of them: returning a chunk cannot fail.
//! - **Frames of several buffers** are copied together into an area after the chunks, flagged `joined` and counted;
//!   without room they wait in the ring. Chunks are 2,048 bytes if the MTU fits and the driver supports it, else 4,096
//!   (`drivers`).
//! - **Both directions.** The kernel gives a queue to one socket, so a lane opened to receive keeps the sending half of
//!   its socket for a port that opens the same queue to send. The halves share no state, each has its own chunks. Open
//!   the receiving side first.
//! - **Sending** copies unless `?copy=zero` is set, because with zero copy a driver may take the receiving half of the
//!   queue from the host too. Frames are copied into chunks, one `sendto` for up to 2,048 (`XDP_MAX_TX_SKB_BUDGET`);
//!   `sent` counts completed frames. A frame that the driver drops completes like one sent, with the error `EBUSY`: it
//!   is subtracted again and counted as `driver_dropped`. `poll(2)` on a socket sends frames waiting in its ring and
//!   hides that error: a drop in that moment counts as sent.
//! - **Not passive**: on an interface with an address, a default route or a master it requires `--take`.
//!
//! XDP cannot detect partial checksums of local senders: set `ethtool -K ... tx off` on the sending side of a veth.
//!
//! # faulty
//!
//! Wraps any port. A plan decides the fate of each frame; it is a pure function: whether a fault hits frame N is output
//! N of SplitMix64 from a key of (seed, queue, kind of fault). So faults do not shift one another, a run repeats, and
//! the tests compare sequence, bytes and every count with a model that shares no code. Numbers count within a queue:
//! with several lanes the kernel decides which frame has which number, hence `lanes=1` where that matters (`wire` sets
//! it).
//!
//! Frames pass: completion of a checksum left to hardware (a wire carries only complete ones, and damage must show in
//! it), plan, damage, reordering, rate, delay. Delayed frames have their time moved accordingly, as if they had arrived
//! later, so merges see what a bad wire would have shown; the horizon stays before all frames in the line. Other times
//! are unchanged. Delay and rate keep the order (jitter too): only `reorder` changes it, by a distance in frames, so
//! that it can be counted. A frame that no other frame passes is released after `hold`. After a step of the clock
//! waiting frames are due as much earlier. Filter and snap length are applied after the faults.
//! Requested faults are *refused*, not lost: `--lossless` still finds real loss. Copies count as received, and by name;
//! changed or reordered frames are a note. Waiting frames take at most 64 MiB per queue; above that the wrapped port
//! waits, and its own ring counts losses. A rate has its own queue (`queue=`), because the megabytes of a receive ring
//! before a slow wire would be seconds of delay. In a wire, faults come after the receiver, where frames have
//! timestamps: a delay counts from the arrival, so the block timeout is part of it.
//!
//! It takes the options it knows and passes all others on; `port.NAME=` always goes to the wrapped port. Without faults
//! it still copies: one path, and the conformance suite runs over it before every backend. It costs 60 to 110 ns
//! per frame.
//!
//! # xdp-live
//!
//! The kernel runs an XDP program on frames from its own pool (`BPF_PROG_TEST_RUN` with live frames) and redirects them
//! to the interface: no system call, no skb, no copy per frame. It sends in two forms. *Frames* of any kind are copied
//! to memory that the program shares, up to 4,096 per call, and the program copies each into a live frame. *Streams*
//! are generated by the program itself.
//!
//! The program is generated at run time from the plan of the set of streams (`linerate_generate::plan`), for this set
//! only: frame bytes are constants in instructions, fields have no loop over them, a checksum is the constant sum plus
//! the changes (RFC 1624; a number of any width counts as it is, or 256 times, since 65536 is 1 in one's complement)
//! and is folded as often as its greatest value needs. A committed object would need a compiler to build, type
//! information to load, and a loop that reads descriptions of fields for every frame. The model defines each frame
//! (`Stream::frame`); programs for arbitrary streams are run on frames in memory and compared with it.
//!
//! A sequential index is a word that is incremented and wraps, which avoids divisions; for powers of two it is bits of
//! the frame's number. Random indices are drawn (SplitMix64) at the start of a frame and kept on the stack; weights and
//! lists are tables in memory. All arithmetic has 64 bits. A field of up to 64 bits needs no more whatever its range; a
//! longer one is two numbers as long as nothing carries from the lower 64 bits into the upper ones, which the plan
//! decides from its range.
//!
//! Streams that accept commands have a program whose gaps and numbers are words too (two more loads per frame; at line
//! rate it reads the clock no more often than another). A word limits the time until which frames may be made: there
//! the program stops, its call is ended, and before the next one words are written for the rest, some 100 us later. So
//! a command takes effect after the same frame as with every other sender, atomically. Streams that take turns have one
//! due time, so they can only be controlled together.
//!
//! A program reports unsupported features (`Unable`), and whether the port sends such frames when this process makes
//! them: Poisson gaps, CRC32c over changing bytes, more than four changing checksums in a frame, interleaved streams of
//! different rates or with bursts, more than 64 streams, a longer field that carries, or that touches nine bytes and
//! does not end with one, a field that is scattered over more than 2^64 values that are not a power of two, a program
//! with a jump over more than 32,767 instructions (some 500 variants of short frames). Frames longer than the kernel's
//! limit are sent by neither form.
//!
//! Findings, verified by tests:
//! - A page is recycled with whatever its receiver wrote in it, so every byte is written for every frame. Frames with
//!   up to 256 constant bytes are made of constants, others copied by one call.
//! - A call costs 25 ms (the kernel registers the program on all processors, and removes it again), unless the program
//!   is attached somewhere: then 40 us. So each program is attached to one end of a veth pair in an unnamed network
//!   namespace. Only descriptors hold it: it is removed with the process, however that ends.
//! - The number of runs is not the number of frames sent. Frames that the driver took and dropped are counted by a
//!   second program where the kernel hands frames to drivers (tracepoints `xdp_devmap_xmit`, `xdp_redirect_err`), for
//!   this thread only. It costs 50 ns for 16 frames.
//! - A veth drops XDP frames unless its peer makes packets of them or has a program. The first call has 16 frames;
//!   refusals end the run and name the command that fixes it.
//! - With a rate the program reads the clock in one long call and drops the live frame until the next is due (60 ns a
//!   reading, sent after 16 readings). Gaps have a fraction of 2^-32 ns. Calls never exceed the rest of the
//!   streams; if their end is only known when they reach it (a long sequence), the watcher ends the call.
//! - A call ends only when it has run as often as requested, or at a signal. So it has its own thread, another one
//!   watches, and stopping sets a word the program reads and sends the thread SIGURG, which is ignored by default and
//!   gets an empty handler.
//! - Time in frames is the time since boot plus its offset to UTC, measured again every 2 ms: it changes only when the
//!   clock is set.
//! - The longest live frame depends on the kernel (3,408 bytes on 6.18), so it is determined when the port opens.
//!
//! One queue: the kernel sends from the processor that the thread runs on, and the words of a program belong to one
//! processor at a time. Several queues will be several programs, each with every n-th frame.
//!
//! # shm, to send to
//!
//! The writer of a ring and its acceptor are in the sender's thread: readers are accepted when it flushes, which it
//! does every millisecond. Reading a stream of `generate` needs no capture in between.
#![deny(unsafe_code)]

pub mod carrier;
pub mod clocks;
pub mod dpdk;
mod drivers;
pub mod ebpf;
pub mod faulty;
pub mod interface;
pub mod inventory;
pub mod mem;
pub mod memif;
pub mod netns;
mod nic;
pub mod null;
pub mod packet;
pub mod pcap;
mod program_clock;
mod rtnl;
pub mod shm;
pub(crate) mod sys;
pub mod transfer;
pub mod tun;
mod virtio;
pub mod xdp;
pub mod xdp_counter;
mod xdp_features;
pub mod xdp_live;
mod xdp_pass;
pub mod xdp_redirect;

/// Command that grants the program at PROGRAM the rights to open ports, and its group the right to run it. The mode is
/// part of it: users of such a program can read all packets of the host's interfaces. Without CAP_PERFMON the verifier
/// of some kernels (6.12) rejects the program of `xdp:` that writes into a ring, since pointers are checked for
/// speculative execution too.
pub const GRANT: &str = "sudo groupadd -f -r linerate && sudo chgrp linerate PROGRAM && sudo chmod 0750 PROGRAM && sudo setcap \
     cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_ipc_lock+p PROGRAM";

/// Returns the remedy for a missing right, appended to its name.
pub(crate) fn remedy(needed: &str) -> String {
    format!(
        "{needed}: run as root or with sudo, or grant the rights to the program and use it in the group linerate: {GRANT}"
    )
}

use linerate_port::{Backend, PortError, Registry, RxOptions, RxPort, Spec, TxOptions, TxPort};

/// All backends of the program.
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

/// Registry of these backends; add others by [`Registry::with`].
pub static REGISTRY: Registry = Registry::of(BACKENDS);

/// Opens a port of the program's own backends to receive from.
pub fn open_rx(spec: &Spec, options: &RxOptions) -> Result<RxPort, PortError> {
    REGISTRY.open_rx(spec, options)
}

/// Opens a port of the program's own backends to send to.
pub fn open_tx(spec: &Spec, options: &TxOptions) -> Result<TxPort, PortError> {
    REGISTRY.open_tx(spec, options)
}
