//! Which backends there are, and opening ports by them.

use crate::backend::{Backend, InterfaceInfo, Target};
use crate::spec::{is_scheme, parse_offset};
use crate::{PortError, RxOptions, RxPort, Spec, TxOptions, TxPort};
use linerate_burst::LinkType;
use std::borrow::Cow;

/// Backends, by their schemes.
///
/// ```
/// use linerate_port::{Backend, Target, PortError, Registry, RxOptions, Spec};
///
/// const ROW: Backend = Backend {
///     scheme: "closed",
///     placeholder: "name",
///     sentence: "a port that is always closed",
///     target: Target::Device,
///     rx_options: &[],
///     tx_options: &[],
///     open_rx: |spec, _, _| Err(PortError::broken(spec.to_string(), "is closed")),
///     open_tx: |spec, _, _| Err(PortError::broken(spec.to_string(), "is closed")),
///     leaves_when_sent: |_, _| true,
/// };
/// let registry = Registry::of(&[]).with(ROW);
/// let error = registry.open_rx(&Spec::parse("closed:x").unwrap(), &RxOptions::default()).err().unwrap();
/// assert_eq!(error.to_string(), "closed:x: is closed");
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    backends: Cow<'static, [Backend]>,
}

impl Registry {
    /// These backends and no others.
    pub const fn of(backends: &'static [Backend]) -> Self {
        Registry { backends: Cow::Borrowed(backends) }
    }

    /// The same with one more, which takes the place of another of its scheme.
    ///
    /// # Panics
    /// If its scheme is none that a port can be written with.
    pub fn with(mut self, backend: Backend) -> Self {
        assert!(is_scheme(backend.scheme), "invalid scheme {:?}: expected lower-case letters and -", backend.scheme);
        let backends = self.backends.to_mut();
        backends.retain(|other| other.scheme != backend.scheme);
        backends.push(backend);
        self
    }

    /// All of them.
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// Opens a port to receive from. Whatever the backend, `offset=` sets the clock of the port right: `offset=-1.5us`
    /// for one whose stamps are 1.5 us too late.
    pub fn open_rx(&self, spec: &Spec, options: &RxOptions) -> Result<RxPort, PortError> {
        let (backend, mut spec) = self.find(spec)?;
        let offset = spec.option(OFFSET).map(str::to_owned);
        spec.options.retain(|(key, _)| key != OFFSET);
        allow(&spec, backend, backend.rx_options)?;
        let Some(text) = offset else { return (backend.open_rx)(&spec, options, self) };
        let offset_ns = parse_offset(&text).ok_or_else(|| {
            let reason = format!("invalid offset '{text}'; expected nanoseconds or a unit, such as 250, -1.5us, 3ms");
            PortError::wrong(spec.to_string(), reason)
        })?;
        let mut port = (backend.open_rx)(&spec, options, self)?;
        port.offset_ns = offset_ns;
        port.notes.push(format!("time stamps are corrected by {offset_ns} ns"));
        Ok(port)
    }

    /// Opens several ports to receive from. They start together: opening one may take a second, in which the rings of
    /// those already open would overflow.
    pub fn open_all(&self, specs: &[Spec], options: &RxOptions) -> Result<Vec<RxPort>, PortError> {
        let options = RxOptions { paused: true, ..options.clone() };
        let mut ports = specs.iter().map(|spec| self.open_rx(spec, &options)).collect::<Result<Vec<_>, _>>()?;
        ports.iter_mut().flat_map(|port| &mut port.queues).for_each(|queue| queue.start());
        Ok(ports)
    }

    /// Opens a port to send to.
    pub fn open_tx(&self, spec: &Spec, options: &TxOptions) -> Result<TxPort, PortError> {
        let (backend, spec) = self.find(spec)?;
        allow(&spec, backend, backend.tx_options)?;
        let takes = match backend.target {
            Target::File => true,
            Target::Tunnel => [LinkType::ETHERNET, LinkType::RAW].contains(&options.link),
            _ => options.link == LinkType::ETHERNET,
        };
        if !takes {
            let reason = format!("expected Ethernet frames, got {}; write these to pcap:FILE", options.link);
            return Err(PortError::wrong(spec.to_string(), reason));
        }
        (backend.open_tx)(&spec, options, self)
    }

    /// Returns the backend of a port, and the port with the queues split from its target.
    pub fn find(&self, spec: &Spec) -> Result<(&Backend, Spec), PortError> {
        let Some(backend) = self.backends.iter().find(|backend| backend.scheme == spec.scheme) else {
            let known: Vec<&str> = self.backends.iter().map(|backend| backend.scheme).collect();
            let reason = format!("unknown backend {:?}; expected one of {}", spec.scheme, known.join(", "));
            return Err(PortError::wrong(spec.to_string(), reason));
        };
        match backend.target {
            Target::File | Target::Port(_) => Ok((backend, spec.clone())),
            _ => Ok((backend, spec.with_queues()?)),
        }
    }

