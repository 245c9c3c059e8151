//! The program on an interface: one of ours for all queues that this process has opened there.

use super::btf;
use super::program::{Form, lacks_metadata, program, redirected, set_open, words};
use super::wanted::Wanted;
use crate::rtnl::{self, Rtnetlink};
use crate::sys::bpf::{Demands, Link, Map, MapKind, Mode, Program, Words};
use crate::sys::xsk_sender::XskSender;
use crate::sys::xsk_socket::XskSocket;
use linerate_port::Found;
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
    /// Where it runs.
    pub mode: Mode,
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

    /// The attachment of an interface, made if this process has none. One that runs elsewhere than is wanted is
    /// an error.
    pub fn of(found: &Found, wanted: &Wanted) -> io::Result<Arc<Attachment>> {
        let key = (namespace()?, found.index);
        let mut table = table();
        if let Some(attachment) = table.get(&key).and_then(Weak::upgrade) {
            return attachment.suits(found, wanted).map(|()| attachment);
        }
        let attachment = Arc::new(attach(found, wanted)?);
        table.retain(|_, attachment| attachment.strong_count() > 0);
        table.insert(key, Arc::downgrade(&attachment));
        Ok(attachment)
    }

    fn suits(&self, found: &Found, wanted: &Wanted) -> io::Result<()> {
        if wanted.mode.is_none_or(|mode| mode == self.mode) {
            return Ok(());
        }
        let reason = format!(
            "the program of another port on {} already runs {}: ask for the same mode, or for none",
            found.name,
            name(self.mode)
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
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

    /// Whether frames of a queue come without what the program would write in front of them.
    pub fn lacks_metadata(&self, queue: u32) -> bool {
        lacks_metadata(&self.words, queue)
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

/// Loads and attaches the program in the best form that the driver takes.
fn attach(found: &Found, wanted: &Wanted) -> io::Result<Attachment> {
    let queues = found.queues.0.max(found.queues.1).max(1);
    let sockets = Map::new(MapKind::Xskmap, 4, queues)?;
    let words = Words::new(words(queues))?;
    let mut refused = Vec::new();
    for form in forms().into_iter().filter(|form| wanted.mode.is_none_or(|only| only == form.mode)) {
        let insns = program(form, queues, words.raw(), sockets.raw()).map_err(io::Error::other)?;
        let demands = Demands { frags: form.frags, bound_to: form.vlan_tag.map(|_| found.index) };
        let result = Program::load(&insns, demands)
            .and_then(|program| Link::attach(&program, found.index, form.mode).map(|link| (link, program)));
        match result {
            Ok((link, program)) => {
                let notes = vec![describe(form, &refused)];
                let idle_senders = Mutex::default();
                let mode = form.mode;
                return Ok(Attachment { _link: link, _program: program, sockets, words, mode, notes, idle_senders });
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST) => return Err(occupied(found, &error)),
                Some(libc::EPERM | libc::EACCES | libc::ENODEV) => return Err(error),
                _ => refused.push((form, error.to_string())),
            },
        }
    }
    let reasons: Vec<String> = refused.iter().map(|(form, error)| format!("{}: {error}", name(form.mode))).collect();
    let reason = format!("the driver {} takes no XDP program ({})", found.driver, reasons.join("; "));
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// The forms of the program, best first.
fn forms() -> Vec<Form> {
    let vlan_tag = btf::function("bpf_xdp_metadata_rx_vlan_tag");
    let native = Form { mode: Mode::Native, vlan_tag: None, frags: true };
    let told = vlan_tag.map(|_| Form { vlan_tag, ..native });
    let plain = [native, Form { frags: false, ..native }];
    let generic = plain.map(|form| Form { mode: Mode::Generic, ..form });
    told.into_iter().chain(plain).chain(generic).collect()
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Native => "in the driver",
        Mode::Generic => "in generic mode",
    }
}

/// Which form was taken, and why no better one, for the user.
fn describe(form: Form, refused: &[(Form, String)]) -> String {
    let what = match form {
        Form { mode: Mode::Native, vlan_tag: Some(_), .. } => {
            "XDP runs in the driver, which tells VLAN tags it took out"
        }
        Form { mode: Mode::Native, .. } => "XDP runs in the driver",
        Form { mode: Mode::Generic, .. } => "XDP runs in generic mode, behind the driver: slower",
    };
    let better = refused.iter().rfind(|(other, _)| other.mode != form.mode);
    let why = better.map_or(String::new(), |(_, error)| format!(" (in the driver: {error})"));
    format!("{what}{why}{}", if form.frags { "" } else { "; frames of one buffer only" })
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
