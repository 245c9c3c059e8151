//! State of exporters: templates and sequence numbers, per session and observation domain.
//!
//! Memory is bounded, and exporters cannot use up each other's share: a session or host above its limit loses its own
//! least recently used entries. If all together exceed the limit, the least recently heard session is removed.

use super::elements::Meaning;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Memory limits, in template fields of 8 bytes. Each template and each domain counts as 8 additional fields, each
/// session as 24.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit of all sessions together.
    pub fields: usize,
    /// Limit per host: an IPv4 address, or a /64 prefix of IPv6.
    pub of_host: usize,
    /// Limit per session.
    pub of_session: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { fields: 1 << 21, of_host: 1 << 17, of_session: 1 << 15 }
    }
}

const OF_PART: usize = 8;
const OF_SESSION: usize = 24;

/// Transport session: scope of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Session {
    /// Datagrams of an address and port.
    Datagrams(SocketAddr),
    /// Connection, with a number and the address of the peer.
    Connection(u64, IpAddr),
    /// File, with a number.
    File(u64),
}

impl Session {
    /// Returns the address of the exporter.
    pub fn exporter(&self) -> Option<IpAddr> {
        match self {
            Session::Datagrams(from) => Some(from.ip().to_canonical()),
            Session::Connection(_, from) => Some(from.to_canonical()),
            Session::File(_) => None,
        }
    }

    /// Returns whether the transport is reliable, so that templates may be withdrawn (RFC 7011, 8.1); UDP does not
    /// allow that.
    pub(super) fn is_stream(&self) -> bool {
        !matches!(self, Session::Datagrams(_))
    }

    /// Returns the host whose memory limit applies.
    pub(super) fn host(&self) -> Option<IpAddr> {
        Some(match self.exporter()? {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address => address,
        })
    }
}

/// Field of a template: its meaning and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub meaning: Meaning,
    pub length: u16,
}

#[derive(Debug)]
pub(super) struct Template {
    pub fields: Vec<Field>,
    /// True for options templates: their records are about the exporter, not about flows.
    pub is_options: bool,
    /// Minimum bytes of a record.
    pub least: usize,
}

/// State of an observation domain.
#[derive(Debug, Default)]
pub(super) struct Domain {
    /// Next expected sequence number, of IPFIX and of NetFlow v9.
    pub sequences: [Option<u32>; 2],
    /// Start of the exporter in ms since 1970, if announced.
    pub boot: Option<u64>,
}

/// Entry of a session.
#[derive(Clone, Copy, Debug)]
enum Part {
    Template(u32, u16),
    Domain(u32),
}

/// Entries of a session, each with its time of last use.
#[derive(Default)]
struct SessionEntries {
    used: u64,
    size: usize,
    templates: HashMap<(u32, u16), (u64, Template)>,
    /// Template ids by domain and kind (true: options), to find all of a kind without a full scan.
    kinds: BTreeSet<(u32, bool, u16)>,
    domains: HashMap<u32, (u64, Domain)>,
    order: BTreeMap<u64, Part>,
}

#[derive(Default)]
struct Host {
    size: usize,
    order: BTreeMap<u64, Session>,
}