    /// Does the same for the port inside all wrappers, which frames are received from or sent to.
    pub fn innermost(&self, spec: &Spec) -> Result<(&Backend, Spec), PortError> {
        let (mut backend, mut spec) = self.find(spec)?;
        while let Target::Port(wrapped) = backend.target {
            (backend, spec) = self.find(&wrapped(&spec)?)?;
        }
        Ok((backend, spec))
    }

    /// Returns the port of an interface of this machine that frames are received from or sent to, if any. Errors in a
    /// port are reported when it is opened.
    pub fn interface(&self, spec: &Spec) -> Option<Spec> {
        let (backend, spec) = self.innermost(spec).ok()?;
        matches!(backend.target, Target::Interface { .. }).then_some(spec)
    }

    /// Returns whether a port only sends.
    pub fn only_sends(&self, spec: &Spec) -> bool {
        let innermost = self.innermost(spec);
        innermost.is_ok_and(|(backend, _)| matches!(backend.target, Target::Interface { only_sends: true, .. }))
    }

    /// Returns the path of the file that frames are read from or written to, if any.
    pub fn file(&self, spec: &Spec) -> Option<String> {
        let (backend, spec) = self.innermost(spec).ok()?;
        matches!(backend.target, Target::File).then_some(spec.target)
    }

    /// Returns whether frames sent to a port leave at that moment; in a file or memory they are stored with their
    /// times.
    pub fn leaves_when_sent(&self, spec: &Spec, options: &TxOptions) -> bool {
        self.innermost(spec).map_or(true, |(backend, spec)| (backend.leaves_when_sent)(&spec, options))
    }

    /// Converts a receiving port to one to send to: drops the options that only apply to receiving.
    pub fn for_sending(&self, spec: &Spec) -> Result<Spec, PortError> {
        let (backend, _) = self.innermost(spec)?;
        let is_receiving = |key: &str| key == OFFSET || backend.rx_options.contains(&key);
        let mut spec = spec.clone();
        spec.options.retain(|(key, _)| backend.tx_options.contains(&key.as_str()) || !is_receiving(key));
        Ok(spec)
    }

    /// Returns, for each backend that uses interfaces, its limits on this one or the reason why it does not work.
    pub fn on_interface(&self, found: &InterfaceInfo) -> Vec<(&'static str, Result<String, String>)> {
        let judged = self.backends.iter().filter_map(|backend| match backend.target {
            Target::Interface { works, .. } => Some((backend.scheme, works(found))),
            _ => None,
        });
        judged.collect()
    }
}

/// Option of all receiving ports.
const OFFSET: &str = "offset";

