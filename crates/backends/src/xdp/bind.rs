//! Sockets of AF_XDP, bound to a queue.

use super::config::{CopyMode, LARGEST_MTU, XdpConfig, needs_several_chunks};
use crate::sys::bpf::Mode;
use crate::sys::xsk_frames::XskFrames;
use crate::sys::xsk_memory::Memory;
use crate::sys::xsk_sender::XskSender;
use crate::sys::xsk_socket::{Binding, RingSizes, Rings, XskSocket};
use crate::xdp_features::driver;
use linerate_burst::text::quoted;
use linerate_port::InterfaceInfo;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buffer for frames joined from several chunks.
const JOINED_BYTES: usize = 8 << 20;
/// The kernel frees a queue a moment after its last owner has closed it.
const BUSY_LIMIT: Duration = Duration::from_secs(2);
const BUSY_NAP: Duration = Duration::from_millis(20);

/// The memory of a socket: chunks to receive into, then chunks to send from.
#[derive(Clone, Copy)]
pub(super) struct Chunks {
    pub chunk: u32,
    pub receive: u32,
    pub sizes: RingSizes,
}

/// A bound socket with its receiving and sending sides, and the reason why it is not bound with zero copy.
pub(super) struct BoundSocket {
    pub socket: Arc<XskSocket>,
    pub frames: XskFrames,
    pub sender: XskSender,
    pub binding: Binding,
    pub refused: Option<io::Error>,
}

/// Creates a socket and binds it in the best form that the driver supports, with zero copy if possible.
pub(super) fn bind(wanted: &XdpConfig, found: &InterfaceInfo, queue: u32, layout: Chunks) -> io::Result<BoundSocket> {
    let joined = if layout.receive > 0 { JOINED_BYTES } else { 0 };
    let memory = Arc::new(Memory::new(layout.chunk, layout.receive + layout.sizes.send, joined)?);
    let (socket, Rings { receive, fill, send, completion }) = XskSocket::new(memory.clone(), layout.sizes)?;
    // Chunks for the card before it starts: igb wakes the wrong interrupt vector when they come later, and receives
    // nothing (igb_xsk_wakeup, Linux 6.18).
    let frames = XskFrames::new(memory.clone(), receive, fill, layout.receive);
    let several = needs_several_chunks(found);
    let mut attempts = Vec::new();
    if wanted.copying != CopyMode::Copy && wanted.mode != Some(Mode::Generic) {
        attempts.push(Binding { zero_copy: true, multi_buffer: several });
    }
    if wanted.copying != CopyMode::Zero {
        attempts.push(Binding { zero_copy: false, multi_buffer: true });
        // A receiver would lose all long frames.
        if !several || layout.receive == 0 {
            attempts.push(Binding { zero_copy: false, multi_buffer: false });
        }
    }
    let mut refused = None;
    for binding in attempts {
        match bind_patiently(&socket, found.index, queue, binding) {
            Ok(()) => {
                socket.set_send_budget(layout.sizes.send);
                let Chunks { receive, sizes: RingSizes { send: chunks, .. }, .. } = layout;
                let sender = XskSender::new(memory, send, completion, receive, chunks, binding.multi_buffer);
                return Ok(BoundSocket { socket: Arc::new(socket), frames, sender, binding, refused });
            }
            // Drivers use many error numbers for unsupported forms.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EPERM | libc::ENODEV)) => {
                return Err(error);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let error = refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    let reason = if wanted.copying == CopyMode::Zero {
        format!("{} does not support zero copy here ({error}); omit copy=zero", driver(found))
    } else if several && layout.receive > 0 {
        format!(
            "packets of MTU {} exceed a buffer of AF_XDP, and this kernel does not split them ({error}; Linux 6.6 does); \
             use packet:{}, or run ip link set {} mtu {LARGEST_MTU}",
            found.mtu,
            found.name,
            quoted(&found.name)
        )
    } else {
        return Err(error);
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// Binds a socket; waits while another socket that was closed still holds the queue.
fn bind_patiently(socket: &XskSocket, interface: u32, queue: u32, binding: Binding) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match socket.bind(interface, queue, binding) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < BUSY_LIMIT => {
                std::thread::sleep(BUSY_NAP);
            }
            result => return result,
        }
    }
}

pub(super) fn describe((binding, refused): &(Binding, Option<io::Error>), ring: u32) -> String {
    let copying = match (binding.zero_copy, refused) {
        (true, _) => "zero copy: the card writes into our memory".to_owned(),
        (false, Some(error)) => format!("the kernel copies frames (zero copy: {error})"),
        (false, None) => "the kernel copies frames".to_owned(),
    };
    let several = if binding.multi_buffer { "" } else { "; frames longer than a buffer are dropped" };
    format!("AF_XDP: {copying}{several}; rings of {ring} frames")
}
