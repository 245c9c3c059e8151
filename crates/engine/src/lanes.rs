//! The lanes of a capture: the queues of all its ports, and the interfaces they bring.

use linerate_burst::{Burst, Desc, Horizon, Interface, Ledger, Nanos};
use linerate_merge::Input;
use linerate_port::contract::Monitor;
use linerate_port::{Head, PortError, RxPort, RxQueue};
use std::os::fd::BorrowedFd;

/// All queues of all ports, in the order of the merge.
pub(crate) struct Lanes {
    queues: Vec<Lane>,
    ports: Vec<Port>,
    /// The interfaces of all ports.
    interfaces: Vec<Interface>,
    /// What was noteworthy, in order: ports that went down, came back, failed.
    pub events: Vec<String>,
    /// The first failure that is more than an end.
    pub failure: Option<PortError>,
}

struct Lane {
    queue: Box<dyn RxQueue>,
    port: usize,
    state: State,
    /// What is added to the times of its frames, in nanoseconds, and the room for their descs then.
    offset: i64,
    shifted: Vec<Desc>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Down,
    /// Nothing comes from it any more.
    Ended,
}

struct Port {
    name: String,
    monitor: Option<Box<dyn Monitor>>,
    filtered: bool,
    /// The place of each of its interfaces in the list of all.
    map: Vec<u16>,
}

/// What one lane shows in a round.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub burst: Burst<'a>,
    horizon: Horizon,
    interfaces: &'a [Interface],
    port: usize,
}

impl<'a> Shown<'a> {
    pub fn input(&self) -> Input<'a> {
        Input { descs: self.burst.descs(), horizon: self.horizon }
    }

    /// No frame behind the first `taken` is older than this.
    pub fn bound(&self, taken: usize) -> Nanos {
        self.burst.descs().get(taken).map_or(self.horizon.time(), |desc| desc.time)
    }

    pub fn is_over(&self) -> bool {
        self.burst.is_empty() && self.horizon == Horizon::Ended
    }
}

impl Lanes {
    pub fn new(ports: Vec<RxPort>) -> Self {
        let mut lanes =
            Lanes { queues: Vec::new(), ports: Vec::new(), interfaces: Vec::new(), events: Vec::new(), failure: None };
        for (index, port) in ports.into_iter().enumerate() {
            lanes.queues.extend(port.queues.into_iter().map(|queue| Lane {
                queue,
                port: index,
                state: State::Up,
                offset: port.offset_ns,
                shifted: Vec::new(),
            }));
            lanes.ports.push(Port { name: port.name, monitor: port.monitor, filtered: port.filtered, map: Vec::new() });
        }
        lanes
    }

    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Leaves out all lanes but the first `most`.
    pub fn keep(&mut self, most: usize) {
        self.queues.truncate(most);
    }

    /// Fills every lane. What is shown borrows the queues alone, so that the rest stays usable.
    pub fn fill<'a>(&'a mut self, now: Nanos, shown: &mut Vec<Shown<'a>>) -> Table<'a> {
        let Lanes { queues, ports, interfaces, events, failure } = self;
        for lane in queues {
            let port = lane.port;
            let (Head { burst, horizon, interfaces }, event) = lane.fill(now, failure);
            events.extend(event);
            shown.push(Shown { burst, horizon, interfaces, port });
        }
        Table { ports, interfaces, failure }
    }

    /// Gives the first frames of a lane back.
    pub fn consume(&mut self, lane: usize, frames: usize) {
        if frames > 0 {
            self.queues[lane].queue.consume(frames);
        }
    }

    /// No lane takes in anything more.
    pub fn detach(&mut self) {
        for lane in &mut self.queues {
            lane.queue.detach();
        }
    }

    /// What to wait on; `None` if a lane has nothing to wait on.
    pub fn wakes(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.queues.iter().filter(|lane| lane.state != State::Ended).map(|lane| lane.queue.wake()).collect()
    }

    /// Whether a lane goes on with the next fill, so that nothing is to be waited for.
    pub fn are_at_work(&self) -> bool {
        self.queues.iter().any(|lane| lane.state != State::Ended && lane.queue.is_at_work())
    }

    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Counters of queues and network cards.
    pub fn counters(&self, ledger: &mut Ledger) {
        for port in &self.ports {
            if let Some(monitor) = &port.monitor {
                monitor.counters(ledger);
            }
        }
        self.queue_counters(ledger);
    }

    /// Counters of one lane's queue alone.
    pub fn lane_counters(&self, lane: usize, ledger: &mut Ledger) {
        self.queues[lane].queue.counters(ledger);
    }

