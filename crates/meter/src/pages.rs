//! Optional parts of records, in pages of consecutive records, each allocated when one of them needs it and reused.
//!
//! So the memory of such a list is bounded by the number of records, and known before the first packet.

/// Records of a page.
const RECORDS: usize = 64;

/// A `T` for each record, most of which are never allocated.
pub(crate) struct Pages<T>(Vec<Option<Box<[T]>>>);

/// Returns the maximum number of bytes of such a list per record.
pub(crate) const fn bytes<T>() -> usize {
    // A list of pages while it grows, and the allocator's overhead per page.
    size_of::<T>() + (3 * size_of::<Option<Box<[T]>>>() + 16).div_ceil(RECORDS)
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages(Vec::new())
    }
}

impl<T: Clone + Default> Pages<T> {
    /// Returns the part of this record, initially the default.
    pub(crate) fn at(&mut self, record: u32) -> &mut T {
        let (page, place) = (record as usize / RECORDS, record as usize % RECORDS);
        if page >= self.0.len() {
            self.0.resize_with(page + 1, || None);
        }
        let page = self.0[page].get_or_insert_with(|| vec![T::default(); RECORDS].into_boxed_slice());
        &mut page[place]
    }

    /// Returns the part of a record, if its page was allocated.
    #[inline]
    pub(crate) fn get(&self, record: u32) -> Option<&T> {
        self.0.get(record as usize / RECORDS)?.as_ref().map(|page| &page[record as usize % RECORDS])
    }

    /// Removes and returns the part of a record.
    #[inline]
    pub(crate) fn take(&mut self, record: u32) -> T {
        let page = self.0.get_mut(record as usize / RECORDS).and_then(Option::as_mut);
        page.map(|page| std::mem::take(&mut page[record as usize % RECORDS])).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_removed_once() {
        let mut pages: Pages<u64> = Pages::default();
        assert_eq!((pages.take(1000), pages.get(1000)), (0, None));
        *pages.at(1000) = 7;
        *pages.at(63) += 1;
        assert_eq!((pages.get(1000), pages.get(1001), pages.get(2)), (Some(&7), Some(&0), Some(&0)));
        assert_eq!((pages.take(1000), pages.take(1000), pages.take(63)), (7, 0, 1));
        assert_eq!(pages.0.iter().filter(|page| page.is_some()).count(), 2);
    }
}
