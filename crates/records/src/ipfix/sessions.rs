//! What is known of exporters: templates and numbers, of a session and an observation domain each.
//!
//! Room is bounded, whatever is sent, and nobody takes the room of others: who has too much, as a session or as a host, loses what
//! of its own was used longest ago. Where all together have too much, whoever was heard longest ago is forgotten.

use super::elements::Meaning;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// How much is kept: in fields of templates, 8 bytes each. Any template and any domain is as much as 8 of them beside that, a session
/// as 24.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of all together.
    pub fields: usize,
    /// Of a host: an address of IPv4, or 64 bits of one of IPv6.
    pub of_host: usize,
    /// Of a session.
    pub of_session: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { fields: 1 << 21, of_host: 1 << 17, of_session: 1 << 15 }
    }
}

const OF_PART: usize = 8;
const OF_SESSION: usize = 24;

/// Whose messages belong together: templates are of it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Session {
    /// Datagrams of an address and port.
    Datagrams(SocketAddr),
    /// A connection, by a number, and who is at its other end.
    Connection(u64, IpAddr),
    /// A file, by a number.
    File(u64),
}

impl Session {
    /// Who sends.
    pub fn exporter(&self) -> Option<IpAddr> {
        match self {
            Session::Datagrams(from) => Some(from.ip().to_canonical()),
            Session::Connection(_, from) => Some(from.to_canonical()),
            Session::File(_) => None,
        }
    }

    /// Whether nothing of it gets lost, and templates may be withdrawn (RFC 7011, 8.1); over UDP nobody may do that.
    pub(super) fn is_stream(&self) -> bool {
        !matches!(self, Session::Datagrams(_))
    }

    /// Who answers for the room that it takes.
    pub(super) fn host(&self) -> Option<IpAddr> {
        Some(match self.exporter()? {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address => address,
        })
    }
}

/// A field of a template: what its value says, and how long that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub meaning: Meaning,
    pub length: u16,
}

#[derive(Debug)]
pub(super) struct Template {
    pub fields: Vec<Field>,
    /// Whether it is of options: its records are about an exporter, not of flows.
    pub is_options: bool,
    /// The fewest bytes of a record.
    pub least: usize,
}

/// What is known of an observation domain.
#[derive(Debug, Default)]
pub(super) struct Domain {
    /// The sequence number that is to come, of IPFIX and of NetFlow v9.
    pub sequences: [Option<u32>; 2],
    /// When its exporter began, in ms since 1970, if it has said so.
    pub boot: Option<u64>,
}

/// Something of a session.
#[derive(Clone, Copy, Debug)]
enum Part {
    Template(u32, u16),
    Domain(u32),
}

/// What is known of a session; with each part stands when it was used last.
#[derive(Default)]
struct Known {
    used: u64,
    size: usize,
    templates: HashMap<(u32, u16), (u64, Template)>,
    /// The same by domain and kind (true: of options), so that all of a kind are found without a look at others.
    kinds: BTreeSet<(u32, bool, u16)>,
    domains: HashMap<u32, (u64, Domain)>,
    order: BTreeMap<u64, Part>,
}

/// The sessions of a host.
#[derive(Default)]
struct Host {
    size: usize,
    order: BTreeMap<u64, Session>,
}

pub(super) struct Sessions {
    limits: Limits,
    known: HashMap<Session, Known>,
    hosts: HashMap<IpAddr, Host>,
    /// As they were heard.
    order: BTreeMap<u64, Session>,
    size: usize,
    /// Counts what is used.
    clock: u64,
    /// How many there were.
    pub begun: u64,
    /// Templates that gave way.
    pub no_room: u64,
    /// Templates that were looked at to forget those of a kind.
    pub walked: u64,
}

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        let (known, hosts, order) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        Sessions { limits, known, hosts, order, size: 0, clock: 0, begun: 0, no_room: 0, walked: 0 }
    }

    /// A session says something.
    pub(super) fn hear(&mut self, session: Session) {
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

    /// A template, if it is known.
    pub(super) fn template(&mut self, session: Session, domain: u32, id: u16) -> Option<&Template> {
        let known = self.known.get_mut(&session)?;
        let (used, template) = known.templates.get_mut(&(domain, id))?;
        touch(&mut known.order, &mut self.clock, used, Part::Template(domain, id));
        Some(template)
    }

    /// Keeps a template; one that is known already is so for longer. Whether it was not.
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

    /// Forgets a template that is withdrawn.
    pub(super) fn forget(&mut self, session: Session, domain: u32, id: u16) {
        let Some(known) = self.known.get_mut(&session) else { return };
        if let Some((used, template)) = known.templates.remove(&(domain, id)) {
            known.order.remove(&used);
            known.kinds.remove(&(domain, template.is_options, id));
            self.shrink(session, OF_PART + template.fields.len());
        }
    }

    /// Forgets all templates of a kind in a domain.
    pub(super) fn forget_all(&mut self, session: Session, domain: u32, is_options: bool) {
        let Some(known) = self.known.get(&session) else { return };
        let of_kind = known.kinds.range((domain, is_options, 0)..=(domain, is_options, u16::MAX));
        let ids: Vec<u16> = of_kind.inspect(|_| self.walked += 1).map(|(_, _, id)| *id).collect();
        ids.into_iter().for_each(|id| self.forget(session, domain, id));
    }

    /// What is known of a domain of a session that was heard.
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

    /// A session is over.
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

    /// A session takes so much more; there may be too much then.
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

    /// Forgets the session that was heard longest ago; of the one that speaks what it used longest ago. False: it has nothing.
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

/// Something is used.
fn touch(order: &mut BTreeMap<u64, Part>, clock: &mut u64, used: &mut u64, part: Part) {
    // What was used last may be so again without a number of its own.
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

    /// Room is what the books say, and no more than there may be.
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
    fn a_session_and_a_host_push_out_their_own_and_what_is_used_stays() {
        let mut sessions = Sessions::new(LIMITS);
        sessions.hear(from(1, 1));
        sessions.keep(from(1, 1), 0, 256, template(10));
        // Many templates of one session, of which one is used again and again, and another sent again.
        let noisy = from(2, 1);
        sessions.hear(noisy);
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
            sessions.hear(from(2, port));
            sessions.keep(from(2, port), 0, 256, template(10));
            check(&sessions);
        }
        assert!(sessions.template(from(1, 1), 0, 256).is_some(), "another host has its own");
        assert!(sessions.template(from(2, 4999), 0, 256).is_some() && sessions.template(noisy, 0, 300).is_none());
    }

    #[test]
    fn of_too_many_hosts_those_that_speak_are_known() {
        let mut sessions = Sessions::new(LIMITS);
        let steady = from(1, 1);
        sessions.hear(steady);
        sessions.keep(steady, 0, 256, template(10));
        for number in 0..70_000_u32 {
            let other = Session::Datagrams(([10, 1, (number >> 8) as u8, number as u8], (number >> 16) as u16).into());
            sessions.hear(other);
            sessions.domain(other, number).unwrap().boot = Some(1);
            if number % 16 == 0 {
                sessions.hear(steady);
                assert!(sessions.template(steady, 0, 256).is_some(), "{number}");
            }
        }
        check(&sessions);
        sessions.end(steady);
        assert!(sessions.template(steady, 0, 256).is_none());
        check(&sessions);
    }
}