pub(super) struct Sessions {
    limits: Limits,
    known: HashMap<Session, SessionEntries>,
    hosts: HashMap<IpAddr, Host>,
    /// Sessions by the time of their last message.
    order: BTreeMap<u64, Session>,
    size: usize,
    /// Logical clock of uses.
    clock: u64,
    /// Number of sessions started.
    pub begun: u64,
    /// Number of templates evicted.
    pub no_room: u64,
    /// Number of templates visited by withdrawals of a whole kind.
    pub walked: u64,
}

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        let (known, hosts, order) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        Sessions { limits, known, hosts, order, size: 0, clock: 0, begun: 0, no_room: 0, walked: 0 }
    }

    /// Notes a message of a session.
    pub(super) fn record_message(&mut self, session: Session) {
        if self.order.last_key_value().is_some_and(|(_, last)| *last == session) {
            return;
        }
        self.clock += 1;
        let used = self.clock;
        let is_new = !self.known.contains_key(&session);
        let known = self.known.entry(session).or_default();
        self.order.remove(&known.used);
        self.order.insert(used, session);
        if let Some(host) = session.host() {
            let host = self.hosts.entry(host).or_default();
            host.order.remove(&known.used);
            host.order.insert(used, session);
        }
        known.used = used;
        if is_new {
            self.begun += 1;
            self.grow(session, OF_SESSION);
        }
    }

    /// Returns a template, if known.
    pub(super) fn template(&mut self, session: Session, domain: u32, id: u16) -> Option<&Template> {
        let known = self.known.get_mut(&session)?;
        let (used, template) = known.templates.get_mut(&(domain, id))?;
        touch(&mut known.order, &mut self.clock, used, Part::Template(domain, id));
        Some(template)
    }

    /// Stores or refreshes a template; returns whether it is new.
    pub(super) fn keep(&mut self, session: Session, domain: u32, id: u16, template: Template) -> bool {
        let same = |known: &Template| known.fields == template.fields && known.is_options == template.is_options;
        if self.template(session, domain, id).is_some_and(same) {
            return false;
        }
        self.forget(session, domain, id);
        let (Some(known), size) = (self.known.get_mut(&session), OF_PART + template.fields.len()) else { return false };
        self.clock += 1;
        known.kinds.insert((domain, template.is_options, id));
        known.templates.insert((domain, id), (self.clock, template));
        known.order.insert(self.clock, Part::Template(domain, id));
        self.grow(session, size);
        true
    }

    /// Removes a withdrawn template.
    pub(super) fn forget(&mut self, session: Session, domain: u32, id: u16) {
        let Some(known) = self.known.get_mut(&session) else { return };
        if let Some((used, template)) = known.templates.remove(&(domain, id)) {
            known.order.remove(&used);
            known.kinds.remove(&(domain, template.is_options, id));
            self.shrink(session, OF_PART + template.fields.len());
        }
    }

    /// Removes all templates of a kind in a domain.
    pub(super) fn remove_templates(&mut self, session: Session, domain: u32, is_options: bool) {
        let Some(known) = self.known.get(&session) else { return };
        let of_kind = known.kinds.range((domain, is_options, 0)..=(domain, is_options, u16::MAX));
        let ids: Vec<u16> = of_kind.inspect(|_| self.walked += 1).map(|(_, _, id)| *id).collect();
        ids.into_iter().for_each(|id| self.forget(session, domain, id));
    }

    /// Returns the state of a domain of a known session.
    pub(super) fn domain(&mut self, session: Session, domain: u32) -> Option<&mut Domain> {
        if self.known.get(&session).is_some_and(|known| !known.domains.contains_key(&domain)) {
            self.clock += 1;
            let known = self.known.get_mut(&session)?;
            known.domains.insert(domain, (self.clock, Domain::default()));
            known.order.insert(self.clock, Part::Domain(domain));
            self.grow(session, OF_PART);
        }
        let known = self.known.get_mut(&session)?;
        let (used, found) = known.domains.get_mut(&domain)?;
        touch(&mut known.order, &mut self.clock, used, Part::Domain(domain));
        Some(found)
    }

    pub(super) fn end(&mut self, session: Session) {
        let Some(known) = self.known.remove(&session) else { return };
        self.order.remove(&known.used);
        self.size -= known.size;
        if let Some(address) = session.host()
            && let Some(host) = self.hosts.get_mut(&address)
        {
            host.order.remove(&known.used);
            host.size -= known.size;
            if host.order.is_empty() {
                self.hosts.remove(&address);
            }
        }
    }

    /// Adds to the size of a session, and enforces the limits.
    fn grow(&mut self, session: Session, size: usize) {
        let host = session.host();
        self.size += size;
        if let Some(known) = self.known.get_mut(&session) {
            known.size += size;
        }
        if let Some(host) = host.and_then(|host| self.hosts.get_mut(&host)) {
            host.size += size;
        }
        while self.known.get(&session).is_some_and(|known| known.size > self.limits.of_session)
            && self.drop_oldest(session)
        {}
        while let Some(host) = host.and_then(|host| self.hosts.get(&host)).filter(|it| it.size > self.limits.of_host)
            && let Some((_, oldest)) = host.order.first_key_value()
            && self.make_room(*oldest, session)
        {}
        while self.size > self.limits.fields
            && let Some((_, oldest)) = self.order.first_key_value()
            && self.make_room(*oldest, session)
        {}
    }

    fn shrink(&mut self, session: Session, size: usize) {
        self.size -= size;
        if let Some(known) = self.known.get_mut(&session) {
            known.size -= size;
        }
        if let Some(host) = session.host().and_then(|host| self.hosts.get_mut(&host)) {
            host.size -= size;
        }
    }

    /// Removes the least recently heard session, or the oldest entries if it is the current one. False: it has none.
    fn make_room(&mut self, oldest: Session, speaks: Session) -> bool {
        if oldest == speaks {
            return self.drop_oldest(speaks);
        }
        self.no_room += self.known.get(&oldest).map_or(0, |known| known.templates.len() as u64);
        self.end(oldest);
        true
    }

    fn drop_oldest(&mut self, session: Session) -> bool {
        let oldest = self.known.get_mut(&session).and_then(|known| Some((known.order.pop_first()?.1, known)));
        match oldest {
            Some((Part::Template(domain, id), _)) => {
                self.forget(session, domain, id);
                self.no_room += 1;
            }
            Some((Part::Domain(domain), known)) => {
                known.domains.remove(&domain);
                self.shrink(session, OF_PART);
            }
            None => return false,
        }
        true
    }
}

