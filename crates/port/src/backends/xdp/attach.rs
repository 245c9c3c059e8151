//! The program on an interface: one of ours for all queues that this process has opened there.

use super::btf;
use super::program::{program, redirected, set_open, words};
use super::wanted::Wanted;
use crate::backends::sys::bpf::{Demands, Link, Map, MapKind, Mode, Program, Words};
use crate::backends::sys::xsk_sender::XskSender;
use crate::backends::sys::xsk_socket::XskSocket;
use crate::inventory::Found;
use crate::rtnl::{self, Rtnetlink};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The program of an interface, attached as long as this lives.
pub struct Attachment {
    /// First, so that no frame is taken any more when the rest goes.
    _link: Link,
    _program: Program,
    sockets: Map,
    words: Words,
    /// How it runs, for the user.
    pub notes: Vec<String>,
    /// Sending sides of sockets that were opened to receive: whoever sends through the same queue gets them,
    /// because the kernel gives a queue to one socket.
    pub idle_senders: Mutex<HashMap<u32, (Arc<XskSocket>, XskSender)>>,
}

/// Interfaces by the namespace they are in, and their number there.
type Table = HashMap<(u64, u32), Weak<Attachment>>;

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attachment {
    /// The attachment of an interface if this process has one; call it inside the interface's namespace.
    pub fn existing(found: &Found) -> io::Result<Option<Arc<Attachment>>> {
        Ok(table().get(&(namespace()?, found.index)).and_then(Weak::upgrade))
    }

    /// The attachment of an interface, made if this process has none.
    pub fn of(found: &Found, wanted: &Wanted) -> io::Result<Arc<Attachment>> {
        let key = (namespace()?, found.index);
        let mut table = table();
        if let Some(attachment) = table.get(&key).and_then(Weak::upgrade) {
            return Ok(attachment);
        }
        let attachment = Arc::new(attach(found, wanted)?);
        table.retain(|_, attachment| attachment.strong_count() > 0);
        table.insert(key, Arc::downgrade(&attachment));
        Ok(attachment)
    }

    /// Sends a queue's frames to a socket, once they are to be taken.
    pub fn connect(&self, queue: u32, socket: &XskSocket) -> io::Result<()> {
        self.sockets.set(queue, &socket.fd().as_raw_fd().to_ne_bytes())
    }

    /// Lets a queue's frames be taken, or no longer: they go to the host.
    pub fn set_open(&self, queue: u32, open: bool) {
        set_open(&self.words, queue, open);
    }

    /// Frames handed to a queue's socket so far.
    pub fn redirected(&self, queue: u32) -> u64 {
        redirected(&self.words, queue)
    }

    /// The senders left over from receiving.
    pub fn idle_senders(&self) -> MutexGuard<'_, HashMap<u32, (Arc<XskSocket>, XskSender)>> {
        self.idle_senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which network namespace this thread is in.
fn namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.st_ino())
}

/// Loads and attaches: native mode with the driver's help for VLAN tags, native without, generic.
fn attach(found: &Found, wanted: &Wanted) -> io::Result<Attachment> {
    let queues = found.queues.0.max(found.queues.1).max(1);
    let sockets = Map::new(MapKind::Xskmap, 4, queues)?;
    let words = Words::new(words(queues))?;
    let load = |vlan_tag: Option<u32>, frags: bool| {
        let insns = program(queues, words.raw(), sockets.raw(), vlan_tag).map_err(io::Error::other)?;
        Program::load(&insns, Demands { frags, bound_to: vlan_tag.map(|_| found.index) })
    };
    let mut notes = Vec::new();
    let mut attached = None;
    let vlan_tag = btf::function("bpf_xdp_metadata_rx_vlan_tag");
    for (mode, vlan_tag, frags) in [
        (Mode::Native, vlan_tag, true),
        (Mode::Native, None, true),
        (Mode::Native, None, false),
        (Mode::Generic, None, true),
        (Mode::Generic, None, false),
    ] {
        if wanted.mode.is_some_and(|only| only != mode) {
            continue;
        }
        let result = load(vlan_tag, frags)
            .and_then(|program| Link::attach(&program, found.index, mode).map(|link| (link, program)));
        match result {
            Ok(parts) => {
                notes.push(describe(mode, vlan_tag.is_some()));
                attached = Some(parts);
                break;
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                return Err(occupied(found, &error));
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM)) => return Err(error),
            Err(error) if mode == Mode::Native && vlan_tag.is_none() => {
                let note = format!("native XDP {}: {error}", if frags { "with frames of several buffers" } else { "" });
                notes.push(note);
            }
            Err(error) if mode == Mode::Generic && !frags => return Err(error),
            Err(_) => {}
        }
    }
    let Some((link, program)) = attached else {
        let reason = format!("the driver {} has no native XDP: {}", found.driver, notes.join("; "));
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    };
    let idle_senders = Mutex::default();
    Ok(Attachment { _link: link, _program: program, sockets, words, notes, idle_senders })
}

fn describe(mode: Mode, vlan_tag: bool) -> String {
    match (mode, vlan_tag) {
        (Mode::Native, true) => "XDP runs in the driver, which tells VLAN tags it took out".into(),
        (Mode::Native, false) => "XDP runs in the driver".into(),
        (Mode::Generic, _) => "XDP runs in generic mode, behind the driver: slower".into(),
    }
}

/// Another program is there: whose?
fn occupied(found: &Found, error: &io::Error) -> io::Error {
    let id = Rtnetlink::new().ok().and_then(|socket| socket.link(found.index)).and_then(|attributes| {
        rtnl::number(rtnl::attribute(rtnl::attribute(&attributes, rtnl::XDP)?, rtnl::XDP_PROGRAM)?)
    });
    let whose = id.map_or(String::new(), |id| {
        let name = Program::name_of(id).unwrap_or_default();
        format!(": number {id}{}", if name.is_empty() { String::new() } else { format!(", called {name}") })
    });
    io::Error::new(
        error.kind(),
        format!(
            "another XDP program is attached to {}{whose}; it is left alone (end its owner, or: ip link set {} xdp off)",
            found.name, found.name
        ),
    )
}
