//! Sockets of AF_XDP, bound to a queue.

use super::config::{CopyMode, XdpConfig, needs_several_chunks};
use crate::sys::bpf::Mode;
use crate::sys::xsk_memory::Memory;
use crate::sys::xsk_socket::{Binding, RingSizes, Rings, XskSocket};
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

/// A bound socket, and the reason why it is not bound with zero copy.
pub(super) struct BoundSocket {
    pub socket: Arc<XskSocket>,
    pub rings: Rings,
    pub binding: Binding,
    pub refused: Option<io::Error>,
}

/// Creates a socket and binds it in the best form that the driver supports, with zero copy if possible.
pub(super) fn bind(wanted: &XdpConfig, found: &InterfaceInfo, queue: u32, layout: Chunks) -> io::Result<BoundSocket> {
    let joined = if layout.receive > 0 { JOINED_BYTES } else { 0 };
    let memory = Arc::new(Memory::new(layout.chunk, layout.receive + layout.sizes.send, joined)?);
    let (socket, rings) = XskSocket::new(memory, layout.sizes)?;
    let several = needs_several_chunks(found);
    let mut attempts = Vec::new();
    if wanted.copying != CopyMode::Copy && wanted.mode != Some(Mode::Generic) {
        attempts.push(Binding { zero_copy: true, multi_buffer: several });
    }
    if wanted.copying != CopyMode::Zero {
        attempts.push(Binding { zero_copy: false, multi_buffer: true });
        attempts.push(Binding { zero_copy: false, multi_buffer: false });
    }
    let mut refused = None;
    for binding in attempts {
        match bind_patiently(&socket, found.index, queue, binding) {
            Ok(()) => {
                socket.set_send_budget(layout.sizes.send);
                return Ok(BoundSocket { socket: Arc::new(socket), rings, binding, refused });
            }
            // Drivers use many error numbers for unsupported forms.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EPERM | libc::ENODEV)) => {
                return Err(error);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP)))
}

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
