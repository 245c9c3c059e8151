//! The program on an interface: one for all queues that this process has opened there.

use super::btf;
use super::config::{RxPath, XdpConfig, chunk_bytes, longest_frame};
use super::program::{self, Form, Word, redirecting, tallying, words, writing};
use super::receive::{AreaIntake, Intake, Queue};
use super::tally::Tally;
use super::vlan;
use crate::ebpf::Insn;
use crate::program_clock::ProgramClock;
use crate::sys::area::{Area, Layout, Segment};
use crate::sys::bpf::{Demands, Link, Map, MapKind, Mode, Program, Words};
use crate::sys::bpf_ringbuf::Bell;
use crate::sys::xsk_sender::XskSender;
use crate::sys::xsk_socket::XskSocket;
use crate::xdp_features::{driver, occupied, reasons};
use linerate_burst::{LinkType, Sizes};
use linerate_filter::Filter;
use linerate_port::InterfaceInfo;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The program of an interface, attached while this lives.
pub(super) struct Attachment {
    /// First, so that no more frames are taken when the rest is dropped.
    _link: Link,
    _program: Program,
    feeds: FrameDestination,
    words: Words,
    /// The filter that it applies; empty if it takes all frames.
    pub filter: String,
    form: Form,
    /// Its mode, for the user.
    pub notes: Vec<String>,
    /// Sending sides of sockets that were opened to receive: a sender on the same queue takes them over, because the
    /// kernel gives a queue to one socket.
    pub idle_senders: Mutex<HashMap<u32, (Arc<XskSocket>, XskSender)>>,
}

/// Destination of frames.
enum FrameDestination {
    /// The socket of each queue.
    Sockets(Map),
    /// The segment of each queue; the bell wakes its reader.
    Area(Arc<Area>, Arc<Bell>),
    /// None: frames are counted.
    Nowhere(Arc<Bell>),
}

