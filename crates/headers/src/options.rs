//! Lists of kind, length, data at the end of IPv4 (RFC 791 section 3.1) and TCP (RFC 9293 section 3.1) headers.

/// Maximum bytes of options of an IPv4 or TCP header.
pub const MAX: usize = 40;

/// Kind of the byte that ends a list early.
const END: u8 = 0;
/// Kind of the byte that pads between options.
const NO_OPERATION: u8 = 1;

/// The options of one header, as bytes: a multiple of 4 of them, at most [`MAX`].
#[derive(Clone, Copy)]
pub struct Options {
    bytes: [u8; MAX],
    length: u8,
}

impl Options {
    /// No options.
    pub const NONE: Options = Options { bytes: [0; MAX], length: 0 };

    /// Creates options from bytes, padded with end-of-list to a multiple of 4; `None` above [`MAX`].
    ///
    /// ```
    /// use linerate_headers::options::Options;
    /// assert_eq!(Options::new(&[3, 3, 7]).unwrap().as_bytes(), [3, 3, 7, 0]);
    /// assert!(Options::new(&[1; 41]).is_none());
    /// ```
    pub fn new(bytes: &[u8]) -> Option<Options> {
        let mut options = Options::NONE;
        options.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        options.length = bytes.len().next_multiple_of(4) as u8;
        Some(options)
    }

    /// Returns the bytes, padding included.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or(&self.bytes)
    }

    /// Returns the options, in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter::over(self.as_bytes())
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::NONE
    }
}

impl PartialEq for Options {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Options {}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_bytes()).finish()
    }
}

/// Error: the length of an option is below 2 or exceeds the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// Iterates over options: kind and data of each. Padding is skipped, end-of-list ends it, a bad length is the last
/// item.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iter<'a> {
    /// Iterates over the bytes of all options of a header.
    #[inline]
    pub fn over(bytes: &'a [u8]) -> Self {
        Iter { rest: bytes }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<(u8, &'a [u8]), BadLength>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [END, ..] => {
                    self.rest = &[];
                    return None;
                }
                [NO_OPERATION, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] if length >= 2 && usize::from(length) <= self.rest.len() => {
                    let (option, rest) = self.rest.split_at(length.into());
                    self.rest = rest;
                    return Some(Ok((kind, &option[2..])));
                }
                _ => {
                    self.rest = &[];
                    return Some(Err(BadLength));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(bytes: &[u8]) -> Vec<Result<(u8, &[u8]), BadLength>> {
        Iter::over(bytes).collect()
    }

    #[test]
    fn lists_end_at_their_stated_end() {
        assert_eq!(collect(&[1, 1, 9, 3, 5, 0, 9, 2]), [Ok((9, &[5][..]))]);
        assert_eq!(collect(&[9, 2, 8, 4, 1, 2]), [Ok((9, &[][..])), Ok((8, &[1, 2][..]))]);
        for bad in [&[9][..], &[9, 0, 1], &[9, 1, 1], &[9, 4, 1]] {
            assert_eq!(collect(bad), [Err(BadLength)], "{bad:?}");
        }
    }

    #[test]
    fn options_pad_to_words() {
        assert_eq!(Options::new(&[1; 40]).unwrap().as_bytes(), [1; 40]);
        assert_eq!(Options::new(&[9, 2]), Options::new(&[9, 2, 0, 0]));
        assert_eq!(Options::new(&[9, 3, 7]).unwrap().iter().next(), Some(Ok((9, &[7][..]))));
    }
}
