//! A connection to one broker: requests, and their answers in turn.

use super::super::link::{Link, Over};
use super::Access;
use super::wire::{self, Ask, In};
use std::io::{Error, ErrorKind, Result};

/// What we are called.
const CLIENT: &str = "linerate";
/// The most bytes of an answer: metadata of a cluster with thousands of partitions.
const MOST: usize = 8 << 20;

pub(super) struct Broker {
    link: Link,
    /// Of the question asked last, and of the one answered last.
    number: i32,
    answered: i32,
    /// `HOST:PORT`, for people.
    pub name: String,
}

impl Broker {
    /// Connects, and finds out whether it speaks the versions that are needed.
    ///
    /// # Errors
    /// It cannot be reached; `Unsupported`: it does not.
    pub(super) fn open(host: &str, port: u16, over: &Over, access: &Access) -> Result<Self> {
        let name = format!("{host}:{port}");
        let link = Link::open(host, port, over, &access.secure)
            .map_err(|error| Error::new(error.kind(), format!("{name}: {error}")))?;
        let mut broker = Broker { link, number: 0, answered: 0, name };
        let answer = broker.ask(Ask::ApiVersions, &[])?;
        let (error, versions) = wire::versions(&answer).ok_or_else(|| broker.garbage())?;
        for ask in [Ask::Produce, Ask::Metadata, Ask::InitProducerId] {
            let speaks =
                |(key, least, most): &(i16, i16, i16)| *key == ask.key() && (*least..=*most).contains(&ask.version());
            if error != 0 || !versions.iter().any(speaks) {
                let text =
                    format!("{}: speaks no {ask:?} {}: Kafka 1.0 or later is needed", broker.name, ask.version());
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        }
        access.sign_in(&mut broker).map_err(|error| broker.named(error))?;
        Ok(broker)
    }

    /// Whether it may still be there.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.link.is_quiet()
    }

    /// Asks, and waits for the answer; nothing else is asked meanwhile.
    ///
    /// # Errors
    /// There is none, or it is none: the connection is of no more use.
    pub(super) fn ask(&mut self, ask: Ask, body: &[u8]) -> Result<Vec<u8>> {
        self.begin(ask, body)?;
        self.end()
    }

    /// Asks; answers come in turn.
    ///
    /// # Errors
    /// It cannot be sent: the connection is of no more use.
    pub(super) fn begin(&mut self, ask: Ask, body: &[u8]) -> Result<()> {
        self.number = self.number.wrapping_add(1);
        let request = wire::request(ask, self.number, CLIENT, body);
        self.link.send(&request).map_err(|error| self.named(error))
    }

    /// Waits for the answer to the oldest question that has none.
    ///
    /// # Errors
    /// There is none, or it is none: the connection is of no more use.
    pub(super) fn end(&mut self) -> Result<Vec<u8>> {
        self.answered = self.answered.wrapping_add(1);
        self.read(self.answered).map_err(|error| self.named(error))
    }

    fn read(&mut self, number: i32) -> Result<Vec<u8>> {
        let length = In(&self.link.bytes(4)?).i32().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        if !(4..=MOST).contains(&length) {
            return Err(Error::new(ErrorKind::InvalidData, "that is no answer of Kafka (a TLS port, perhaps)"));
        }
        let mut answer = self.link.bytes(length)?;
        if In(&answer).i32() != Some(number) {
            return Err(Error::new(ErrorKind::InvalidData, "an answer to something else"));
        }
        answer.drain(..4);
        Ok(answer)
    }

    fn named(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("{}: {error}", self.name))
    }

    /// What an answer is that cannot be read.
    pub(super) fn garbage(&self) -> Error {
        Error::new(ErrorKind::InvalidData, format!("{}: an answer that cannot be read", self.name))
    }
}
