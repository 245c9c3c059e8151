//! Connection to one broker: requests and responses in order.

use super::super::link::{Link, RunDeadline};
use super::Access;
use super::wire::{self, RequestKind, ResponseDecoder};
use std::io::{Error, ErrorKind, Result};

/// Client id.
const CLIENT: &str = "linerate";
/// Maximum size of a response: metadata of a cluster with thousands of partitions.
const MOST: usize = 8 << 20;

pub(super) struct Broker {
    link: Link,
    /// Correlation ids of the last request, and of the last response.
    number: i32,
    answered: i32,
    /// `HOST:PORT`, for messages.
    pub name: String,
}

impl Broker {
    /// Connects and checks that the broker supports the required versions.
    ///
    /// # Errors
    /// Connection errors; `Unsupported`: it does not support them.
    pub(super) fn open(host: &str, port: u16, over: &RunDeadline, access: &Access) -> Result<Self> {
        let name = format!("{host}:{port}");
        let link = Link::open(host, port, over, &access.secure)
            .map_err(|error| Error::new(error.kind(), format!("{name}: {error}")))?;
        let mut broker = Broker { link, number: 0, answered: 0, name };
        let answer = broker.ask(RequestKind::ApiVersions, &[])?;
        let (error, versions) = wire::versions(&answer).ok_or_else(|| broker.garbage())?;
        for ask in [RequestKind::Produce, RequestKind::Metadata, RequestKind::InitProducerId] {
            let speaks =
                |(key, least, most): &(i16, i16, i16)| *key == ask.key() && (*least..=*most).contains(&ask.version());
            if error != 0 || !versions.iter().any(speaks) {
                let text = format!(
                    "{}: {ask:?} version {} not supported; Kafka 1.0 or later is required",
                    broker.name,
                    ask.version()
                );
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        }
        access.authenticate(&mut broker).map_err(|error| broker.named(error))?;
        Ok(broker)
    }

    /// Returns whether the connection is open and idle.
    pub(super) fn is_idle(&mut self) -> bool {
        self.link.is_idle()
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// No response, or an invalid one: the connection is unusable.
    pub(super) fn ask(&mut self, ask: RequestKind, body: &[u8]) -> Result<Vec<u8>> {
        self.begin(ask, body)?;
        self.end()
    }

    /// Sends a request; responses arrive in order.
    ///
    /// # Errors
    /// Sending failed: the connection is unusable.
    pub(super) fn begin(&mut self, ask: RequestKind, body: &[u8]) -> Result<()> {
        self.number = self.number.wrapping_add(1);
        let request = wire::request(ask, self.number, CLIENT, body);
        self.link.send(&request).map_err(|error| self.named(error))
    }

    /// Waits for the response to the oldest pending request.
    ///
    /// # Errors
    /// No response, or an invalid one: the connection is unusable.
    pub(super) fn end(&mut self) -> Result<Vec<u8>> {
        self.answered = self.answered.wrapping_add(1);
        self.read(self.answered).map_err(|error| self.named(error))
    }

    fn read(&mut self, number: i32) -> Result<Vec<u8>> {
        let length = ResponseDecoder(&self.link.bytes(4)?)
            .i32()
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or_default();
        if !(4..=MOST).contains(&length) {
            return Err(Error::new(ErrorKind::InvalidData, "invalid Kafka response; this may be a TLS port"));
        }
        let mut answer = self.link.bytes(length)?;
        if ResponseDecoder(&answer).i32() != Some(number) {
            return Err(Error::new(ErrorKind::InvalidData, "response to another request"));
        }
        answer.drain(..4);
        Ok(answer)
    }

    fn named(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("{}: {error}", self.name))
    }

    /// Returns the error for an unreadable response.
    pub(super) fn garbage(&self) -> Error {
        Error::new(ErrorKind::InvalidData, format!("{}: unreadable response", self.name))
    }
}
