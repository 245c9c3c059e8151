//! A blocked Bloom filter: a value has three bits, all in one cache line.

/// Bytes per block.
pub(crate) const BLOCK: usize = 64;
const WORDS: usize = BLOCK / 8;

/// Prefix that makes an IPv4 address an impossible IPv6 address, for hashing.
const IPV4: u64 = 0x0046_0046;

/// Returns the hash of an IPv4 address.
#[inline]
pub(crate) fn of_ipv4(address: u32) -> u64 {
    mix(IPV4 << 32 | u64::from(address))
}

/// Returns the hash of an IPv6 address.
#[inline]
pub(crate) fn of_ipv6(address: u128) -> u64 {
    mix(mix((address >> 64) as u64) ^ address as u64)
}

#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Returns the block of a hash, among `blocks`, and the bits in it.
#[inline]
fn place(hash: u64, blocks: usize) -> (usize, [u32; 3]) {
    let block = ((hash >> 32) * blocks as u64) >> 32;
    let low = hash as u32;
    (block as usize, [low & 511, (low >> 9) & 511, (low >> 18) & 511])
}

/// Inserts a value; `words` are those of the whole filter, blocks of 8.
#[inline]
pub(crate) fn insert(words: &mut [u64], hash: u64) {
    let (block, bits) = place(hash, words.len() / WORDS);
    let block = &mut words[block * WORDS..][..WORDS];
    for bit in bits {
        block[bit as usize / 64 % WORDS] |= 1 << (bit % 64);
    }
}

/// Returns whether a value may be in a filter of these bytes, which are whole blocks; an empty one has no values.
pub(crate) fn may_hold(bytes: &[u8], hash: u64) -> bool {
    let blocks = bytes.len() / BLOCK;
    if blocks == 0 {
        return false;
    }
    let (block, bits) = place(hash, blocks);
    let block = &bytes[block * BLOCK..][..BLOCK];
    // Words are little-endian, so bit n is bit n % 8 of byte n / 8.
    bits.iter().all(|bit| block[*bit as usize / 8 % BLOCK] & (1 << (bit % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_values_are_found_with_few_false_positives() {
        let mut words = vec![0; crate::layout::ADDRESS_BYTES / 8];
        (0..5000u32).for_each(|n| insert(&mut words, of_ipv4(n * 7919)));
        (0..1000u128).for_each(|n| insert(&mut words, of_ipv6(n << 70)));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!((0..5000).all(|n| may_hold(&bytes, of_ipv4(n * 7919))));
        assert!((0..1000).all(|n| may_hold(&bytes, of_ipv6(n << 70))));
        let wrong = (0..100_000u32).filter(|n| may_hold(&bytes, of_ipv4(0xc000_0000 + n))).count();
        assert!(wrong < 2000, "{wrong} false positives of 100,000");
        assert!(!may_hold(&[], 7));
    }
}
