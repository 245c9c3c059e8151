//! The uppermost byte of a key's second word: state of the flow as a whole.

use super::{FIN, Hot, RST};
use crate::key::KEY_BITS;

/// In `Hot::state`: the originator, the evidence for it (2 bits), whether this continues an earlier record, TCP ends
/// seen (a FIN of each end, a RST), and whether its payload is to be examined.
const ORIGINATOR: u8 = 1;
const DIRECTION: u32 = 1;
pub(crate) const CONTINUED: u8 = 1 << 3;
const HAD_FIN: u8 = 1 << 4;
const HAD_FINS: u8 = HAD_FIN | HAD_FIN << 1;
const HAD_RST: u8 = 1 << 6;
const NAME_WANTED: u8 = 1 << 7;
pub(super) const STATE: u32 = 56;

impl Hot {
    pub(crate) fn state(&self) -> u8 {
        (self.rest >> STATE) as u8
    }

    /// Returns the end that is the originator: 0 the lower, 1 the higher.
    pub(crate) fn originator(&self) -> usize {
        usize::from(self.state() & ORIGINATOR)
    }

    /// Returns the bits of [`Direction`](crate::Direction).
    pub(crate) fn direction(&self) -> u8 {
        self.state() >> DIRECTION & 3
    }

    pub(crate) fn set_direction(&mut self, originator: usize, direction: u8) {
        let state = self.state() & (CONTINUED | NAME_WANTED) | self.ends_seen() | state_of(originator, direction);
        self.rest = self.rest & KEY_BITS | u64::from(state) << STATE;
    }

    /// Returns whether TCP has ended: FIN in both directions, or RST.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        let state = self.state();
        state & HAD_RST != 0 || state & HAD_FINS == HAD_FINS
    }

    /// Returns the TCP ends seen, as bits of the state.
    pub(crate) fn ends_seen(&self) -> u8 {
        self.state() & (HAD_FINS | HAD_RST)
    }

    /// Records a FIN or RST that ends the connection.
    pub(crate) fn note_end(&mut self, side: usize, flags: u8) {
        let fin = if flags & FIN != 0 { HAD_FIN << (side & 1) } else { 0 };
        let rst = if flags & RST != 0 { HAD_RST } else { 0 };
        self.rest |= u64::from(fin | rst) << STATE;
    }

    /// Returns whether its payload is to be examined.
    #[inline(always)]
    pub(crate) fn wants_name(&self) -> bool {
        self.state() & NAME_WANTED != 0
    }

    pub(crate) fn want_name(&mut self, is_wanted: bool) {
        let bit = u64::from(NAME_WANTED) << STATE;
        self.rest = if is_wanted { self.rest | bit } else { self.rest & !bit };
    }

    /// Returns whether a SYN now belongs to another connection.
    pub(crate) fn is_closing(&self) -> bool {
        self.ends_seen() != 0
    }
}

/// Returns the initial state of a record.
pub(crate) fn state_of(originator: usize, direction: u8) -> u8 {
    originator as u8 & ORIGINATOR | direction << DIRECTION
}