    /// Where each lane belongs: its port, and which queue of that port it is.
    pub fn places(&self) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(self.queues.len());
        for lane in &self.queues {
            let before = places.last().filter(|(port, _)| *port == lane.port);
            places.push((lane.port, before.map_or(0, |(_, queue)| queue + 1)));
        }
        places
    }

    /// Counters of the queues alone: asking a network card can take milliseconds.
    pub fn queue_counters(&self, ledger: &mut Ledger) {
        for lane in &self.queues {
            lane.queue.counters(ledger);
        }
    }
}

impl Lane {
    /// What the queue has; a lane that is down or gone has nothing and holds nobody up.
    fn fill(&mut self, now: Nanos, failure: &mut Option<PortError>) -> (Head<'_>, Option<String>) {
        let nothing = |horizon| Head { burst: Burst::EMPTY, horizon, interfaces: &[] };
        if self.state == State::Ended {
            return (nothing(Horizon::Ended), None);
        }
        match self.queue.fill(now) {
            Ok(mut head) => {
                if self.offset != 0 {
                    head.burst = head.burst.shifted(self.offset, &mut self.shifted);
                    if let Horizon::At(time) = &mut head.horizon {
                        *time = time.shifted(self.offset);
                    }
                }
                let came_back = self.state == State::Down && !head.burst.is_empty();
                if came_back {
                    self.state = State::Up;
                }
                (head, came_back.then(|| "the interface that was down delivers frames again".to_owned()))
            }
            Err(PortError::Again { .. }) => (nothing(Horizon::At(Nanos::ZERO)), None),
            Err(error @ PortError::Down { .. }) => {
                self.state = State::Down;
                (nothing(Horizon::At(Nanos::ZERO)), Some(error.to_string()))
            }
            Err(error) => {
                self.state = State::Ended;
                let event = error.to_string();
                if matches!(error, PortError::Broken { .. }) {
                    failure.get_or_insert(error);
                }
                (nothing(Horizon::Ended), Some(event))
            }
        }
    }
}

/// The interfaces of all ports, growing while lanes are shown.
pub(crate) struct Table<'a> {
    ports: &'a mut Vec<Port>,
    interfaces: &'a mut Vec<Interface>,
    failure: &'a mut Option<PortError>,
}

/// As many interfaces as descs can tell apart.
const MOST_INTERFACES: usize = u16::MAX as usize + 1;

impl Table<'_> {
    /// Takes up interfaces that a lane shows for the first time, and says which they are.
    pub fn learn(&mut self, shown: &Shown<'_>) -> &[Interface] {
        let known = self.interfaces.len();
        let port = &mut self.ports[shown.port];
        for interface in &shown.interfaces[port.map.len().min(shown.interfaces.len())..] {
            if self.interfaces.len() == MOST_INTERFACES {
                port.map.push(u16::MAX);
                self.failure.get_or_insert_with(|| {
                    let reason = format!(
                        "more than {MOST_INTERFACES} interfaces in one run, and frames of the others count as those \
                         of the last: read fewer files at a time"
                    );
                    PortError::broken(&port.name, reason)
                });
                continue;
            }
            port.map.push(self.interfaces.len() as u16);
            let mut interface = interface.clone();
            if interface.description.is_empty() {
                interface.description.clone_from(&port.name);
            }
            self.interfaces.push(interface);
        }
        &self.interfaces[known..]
    }

    /// Gives a desc of a lane its interface's place in the list of all.
    #[inline]
    pub fn place(&self, shown: &Shown<'_>, desc: &mut Desc) {
        let interface = self.ports[shown.port].map.get(usize::from(desc.interface)).copied();
        desc.interface = interface.unwrap_or_default();
    }

    /// The place of each interface of a lane in the list of all.
    pub fn map(&self, shown: &Shown<'_>) -> &[u16] {
        &self.ports[shown.port].map
    }

    /// The interfaces of all ports.
    pub fn interfaces(&self) -> &[Interface] {
        self.interfaces
    }

    /// The interface that descs of a lane call `number`.
    pub fn interface(&self, shown: &Shown<'_>, number: usize) -> Option<&Interface> {
        self.interfaces.get(usize::from(*self.map(shown).get(number)?))
    }

    /// Whether the lane's backend has applied the filter.
    #[inline]
    pub fn is_filtered(&self, shown: &Shown<'_>) -> bool {
        self.ports[shown.port].filtered
    }
}

/// An empty vector of another lifetime in the memory of this one.
pub(crate) fn recycle<A, B>(mut used: Vec<A>) -> Vec<B> {
    used.clear();
    used.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
