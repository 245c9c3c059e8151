//! Appending a batch to a partition.

use super::request::{In, crc32c};
use super::{Message, State};

/// Appends a batch as a broker does and returns the error code of the answer.
pub(crate) fn append(state: &mut State, partition: usize, batch: &[u8]) -> i16 {
    let all = batch;
    let mut batch = In(batch);
    batch.number(8);
    let length = batch.number(4) as usize;
    batch.number(4);
    let (magic, crc) = (batch.number(1), batch.number(4) as u32);
    if length + 12 != all.len() || magic != 2 || crc != crc32c(batch.0) {
        state.problems.push("a damaged batch".to_owned());
        return 2;
    }
    let (attributes, last) = (batch.number(2), batch.number(4));
    batch.bytes(16);
    let (producer, epoch, sequence) = (batch.number(8), batch.number(2) as i16, batch.number(4) as i32);
    let count = batch.number(4) as i32;
    if attributes != 0 || last + 1 != i64::from(count) || producer < 0 || sequence < 0 {
        state
            .problems
            .push(format!("attributes {attributes}, {count} records, producer {producer}, sequence {sequence}"));
    }
    let mut messages = Vec::new();
    for offset in 0..count {
        let length = batch.var() as usize;
        let mut record = In(batch.bytes(length));
        record.bytes(1);
        record.var();
        assert_eq!(record.var(), i64::from(offset));
        let (key, value) = (record.var_bytes().map(<[u8]>::to_vec), record.var_bytes().unwrap().to_vec());
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        let headers = (0..record.var()).map(|_| (text(record.var_bytes()), text(record.var_bytes()))).collect();
        assert!(record.0.is_empty());
        messages.push(Message { key, value, headers });
    }
    assert!(batch.0.is_empty());
    let partition = &mut state.partitions[partition];
    if let Some((known, batches)) = partition.producers.get(&producer) {
        if epoch < *known {
            return 47;
        }
        if batches.contains(&(sequence, count)) {
            return 0;
        }
        let next =
            batches.back().map_or(0, |(first, count)| (i64::from(*first) + i64::from(*count)) & i64::from(i32::MAX));
        if epoch == *known && i64::from(sequence) != next {
            return 45;
        }
    }
    let (known, batches) = partition.producers.entry(producer).or_default();
    *known = epoch;
    batches.push_back((sequence, count));
    if batches.len() > 5 {
        batches.pop_front();
    }
    partition.messages.extend(messages);
    0
}
