//! Messages of the Kafka protocol for a producer: ApiVersions 0, Metadata 4, InitProducerId 1, Produce 7 (none of them
//! with flexible fields), and record batches version 2.
//!
//! Layouts: <https://kafka.apache.org/protocol.html>, <https://kafka.apache.org/documentation/#recordbatch>. All numbers are big endian.

use super::super::crc32c;
use super::super::journal::Assigned;

/// Kind of request, with its API key and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Produce,
    Metadata,
    ApiVersions,
    InitProducerId,
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "built without"))]
    SaslHandshake,
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "built without"))]
    SaslAuthenticate,
}

impl RequestKind {
    pub(super) fn key(self) -> i16 {
        match self {
            RequestKind::Produce => 0,
            RequestKind::Metadata => 3,
            RequestKind::ApiVersions => 18,
            RequestKind::InitProducerId => 22,
            RequestKind::SaslHandshake => 17,
            RequestKind::SaslAuthenticate => 36,
        }
    }

    pub(super) fn version(self) -> i16 {
        match self {
            RequestKind::Produce => 7,
            RequestKind::Metadata => 4,
            RequestKind::ApiVersions => 0,
            RequestKind::InitProducerId | RequestKind::SaslHandshake => 1,
            RequestKind::SaslAuthenticate => 0,
        }
    }
}

/// Encoder of a message.
#[derive(Default)]
pub(super) struct MessageEncoder(pub Vec<u8>);

impl MessageEncoder {
    pub(super) fn i8(&mut self, value: i8) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn i16(&mut self, value: i16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a short text.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.i16(text.len() as i16).bytes(text.as_bytes())
    }

    /// Appends a zigzag varint.
    pub(super) fn var(&mut self, value: i64) -> &mut Self {
        let mut rest = (value << 1 ^ value >> 63) as u64;
        while rest > 0x7f {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
        self
    }

    /// Appends bytes with their length as a varint.
    pub(super) fn var_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.var(bytes.len() as i64).bytes(bytes)
    }
}

/// Returns a request with its length prefix.
pub(super) fn request(ask: RequestKind, number: i32, client: &str, body: &[u8]) -> Vec<u8> {
    let mut head = MessageEncoder::default();
    head.i16(ask.key()).i16(ask.version()).i32(number).text(client);
    let mut all = MessageEncoder::default();
    all.i32((head.0.len() + body.len()) as i32).bytes(&head.0).bytes(body);
    all.0
}

/// Returns the body of a request for the metadata of a topic, without creating it.
pub(super) fn metadata(topic: &str) -> Vec<u8> {
    let mut body = MessageEncoder::default();
    body.i32(1).text(topic).i8(0);
    body.0
}

/// Returns the body of a request for a producer id, without transactions.
pub(super) fn init_producer() -> Vec<u8> {
    let mut body = MessageEncoder::default();
    body.i16(-1).i32(60_000);
    body.0
}

/// Returns the body of a SASL handshake.
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "built without"))]
pub(super) fn handshake(mechanism: &str) -> Vec<u8> {
    let mut body = MessageEncoder::default();
    body.text(mechanism);
    body.0
}

/// Returns the body with an authentication message.
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "built without"))]
pub(super) fn sign(message: &[u8]) -> Vec<u8> {
    let mut body = MessageEncoder::default();
    body.i32(message.len() as i32).bytes(message);
    body.0
}

/// Returns the body of a request to append a batch, acknowledged by all in-sync replicas.
pub(super) fn produce(topic: &str, partition: i32, batch: &[u8]) -> Vec<u8> {
    let mut body = MessageEncoder::default();
    body.i16(-1).i16(-1).i32(20_000);
    body.i32(1).text(topic).i32(1).i32(partition).i32(batch.len() as i32).bytes(batch);
    body.0
}

/// Returns a batch of messages of this producer, all with the same headers.
pub(super) fn batch(
    assigned: &Assigned,
    time: i64,
    headers: &[(&str, String)],
    messages: &[(Option<Vec<u8>>, &[u8])],
) -> Vec<u8> {
    let mut records = MessageEncoder::default();
    for (offset, (key, value)) in messages.iter().enumerate() {
        let mut record = MessageEncoder::default();
        record.i8(0).var(0).var(offset as i64);
        match key {
            Some(key) => record.var_bytes(key),
            None => record.var(-1),
        };
        record.var_bytes(value).var(headers.len() as i64);
        for (name, value) in headers {
            record.var_bytes(name.as_bytes()).var_bytes(value.as_bytes());
        }
        records.var_bytes(&record.0);
    }
    let mut checked = MessageEncoder::default();
    checked.i16(0).i32(messages.len() as i32 - 1).i64(time).i64(time);
    checked.i64(assigned.producer).i16(assigned.epoch).i32(assigned.sequence);
    checked.i32(messages.len() as i32).bytes(&records.0);
    let mut batch = MessageEncoder::default();
    // After the length: leader epoch, magic, checksum.
    batch.i64(0).i32((4 + 1 + 4 + checked.0.len()) as i32).i32(-1).i8(2);
    batch.i32(crc32c(&checked.0) as i32).bytes(&checked.0);
    batch.0
}

/// Decoder of a response: checks all lengths against the remaining bytes.
pub(super) struct ResponseDecoder<'a>(pub &'a [u8]);

