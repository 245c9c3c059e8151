//! Messages sent to a collector in addition to records: templates, statistics, types of our elements.

use super::{Network, is_unreachable};
use crate::ipfix::Message;
use linerate_burst::Nanos;
use std::io::Result;

/// Refresh of templates over UDP: interval in ns, and number of messages. A restarted collector cannot decode records
/// until then.
const TEMPLATES_EVERY: u64 = 60_000_000_000;
const TEMPLATES_AFTER: u64 = 4096;
/// Interval of statistics in ns.
const STATISTICS_EVERY: u64 = 60_000_000_000;

impl Network {
    pub(super) fn send_templates(&mut self, now: Nanos) -> Result<()> {
        for mut message in self.packer.templates(now) {
            message.number(self.profile.version, self.sequence);
            self.line.send(&message.bytes)?;
            // The last datagram was not rejected.
            self.last = None;
            self.count(&message);
        }
        (self.templates, self.since_templates) = (now, 0);
        self.send_types(now)
    }

    pub(super) fn send_statistics(&mut self, now: Nanos) -> Result<()> {
        self.statistics = now;
        [self.sent.dropped, self.sent.ignored] = (self.observed.0)();
        self.packer.statistics(self.sent, now).map_or(Ok(()), |message| self.send_domainless(message))
    }

    fn send_types(&mut self, now: Nanos) -> Result<()> {
        self.packer.types(now).into_iter().try_for_each(|message| self.send_domainless(message))
    }

    /// Sends a message that belongs to no observation domain.
    fn send_domainless(&mut self, mut message: Message) -> Result<()> {
        message.number(self.profile.version, self.statistics_sequence);
        self.line.send(&message.bytes)?;
        self.last = None;
        self.statistics_sequence = self.statistics_sequence.wrapping_add(message.records);
        (self.sent.messages, self.sent.bytes) = (self.sent.messages + 1, self.sent.bytes + message.bytes.len() as u64);
        Ok(())
    }

    /// Sends periodic messages that are due.
    pub(super) fn repeat(&mut self, now: Nanos) -> Result<()> {
        let is_due = |last: Nanos, every| now.0.saturating_sub(last.0) >= every;
        if self.away.is_some() || self.sent.messages == 0 {
            return Ok(());
        }
        let mut result = Ok(());
        if self.templates.0 == 0 {
            (self.templates, self.statistics) = (now, now);
            result = self.send_types(now);
        }
        if self.is_udp() && (is_due(self.templates, TEMPLATES_EVERY) || self.since_templates >= TEMPLATES_AFTER) {
            result = result.and_then(|()| self.send_templates(now));
        }
        if is_due(self.statistics, STATISTICS_EVERY) {
            result = result.and_then(|()| self.send_statistics(now));
        }
        match result {
            Err(error) if is_unreachable(&error) => {
                self.leave();
                Ok(())
            }
            result => result.map_err(|error| self.with_advice(error)),
        }
    }
}