/// Attachments by namespace and interface index.
type Table = HashMap<(u64, u32), Weak<Attachment>>;

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attachment {
    /// Returns the attachment of an interface if this process has one; call it inside the interface's namespace.
    pub(super) fn existing(found: &InterfaceInfo) -> io::Result<Option<Arc<Attachment>>> {
        Ok(table().get(&(namespace()?, found.index)).and_then(Weak::upgrade))
    }

    /// Returns the attachment of an interface, and creates it if necessary. An existing one with other options is an
    /// error.
    pub(super) fn of(found: &InterfaceInfo, wanted: &XdpConfig, filter: &str) -> io::Result<Arc<Attachment>> {
        let key = (namespace()?, found.index);
        let mut table = table();
        if let Some(attachment) = table.get(&key).and_then(Weak::upgrade) {
            return attachment.suits(found, wanted, filter).map(|()| attachment);
        }
        let attachment = Arc::new(attach(found, wanted, filter)?);
        table.retain(|_, attachment| attachment.strong_count() > 0);
        table.insert(key, Arc::downgrade(&attachment));
        Ok(attachment)
    }

    fn new(
        (link, program, words): (Link, Program, Words),
        feeds: FrameDestination,
        form: Form,
        (filter, notes): (String, Vec<String>),
    ) -> Attachment {
        let idle_senders = Mutex::default();
        Attachment { _link: link, _program: program, feeds, words, filter, form, notes, idle_senders }
    }

    fn suits(&self, found: &InterfaceInfo, wanted: &XdpConfig, filter: &str) -> io::Result<()> {
        if !self.filter.is_empty() && self.filter != filter {
            let reason = format!(
                "another port of this process already filters {} by {:?}; use the same filter, or another process",
                found.name, self.filter
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let (intake, what) = match self.feeds {
            FrameDestination::Sockets(_) => (RxPath::Socket, ""),
            FrameDestination::Area(..) => (RxPath::Area, " and writes frames itself"),
            FrameDestination::Nowhere(_) => (RxPath::Tally, " and only counts frames"),
        };
        let is_mode = wanted.mode.is_none_or(|mode| mode == self.form.mode);
        let is_intake = wanted.intake.map_or(intake != RxPath::Tally || wanted.tallies(), |wanted| wanted == intake);
        if is_mode && is_intake && wanted.passes == self.form.passes {
            return Ok(());
        }
        let host = if self.form.passes { ", and passes frames to the host too" } else { "" };
        let reason = format!(
            "the program of another port on {} already runs {}{what}{host}; use the same options, or another process",
            found.name,
            name(self.form.mode)
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
    }

    /// Returns the mode of the program.
    pub(super) fn mode(&self) -> Mode {
        self.form.mode
    }

    /// Returns the clock of timestamps.
    pub(super) fn clock(&self) -> ProgramClock {
        self.form.clock
    }

    /// Opens the intake of a queue, unless the program hands its frames to a socket; `snap` limits the bytes of each
    /// frame. Returns a note, too. A queue has one reader at a time.
    pub(super) fn intake(&self, queue: &Queue, snap: u32) -> io::Result<Option<(Box<dyn Intake>, String)>> {
        Ok(match &self.feeds {
            FrameDestination::Sockets(_) => None,
            FrameDestination::Area(area, bell) => {
                self.take(queue.number)?;
                let Layout { frames, bytes, .. } = area.layout();
                let note =
                    format!("the program writes frames into our memory: rings of {frames} frames, {} MiB", bytes >> 20);
                let intake = AreaIntake::new(self.segment(area, queue.number), bell.clone(), queue, snap);
                Some((Box::new(intake), note))
            }
            FrameDestination::Nowhere(bell) => {
                self.take(queue.number)?;
                let note = "the program only counts the frames".to_owned();
                Some((Box::new(Tally::new(queue, bell.clone())), note))
            }
        })
    }

    /// Returns the segment of a queue, from the position after its last reader: unread frames are skipped.
    fn segment(&self, area: &Arc<Area>, queue: u32) -> Segment {
        let (head, written) = (self.get(Word::Head, queue), Word::WRITTEN.map(|word| self.get(word, queue)));
        Word::FREED.into_iter().zip(written).for_each(|(word, written)| self.set(word, queue, written));
        self.set(Word::Tail, queue, head);
        Segment::new(area.clone(), queue, (head, written))
    }

    fn take(&self, queue: u32) -> io::Result<()> {
        if !Word::Read.take(&self.words, queue) {
            let reason = format!("queue {queue} is already open for receiving, by another port of this process");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        Ok(())
    }

    /// Connects a queue to its socket, to receive frames once it is opened.
    pub(super) fn connect(&self, queue: u32, socket: &XskSocket) -> io::Result<()> {
        match &self.feeds {
            FrameDestination::Sockets(sockets) => sockets.set(queue, &socket.fd().as_raw_fd().to_ne_bytes()),
            FrameDestination::Area(..) | FrameDestination::Nowhere(_) => Ok(()),
        }
    }

    /// Returns a word of a queue.
    pub(super) fn get(&self, word: Word, queue: u32) -> u64 {
        word.get(&self.words, queue)
    }

    /// Returns the frames that the program has dropped, after it has copied or counted them; `None` if sockets take
    /// them.
    pub(super) fn dropped(&self) -> Option<u64> {
        let words: &[Word] = match self.feeds {
            FrameDestination::Sockets(_) => return None,
            _ if self.form.passes => &[],
            FrameDestination::Area(..) => &[Word::Head, Word::Full, Word::Bad, Word::Filtered],
            FrameDestination::Nowhere(_) => &[Word::Head],
        };
        Some(words.iter().map(|word| word.total(&self.words)).sum())
    }

    /// Returns the frames by size that a counting program has counted.
    pub(super) fn sizes(&self, queue: u32) -> [u64; Sizes::BUCKETS] {
        program::sizes(&self.words, queue)
    }

    /// Writes a word of a queue.
    pub(super) fn set(&self, word: Word, queue: u32, value: u64) {
        word.set(&self.words, queue, value);
    }

    /// Returns the senders that were opened to receive and are unused.
    pub(super) fn idle_senders(&self) -> MutexGuard<'_, HashMap<u32, (Arc<XskSocket>, XskSender)>> {
        self.idle_senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the inode of this thread's network namespace.
fn namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.st_ino())
}

/// Loads and attaches the program in the best form that the driver supports.
fn attach(found: &InterfaceInfo, wanted: &XdpConfig, filter: &str) -> io::Result<Attachment> {
    let queues = found.queues.0.max(found.queues.1).max(1);
    let mut refused = Vec::new();
    vlan::check(found, wanted.mode, filter)?;
    if wanted.tallies()
        && filter.trim().is_empty()
        && let Some(attachment) = attach_tallying(found, wanted, queues, &mut refused)?
    {
        return Ok(attachment);
    }
    refused.clear();
    let area = match (wanted.intake, wanted.mode) {
        (Some(RxPath::Socket | RxPath::Tally), _) | (_, Some(Mode::Generic)) => None,
        // AF_XDP may work without a feature or the memory that this needs.
        (None, _) if !wanted.passes => make_area(found, wanted, queues).ok(),
        (None | Some(RxPath::Area), _) => Some(make_area(found, wanted, queues)?),
    };
    if let Some(feeds) = area
        && let Some(attachment) = attach_writing(found, feeds, (filter, wanted.passes), &mut refused)?
    {
        return Ok(attachment);
    }
    if wanted.intake != Some(RxPath::Area) && !wanted.passes {
        let sockets = Map::new(MapKind::Xskmap, 4, queues)?;
        let forms = forms(found, false)?.filter(|form| wanted.mode.is_none_or(|only| only == form.mode));
        let load =
            |form, words: &Words| redirecting(form, queues, words.raw(), sockets.raw()).map_err(io::Error::other);
        if let Some((link, program, words, form)) = attach_one(found, forms, load, &mut refused)? {
            let plain = (String::new(), vec![describe(found, form, &refused)]);
            return Ok(Attachment::new((link, program, words), FrameDestination::Sockets(sockets), form, plain));
        }
    }
    let advice = if wanted.passes {
        format!(
            "; only a program in the driver can share frames with the host; use packet:{0} to share them, or --take",
            found.name
        )
    } else {
        String::new()
    };
    let reason = format!(
        "{} does not support XDP programs ({}){advice}",
        driver(found),
        reasons(refused.iter().map(|(form, error)| (name(form.mode), error.as_str())))
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// Attaches a program that counts frames.
fn attach_tallying(
    found: &InterfaceInfo,
    wanted: &XdpConfig,
    queues: u32,
    refused: &mut Vec<(Form, String)>,
) -> io::Result<Option<Attachment>> {
    let load =
        |form, words: &Words| tallying(form, queues, words.raw(), longest_frame(found)).map_err(io::Error::other);
    let forms = forms(found, wanted.passes)?.filter(|form| form.mode == Mode::Native);
    let Some((link, program, words, form)) = attach_one(found, forms, load, refused)? else { return Ok(None) };
    let notes = vec![describe(found, form, refused)];
    Ok(Some(Attachment::new(
        (link, program, words),
        FrameDestination::Nowhere(Arc::new(Bell::new()?)),
        form,
        (String::new(), notes),
    )))
}

/// Attaches a program that writes frames, with the filter if the kernel can apply it.
fn attach_writing(
    found: &InterfaceInfo,
    (area, bell): (Arc<Area>, Arc<Bell>),
    (text, passes): (&str, bool),
    refused: &mut Vec<(Form, String)>,
) -> io::Result<Option<Attachment>> {
    let (filter, mut note) = in_kernel(text)?;
    let mut filters = vec![filter.as_ref(), None];
    filters.dedup_by_key(|filter| filter.is_none());
    for filter in filters {
        let load = |form, words: &Words| {
            let maps = (words.raw(), area.raw(), bell.raw());
            let program = filter.and_then(Filter::program);
            writing(form, maps, area.layout(), longest_frame(found), program).map_err(io::Error::other)
        };
        let forms = forms(found, passes)?.filter(|form| form.mode == Mode::Native);
        if let Some((link, program, words, form)) = attach_one(found, forms, load, refused)? {
            let applied = if filter.is_some() { text } else { "" }.to_owned();
            let notes = std::iter::once(describe(found, form, refused)).chain(note).collect();
            let feeds = FrameDestination::Area(area, bell);
            return Ok(Some(Attachment::new((link, program, words), feeds, form, (applied, notes))));
        }
        if filter.is_some() {
            // The verifier rejects some filters that this process can apply.
            let why = refused.last().map(|(_, error)| error.as_str()).unwrap_or_default();
            note = Some(format!("filter runs in this process: the kernel rejects its program: {why}"));
            refused.clear();
        }
    }
    Ok(None)
}

/// Compiles the filter for the kernel, if it has the same result there. Returns a note, too.
fn in_kernel(text: &str) -> io::Result<(Option<Filter>, Option<String>)> {
    if text.trim().is_empty() {
        return Ok((None, None));
    }
    let filter = Filter::compile(text, LinkType::ETHERNET.0)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    Ok(match filter.in_kernel(0) {
        Ok(_) => (Some(filter), Some("filter runs in the kernel, which counts filtered frames".into())),
        Err(reason) => (None, Some(format!("filter runs in this process: {reason}"))),
    })
}

fn make_area(found: &InterfaceInfo, wanted: &XdpConfig, queues: u32) -> io::Result<(Arc<Area>, Arc<Bell>)> {
    let area = Area::new(wanted.area(queues, chunk_bytes(found))).map_err(|error| match error.raw_os_error() {
        // Maps were limited to 4 MiB.
        Some(libc::E2BIG) => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("sharing frames with the host, and mode=ring, need Linux 5.18 or later; use packet:{}", found.name),
        ),
        _ => error,
    })?;
    Ok((Arc::new(area), Arc::new(Bell::new()?)))
}

/// Loads and attaches the first form that the driver supports.
fn attach_one(
    found: &InterfaceInfo,
    forms: impl Iterator<Item = Form>,
    load: impl Fn(Form, &Words) -> io::Result<Vec<Insn>>,
    refused: &mut Vec<(Form, String)>,
) -> io::Result<Option<(Link, Program, Words, Form)>> {
    let queues = found.queues.0.max(found.queues.1).max(1);
    let words = Words::new(words(queues))?;
    for form in forms {
        let insns = load(form, &words)?;
        let demands = Demands { frags: form.frags, bound_to: form.vlan_tag.map(|_| found.index) };
        let result = Program::load(&insns, demands)
            .and_then(|program| Link::attach(&program, found.index, form.mode).map(|link| (link, program)));
        match result {
            Ok((link, program)) => return Ok(Some((link, program, words, form))),
            Err(error) => match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST) => return Err(occupied(found, &error)),
                Some(libc::EPERM | libc::EACCES | libc::ENODEV) => return Err(error),
                _ => refused.push((form, error.to_string())),
            },
        }
    }
    Ok(None)
}

/// Returns the forms of the program, best first.
fn forms(found: &InterfaceInfo, passes: bool) -> io::Result<impl Iterator<Item = Form>> {
    let clock = ProgramClock::of_kernel()?;
    let vlan_tag = btf::function("bpf_xdp_metadata_rx_vlan_tag").filter(|_| vlan::are_reported(found));
    let native = Form { mode: Mode::Native, vlan_tag: None, frags: true, clock, passes };
    let tagged = vlan_tag.map(|_| Form { vlan_tag, ..native });
    let plain = [native, Form { frags: false, ..native }];
    let generic = plain.map(|form| Form { mode: Mode::Generic, ..form });
    Ok(tagged.into_iter().chain(plain).chain(generic))
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Native => "in the driver",
        Mode::Generic => "in generic mode",
    }
}

/// Describes the form in use, and why no better one works.
fn describe(found: &InterfaceInfo, form: Form, refused: &[(Form, String)]) -> String {
    let what = match form {
        Form { mode: Mode::Native, vlan_tag: Some(_), .. } => {
            "XDP runs in the driver, which reports stripped VLAN tags"
        }
        Form { mode: Mode::Native, .. } => "XDP runs in the driver",
        Form { mode: Mode::Generic, .. } => "XDP runs in generic mode, after the driver: slower",
    };
    let better = refused.iter().rfind(|(other, _)| other.mode != form.mode);
    let why = better.map_or(String::new(), |(_, error)| format!(" (in the driver: {error})"));
    let frags = if form.frags { "" } else { "; frames of one buffer only" };
    format!("{what}{why}{frags}{}", vlan::lost(found, form.vlan_tag.is_some()))
}