impl<'a> ResponseDecoder<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let count = usize::try_from(self.i16()?).ok()?;
        self.bytes(count).map(|text| String::from_utf8_lossy(text).into_owned())
    }

    fn maybe_text(&mut self) -> Option<Option<String>> {
        let count = self.i16()?;
        match usize::try_from(count) {
            Ok(count) => Some(Some(String::from_utf8_lossy(self.bytes(count)?).into_owned())),
            Err(_) => Some(None),
        }
    }

    /// Reads a list, of at most as many elements as there are bytes.
    fn each<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.i32()?.max(0);
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(read(self)?);
        }
        Some(all)
    }
}

/// API key, its oldest version and its newest.
pub(super) type VersionRange = (i16, i16, i16);

/// Parses an error code, and the versions of each API that a broker supports.
pub(super) fn versions(answer: &[u8]) -> Option<(i16, Vec<VersionRange>)> {
    let mut answer = ResponseDecoder(answer);
    let error = answer.i16()?;
    let all = answer.each(|of| Some((of.i16()?, of.i16()?, of.i16()?)))?;
    Some((error, all))
}

/// Parses an error code, and the supported SASL mechanisms.
pub(super) fn mechanisms(answer: &[u8]) -> Option<(i16, Vec<String>)> {
    let mut answer = ResponseDecoder(answer);
    Some((answer.i16()?, answer.each(ResponseDecoder::text)?))
}

/// Parses an error code, the broker's error message, and its authentication message.
pub(super) fn signed(answer: &[u8]) -> Option<(i16, String, Vec<u8>)> {
    let mut answer = ResponseDecoder(answer);
    let (error, why) = (answer.i16()?, answer.maybe_text()?.unwrap_or_default());
    let count = usize::try_from(answer.i32()?).unwrap_or_default();
    Some((error, why, answer.bytes(count)?.to_vec()))
}

/// Metadata of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Topic {
    pub error: i16,
    /// Brokers with their node ids.
    pub brokers: Vec<(i32, String, u16)>,
    /// Partitions in order, each with the node id of its leader; -1: none.
    pub leaders: Vec<(i32, i32)>,
}

pub(super) fn topic(answer: &[u8], name: &str) -> Option<Topic> {
    let mut answer = ResponseDecoder(answer);
    answer.i32()?;
    let brokers = answer.each(|of| {
        let (node, host, port) = (of.i32()?, of.text()?, of.i32()?);
        of.maybe_text()?;
        Some((node, host, u16::try_from(port).ok()?))
    })?;
    answer.maybe_text()?;
    answer.i32()?;
    let topics = answer.each(|of| {
        let (error, name) = (of.i16()?, of.text()?);
        of.i8()?;
        let mut leaders = of.each(|of| {
            of.i16()?;
            let (partition, leader) = (of.i32()?, of.i32()?);
            of.each(ResponseDecoder::i32)?;
            of.each(ResponseDecoder::i32)?;
            Some((partition, leader))
        })?;
        leaders.sort_unstable();
        Some((name, error, leaders))
    })?;
    let (_, error, leaders) = topics.into_iter().find(|(own, ..)| own == name)?;
    Some(Topic { error, brokers, leaders })
}

/// Parses error code, producer id and epoch.
pub(super) fn producer(answer: &[u8]) -> Option<(i16, i64, i16)> {
    let mut answer = ResponseDecoder(answer);
    answer.i32()?;
    Some((answer.i16()?, answer.i64()?, answer.i16()?))
}

/// Parses the error code for the batch of a partition.
pub(super) fn produced(answer: &[u8], partition: i32) -> Option<i16> {
    let all = ResponseDecoder(answer).each(|of| {
        of.text()?;
        of.each(|of| {
            let (partition, error) = (of.i32()?, of.i16()?);
            of.bytes(24)?;
            Some((partition, error))
        })
    })?;
    all.into_iter().flatten().find(|(own, _)| *own == partition).map(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_variable_length_are_zigzag() {
        for (value, bytes) in [(0, &[0][..]), (-1, &[1]), (1, &[2]), (-64, &[127]), (64, &[128, 1]), (300, &[0xd8, 4])]
        {
            let mut out = MessageEncoder::default();
            out.var(value);
            assert_eq!(out.0, bytes, "{value}");
        }
    }

    /// Matches the output of Kafka's Java client, except for the producer id.
    #[test]
    fn batches_match_the_java_client() {
        let assigned =
            Assigned { partition: 3, producer: 0x0102_0304_0506_0708, epoch: 9, sequence: 10, count: 1, at: 0 };
        let batch = batch(&assigned, 1000, &[("h", "v".into())], &[(Some(b"k".to_vec()), b"abc")]);
        assert_eq!(batch[..8], [0; 8]);
        assert_eq!(batch[8..12], (batch.len() as i32 - 12).to_be_bytes());
        assert_eq!((&batch[12..16], batch[16]), (&[0xff; 4][..], 2));
        assert_eq!(batch[17..21], crc32c(&batch[21..]).to_be_bytes());
        let fixed = [&[0, 0, 0, 0, 0, 0][..], &1000_i64.to_be_bytes(), &1000_i64.to_be_bytes()].concat();
        assert_eq!(batch[21..43], fixed);
        assert_eq!(batch[43..61], [1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 0, 0, 0, 10, 0, 0, 0, 1]);
        assert_eq!(batch[61..], [28, 0, 0, 0, 2, b'k', 6, b'a', b'b', b'c', 2, 2, b'h', 2, b'v'][..]);
    }

    proptest! {
        #[test]
        fn hostile_answers_are_rejected(bytes: Vec<u8>) {
            super::super::read_anything(&bytes);
        }
    }
}
