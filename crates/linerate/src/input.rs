//! Ports to receive from, with filter and limits.

use crate::error::Error;
use crate::flows::Flows;
use crate::packets::Packets;
use crate::summary::Summary;
use linerate_backends::REGISTRY;
use linerate_burst::LinkType;
use linerate_engine::{Capture, Receive, Selection, Stop};
use linerate_filter::Filter;
use linerate_meter::Config;
use linerate_pcap::{Format, Output, Writer};
use linerate_port::{RxOptions, Spec, Target};
use std::path::Path;
use std::time::Duration;

/// Link types of which a filter must fit at least one: Ethernet, bare IP, Linux cooked, 802.11.
const LINK_TYPES: [LinkType; 4] = [LinkType::ETHERNET, LinkType::RAW, LinkType(113), LinkType(105)];

/// Names the ports to receive from, separated by commas as on the command line:
///
/// | text | port |
/// |---|---|
/// | `eth0`, `eth0,eth1` | interfaces (AF_PACKET); `xdp:eth0` by AF_XDP |
/// | `trace.pcap` | a capture file that exists, unless an interface has this name |
/// | `pcap:FILE`, `pcap:-` | a capture file, standard input |
/// | `mem:NAME`, `shm:NAME` | packets of this process, of another one |
///
/// All schemes and their options: [`Spec`], [`REGISTRY`](crate::port::REGISTRY). Paths with a comma need
/// [`open_file`]. Nothing is opened before the run starts, so that several ports start together.
///
/// # Errors
/// [`Error::Port`] if the syntax is invalid.
pub fn open(ports: &str) -> Result<Input, Error> {
    let spec = |name: String| {
        let is_interface = || !name.contains('/') && Path::new("/sys/class/net").join(&name).exists();
        let is_file = !name.contains(':') && !is_interface() && Path::new(&name).is_file();
        if is_file { Ok(Spec::file(&name)) } else { Spec::parse(&name) }
    };
    Ok(Input::new(Spec::joined(ports.split(',').map(str::trim)).into_iter().map(spec).collect::<Result<_, _>>()?))
}

/// Names a capture file to read, whatever characters its path contains.
pub fn open_file(path: &str) -> Input {
    Input::new(vec![Spec::file(path)])
}

/// Ports to receive from, with filter and limits: by default all packets that they receive and send, promiscuously,
/// until they end.
#[must_use = "nothing is opened before packets(), flows() or write()"]
pub struct Input {
    ports: Vec<Spec>,
    options: RxOptions,
    selection: Selection,
    duration: Option<Duration>,
    stop: Stop,
}

impl Input {
    fn new(ports: Vec<Spec>) -> Self {
        let options = RxOptions { promiscuous: true, shared: true, outgoing: true, ..RxOptions::default() };
        Input { ports, options, selection: Selection::default(), duration: None, stop: Stop::new() }
    }

    /// Selects packets by a filter of tcpdump (pcap-filter(7)). The kernel applies it early where it can.
    ///
    /// # Errors
    /// [`Error::Filter`] if it is invalid. The link types of files are known later: a filter that does not fit one of
    /// them is an [`Error::Run`].
    pub fn filter(mut self, filter: &str) -> Result<Self, Error> {
        let is_file =
            |spec: &Spec| REGISTRY.find(spec).is_ok_and(|(backend, _)| matches!(backend.target, Target::File));
        let links = if self.ports.iter().all(is_file) { &LINK_TYPES[..] } else { &LINK_TYPES[..1] };
        let mut errors: Vec<_> = links.iter().filter_map(|link| Filter::compile(filter, link.0).err()).collect();
        if errors.len() == links.len() {
            return Err(errors.swap_remove(0).into());
        }
        filter.clone_into(&mut self.options.filter);
        filter.clone_into(&mut self.selection.filter);
        Ok(self)
    }

    /// Ends after this number of selected packets.
    pub fn limit(mut self, packets: u64) -> Self {
        self.selection.frames = Some(packets);
        self
    }

    /// Ends after this time.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Receives only packets for this host, not all that arrive.
    pub fn not_promiscuous(mut self) -> Self {
        self.options.promiscuous = false;
        self
    }

    /// Receives only packets that arrive, not those that this host sends.
    pub fn incoming_only(mut self) -> Self {
        self.options.outgoing = false;
        self
    }

    /// Ends when this is requested, from any thread or a signal handler. Live ports still deliver what had arrived.
    pub fn stop(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// Opens the ports and returns their packets one by one.
    ///
    /// # Errors
    /// [`Error::Port`] if a port cannot be opened.
    pub fn packets(self) -> Result<Packets, Error> {
        let (receive, selection) = self.start()?;
        Ok(Packets::new(receive, selection))
    }

    /// Opens the ports, meters their packets and returns the flow records as flows end.
    ///
    /// # Errors
    /// [`Error::Port`] if a port cannot be opened.
    pub fn flows(self, config: &Config) -> Result<Flows, Error> {
        let (receive, selection) = self.start()?;
        Ok(Flows::new(receive, selection, config))
    }

    /// Opens the ports and writes their packets to a capture file until they end, in order of time. The name chooses
    /// the format: `.pcap`, or else pcapng; `.gz`, `.zst` and `.lz4` compress; `-` is standard output. An existing file is
    /// replaced, a new one has mode 0600.
    ///
    /// # Errors
    /// [`Error::Port`] if a port cannot be opened, [`Error::Create`] for the file, [`Error::Run`] with the result so far
    /// if a port or the file fails.
    pub fn write(self, path: &str) -> Result<Summary, Error> {
        let (receive, selection) = self.start()?;
        let create = |error| Error::Create { path: path.to_owned(), error };
        let format = Format::of_path(path).map_err(create)?;
        let writer = Writer::new(Output::open(path).map_err(create)?, format);
        let mut capture = Capture::new(selection, vec![Box::new(writer)]);
        let report = receive.run(&mut [&mut capture]);
        Summary::of(report, None)
    }

    /// Opens the ports.
    fn start(self) -> Result<(Receive, Selection), Error> {
        let Input { ports, options, selection, duration, stop } = self;
        let ports = REGISTRY.open_all(&ports, &options)?;
        Ok((Receive { duration, stop, ..Receive::all(ports) }, selection))
    }
}
