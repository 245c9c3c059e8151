//! What few records have beside: in pages of as many records as lie together, each made when one of them needs it and used again.
//!
//! So what lists like these can take is bounded by the number of records, and said before the first packet comes.

/// Records of a page.
const RECORDS: usize = 64;

/// A `T` for each record, most of which are never made.
pub(crate) struct Pages<T>(Vec<Option<Box<[T]>>>);

/// The most bytes of memory that such a list takes for each record.
pub(crate) const fn bytes<T>() -> usize {
    // A list of pages while it grows, and what the allocator adds to each page.
    size_of::<T>() + (3 * size_of::<Option<Box<[T]>>>() + 16).div_ceil(RECORDS)
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages(Vec::new())
    }
}

impl<T: Clone + Default> Pages<T> {
    /// What this record has, nothing at first.
    pub(crate) fn at(&mut self, record: u32) -> &mut T {
        let (page, place) = (record as usize / RECORDS, record as usize % RECORDS);
        if page >= self.0.len() {
            self.0.resize_with(page + 1, || None);
        }
        let page = self.0[page].get_or_insert_with(|| vec![T::default(); RECORDS].into_boxed_slice());
        &mut page[place]
    }

    /// What a record has, if its page was made.
    #[inline]
    pub(crate) fn get(&self, record: u32) -> Option<&T> {
        self.0.get(record as usize / RECORDS)?.as_ref().map(|page| &page[record as usize % RECORDS])
    }

    /// What a record has, which it has no more.
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
    fn what_was_put_in_is_taken_out_once() {
        let mut pages: Pages<u64> = Pages::default();
        assert_eq!((pages.take(1000), pages.get(1000)), (0, None));
        *pages.at(1000) = 7;
        *pages.at(63) += 1;
        assert_eq!((pages.get(1000), pages.get(1001), pages.get(2)), (Some(&7), Some(&0), Some(&0)));
        assert_eq!((pages.take(1000), pages.take(1000), pages.take(63)), (7, 0, 1));
        assert_eq!(pages.0.iter().filter(|page| page.is_some()).count(), 2);
    }
}