/// A wrapper hands on what it does not know.
fn allow(spec: &Spec, backend: &Backend, known: &[&str]) -> Result<(), PortError> {
    if matches!(backend.target, Target::Port(_)) { Ok(()) } else { spec.allow_options(known) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feed, Head, RxQueue};
    use linerate_burst::{Burst, Horizon, Ledger, Nanos};
    use std::cell::RefCell;
    use std::os::fd::BorrowedFd;

    /// A backend whose errors report the request.
    const fn row(scheme: &'static str, target: Target) -> Backend {
        Backend {
            scheme,
            placeholder: "",
            sentence: "",
            target,
            rx_options: &["ring", "netns"],
            tx_options: &["netns"],
            open_rx: |spec, _, _| Err(PortError::broken(spec.to_string(), format!("asked for {:?}", spec.queues))),
            open_tx: |spec, _, _| Err(PortError::broken(spec.to_string(), "sends")),
            leaves_when_sent: |spec, _| spec.target != "kept",
        }
    }

    const WRAPPER: Target = Target::Port(|spec| Ok(spec.wrapped(spec.options.clone())));
    const ROWS: &[Backend] = &[
        row("packet", Target::Interface { works: |_| Ok(String::new()), takes_away: false, only_sends: false }),
        row("device", Target::Device),
        row("file", Target::File),
        row("wrapper", WRAPPER),
    ];
    const REGISTRY: Registry = Registry::of(ROWS);

    fn spec(text: &str) -> Spec {
        Spec::parse(text).unwrap()
    }

    fn refused(text: &str) -> String {
        REGISTRY.open_rx(&spec(text), &RxOptions::default()).err().unwrap().to_string()
    }

    #[test]
    fn files_have_no_queues() {
        for (text, said) in [
            ("eth0@0-3?ring=1", "packet:eth0@0-3?ring=1: asked for Some((0, 3))"),
            ("device:02:00.0@7", "device:02:00.0@7: asked for Some((7, 7))"),
            ("file:/tmp/a@2", "file:/tmp/a@2: asked for None"),
            ("wrapper:file:/tmp/a@x", "wrapper:file:/tmp/a@x: asked for None"),
        ] {
            assert_eq!(refused(text), said);
        }
        for (text, part) in [
            ("eth0@x", "invalid queues '@x'; expected @N or @FIRST-LAST"),
            ("eth0@3-1", "invalid queues '@3-1'"),
            ("packet:@2", "empty target"),
            ("eth0?speed=1", "unknown option \"speed\"; the packet backend has: ring, netns"),
            ("nothing:x", "unknown backend \"nothing\"; expected one of packet, device, file, wrapper"),
            ("eth0?offset=late", "invalid offset 'late'"),
        ] {
            assert!(refused(text).contains(part), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn facts_are_those_of_the_innermost_port() {
        let at = REGISTRY.interface(&spec("wrapper:wrapper:eth0@2?netns=a")).unwrap();
        assert_eq!((at.to_string().as_str(), at.queues), ("packet:eth0@2?netns=a", Some((2, 2))));
        assert_eq!(REGISTRY.file(&spec("wrapper:file:/tmp/a@b.pcap")).as_deref(), Some("/tmp/a@b.pcap"));
        for text in ["wrapper:device:x", "wrapper:nothing:x", "eth0@x"] {
            assert_eq!((REGISTRY.interface(&spec(text)), REGISTRY.file(&spec(text))), (None, None), "{text}");
        }
        let leaves = |text: &str| REGISTRY.leaves_when_sent(&spec(text), &TxOptions::default());
        assert!(leaves("wrapper:device:x") && !leaves("wrapper:device:kept") && leaves("nothing:kept"));
        let sending = REGISTRY.for_sending(&spec("wrapper:eth0?ring=1&netns=a&offset=1us&drop=1%")).unwrap();
        assert_eq!(sending.to_string(), "wrapper:eth0?netns=a&drop=1%");
    }

    #[test]
    fn only_files_accept_other_link_types() {
        let said = |text: &str, link| {
            let options = TxOptions { link, ..TxOptions::default() };
            REGISTRY.open_tx(&spec(text), &options).err().unwrap().to_string()
        };
        for text in ["eth0", "device:x", "file:x", "wrapper:file:x"] {
            assert_eq!(said(text, LinkType::ETHERNET), format!("{}: sends", spec(text)));
        }
        assert_eq!(said("file:x", LinkType(113)), "file:x: sends");
        for text in ["eth0", "device:x", "wrapper:file:x"] {
            let reason = "expected Ethernet frames, got link type 113; write these to pcap:FILE";
            assert_eq!(said(text, LinkType(113)), format!("{}: {reason}", spec(text)));
        }
    }

    #[test]
    fn several_ports_start_after_all_are_open() {
        thread_local! { static LOG: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) } }
        fn log(what: &'static str) {
            LOG.with_borrow_mut(|log| log.push(what));
        }
        struct Held;
        impl RxQueue for Held {
            fn start(&mut self) {
                log("start");
            }
            fn fill(&mut self, _: Nanos) -> Result<Head<'_>, PortError> {
                Ok(Head { burst: Burst::EMPTY, horizon: Horizon::Ended, interfaces: &[] })
            }
            fn consume(&mut self, _: usize) {}
            fn detach(&mut self) {}
            fn wake(&self) -> Option<BorrowedFd<'_>> {
                None
            }
            fn counters(&self, _: &mut Ledger) {}
        }
        let open_rx = |spec: &Spec, options: &RxOptions, _: &Registry| {
            log(if options.paused { "held" } else { "open" });
            let queues: Vec<Box<dyn RxQueue>> = vec![Box::new(Held), Box::new(Held)];
            if spec.target == "none" {
                Err(PortError::broken("none", ""))
            } else {
                Ok(RxPort::new("", queues, Feed::Clock))
            }
        };
        let registry = REGISTRY.with(Backend { open_rx, ..row("held", Target::Device) });
        let open = |texts: [&str; 2]| registry.open_all(&texts.map(spec), &RxOptions::default()).is_ok();
        assert!(open(["held:a", "held:b?offset=1us"]));
        assert_eq!(LOG.take(), ["held", "held", "start", "start", "start", "start"]);
        assert!(!open(["held:a", "held:none"]));
        assert_eq!(LOG.take(), ["held", "held"], "nothing is taken in where not all can be opened");
    }

    #[test]
    fn backend_replaces_another_of_its_scheme() {
        let registry = REGISTRY.with(row("his", Target::Device)).with(row("file", Target::Device));
        let schemes: Vec<&str> = registry.backends().iter().map(|backend| backend.scheme).collect();
        assert_eq!(schemes, ["packet", "device", "wrapper", "his", "file"]);
        assert_eq!(registry.file(&spec("file:x")), None);
        assert!(std::panic::catch_unwind(|| REGISTRY.with(row("no_scheme", Target::Device))).is_err());
    }
}