/// Marks an entry as used.
fn touch(order: &mut BTreeMap<u64, Part>, clock: &mut u64, used: &mut u64, part: Part) {
    // The most recently used entry needs no new time.
    if order.last_key_value().is_some_and(|(last, _)| last == used) {
        return;
    }
    *clock += 1;
    order.remove(used);
    order.insert(*clock, part);
    *used = *clock;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { fields: 2000, of_host: 1000, of_session: 500 };

    fn from(host: u8, port: u16) -> Session {
        Session::Datagrams(([10, 0, 0, host], port).into())
    }

    fn template(fields: usize) -> Template {
        let fields = vec![Field { meaning: Meaning::Unknown, length: 4 }; fields];
        Template { fields, is_options: false, least: 4 }
    }

    /// Checks that the sizes are consistent and within the limits.
    fn check(sessions: &Sessions) {
        let sizes = sessions.known.values().map(|known| {
            let templates: usize = known.templates.values().map(|(_, one)| OF_PART + one.fields.len()).sum();
            assert_eq!(known.size, OF_SESSION + templates + known.domains.len() * OF_PART);
            assert_eq!(known.order.len(), known.templates.len() + known.domains.len());
            assert_eq!(known.kinds.len(), known.templates.len());
            known.size
        });
        assert_eq!(sizes.sum::<usize>(), sessions.size);
        assert!(sessions.size <= LIMITS.fields && sessions.order.len() == sessions.known.len());
        assert!(sessions.hosts.values().all(|host| host.size <= LIMITS.of_host && !host.order.is_empty()));
        assert_eq!(sessions.hosts.values().map(|host| host.order.len()).sum::<usize>(), sessions.known.len());
    }

    #[test]
    fn sessions_and_hosts_evict_their_own_unused_entries() {
        let mut sessions = Sessions::new(LIMITS);
        sessions.record_message(from(1, 1));
        sessions.keep(from(1, 1), 0, 256, template(10));
        // Many templates of one session: one is used repeatedly, another is refreshed.
        let noisy = from(2, 1);
        sessions.record_message(noisy);
        [300, 301].into_iter().for_each(|id| assert!(sessions.keep(noisy, 0, id, template(10))));
        for id in 400..2000 {
            sessions.keep(noisy, 7, id, template(20));
            assert!(sessions.template(noisy, 0, 300).is_some());
            sessions.keep(noisy, 0, 301, template(10));
            check(&sessions);
        }
        assert!(sessions.template(noisy, 0, 301).is_some() && sessions.template(noisy, 7, 400).is_none());
        assert!(sessions.no_room > 1500);
        // Many sessions of one host.
        for port in 2..5000 {
            sessions.record_message(from(2, port));
            sessions.keep(from(2, port), 0, 256, template(10));
            check(&sessions);
        }
        assert!(sessions.template(from(1, 1), 0, 256).is_some(), "another host is unaffected");
        assert!(sessions.template(from(2, 4999), 0, 256).is_some() && sessions.template(noisy, 0, 300).is_none());
    }

    #[test]
    fn the_most_recent_hosts_are_kept() {
        let mut sessions = Sessions::new(LIMITS);
        let steady = from(1, 1);
        sessions.record_message(steady);
        sessions.keep(steady, 0, 256, template(10));
        for number in 0..70_000_u32 {
            let other = Session::Datagrams(([10, 1, (number >> 8) as u8, number as u8], (number >> 16) as u16).into());
            sessions.record_message(other);
            sessions.domain(other, number).unwrap().boot = Some(1);
            if number % 16 == 0 {
                sessions.record_message(steady);
                assert!(sessions.template(steady, 0, 256).is_some(), "{number}");
            }
        }
        check(&sessions);
        sessions.end(steady);
        assert!(sessions.template(steady, 0, 256).is_none());
        check(&sessions);
    }
}
