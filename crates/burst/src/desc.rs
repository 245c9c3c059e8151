//! The desc: a fixed-size descriptor of one frame.

use crate::Nanos;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// The properties of one frame: 32 bytes, two to a cache line, the same in process and in shared memory. Descs lie in
/// an array of their own, dense and in the order of the frames, so that ordering, counting and filtering touch no
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Desc {
    /// Time at which the frame was seen, UTC.
    pub time: Nanos,
    /// Offset of its first byte from the base of the burst's memory.
    pub offset: u32,
    /// Bytes of the frame that were captured and are present.
    pub captured: u32,
    /// Length on the wire in bytes, without FCS; at least `captured`, unless the source claims otherwise.
    pub wire: u32,
    /// Index into the interface table of the port or block that presents this desc.
    pub interface: u16,
    /// Flags of the frame, set on its way through the receive path.
    pub flags: Flags,
    /// Offset of the network header, or [`Desc::NO_LAYER`], which ports set. A ring (`--share`, `inline`) fills in this
    /// field, `l4` and `hash`; elsewhere `linerate_headers::flow::locate_inner` finds them. In a tunnel the offsets are
    /// those of the outermost packet.
    pub l3: u8,
    /// Offset of the transport header, or [`Desc::NO_LAYER`]; filled in like `l3`.
    pub l4: u8,
    /// Number of the note about this frame at its interface's origin (for example a comment in a capture file); only
    /// the origin can interpret it. 0: none.
    pub note: u16,
    /// Symmetric flow hash: the same for both directions, in a tunnel that of the innermost packet; 0 if not computed.
    /// Filled in like `l3`.
    pub hash: u32,
}

const _: () = {
    assert!(size_of::<Desc>() == 32 && align_of::<Desc>() == 8);
    assert!(std::mem::offset_of!(Desc, time) == 0);
    assert!(std::mem::offset_of!(Desc, offset) == 8);
    assert!(std::mem::offset_of!(Desc, captured) == 12);
    assert!(std::mem::offset_of!(Desc, wire) == 16);
    assert!(std::mem::offset_of!(Desc, interface) == 20);
    assert!(std::mem::offset_of!(Desc, flags) == 22);
    assert!(std::mem::offset_of!(Desc, l3) == 24);
    assert!(std::mem::offset_of!(Desc, l4) == 25);
    assert!(std::mem::offset_of!(Desc, note) == 26);
    assert!(std::mem::offset_of!(Desc, hash) == 28);
};

impl Desc {
    /// Value of `l3` and `l4` for a header that is absent, not looked for, or beyond offset 254.
    pub const NO_LAYER: u8 = 0xff;

    /// Returns the desc of a whole frame of `length` bytes at `offset`, with nothing else known.
    #[inline]
    pub fn new(time: Nanos, offset: u32, length: u32) -> Self {
        Desc {
            time,
            offset,
            captured: length,
            wire: length,
            interface: 0,
            flags: Flags::NONE,
            l3: Desc::NO_LAYER,
            l4: Desc::NO_LAYER,
            note: 0,
            hash: 0,
        }
    }

    /// Returns whether bytes are missing at the end of the frame.
    #[inline]
    pub fn is_truncated(&self) -> bool {
        self.captured < self.wire
    }

    /// Excludes an FCS of this length from `captured` and `wire`, which include it so far. Lengths other than 2 and 4
    /// bytes, and frames shorter than the FCS, change nothing.
    pub fn take_fcs_off(&mut self, length: u8) {
        let flag = match length {
            2 => Flags::FCS_2,
            4 => Flags::FCS_4,
            _ => return,
        };
        let length = u32::from(length);
        if self.wire < length {
            return;
        }
        let (present, whole) = (self.captured, self.wire);
        self.wire -= length;
        if present >= whole {
            self.captured -= length;
        } else if present >= self.wire {
            self.captured = self.wire;
            self.flags |= Flags::FCS_CUT;
        }
        self.flags |= flag;
    }

    /// Returns the length in bytes of the FCS, which neither `captured` nor `wire` includes; 0 if the source has none.
    #[inline]
    pub fn fcs(&self) -> u32 {
        u32::from(self.flags.0 & (Flags::FCS_2 | Flags::FCS_4).0) / u32::from(Flags::FCS_2.0) * 2
    }

    /// Returns the number of bytes in memory: the frame, followed by its FCS unless either is truncated.
    #[inline]
    pub fn stored(&self) -> u32 {
        // Most frames have no FCS: test the flags first.
        if !self.flags.intersects(Flags::FCS) || self.is_truncated() || self.flags.contains(Flags::FCS_CUT) {
            self.captured
        } else {
            self.captured.saturating_add(self.fcs())
        }
    }
}

/// Flags of a frame, set on its way through the receive path: a set of bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The kernel had removed the VLAN tag; it was restored in its place.
    pub const VLAN_RESTORED: Flags = Flags(1 << 0);
    /// The transport checksum holds only the pseudo-header sum: the sender left the rest to hardware
    /// (`TP_STATUS_CSUMNOTREADY`, linux/if_packet.h).
    pub const CHECKSUM_PARTIAL: Flags = Flags(1 << 1);
    /// The kernel has verified the transport checksum (`TP_STATUS_CSUM_VALID`).
    pub const CHECKSUM_VALID: Flags = Flags(1 << 2);
    /// A super-frame that GRO or GSO merged: it was never on a wire in this form.
    pub const SUPER_FRAME: Flags = Flags(1 << 3);
    /// Older than a frame that the merge had already emitted.
    pub const LATE: Flags = Flags(1 << 4);
    /// The receive path was losing frames when this one was stored.
    pub const LOSING: Flags = Flags(1 << 5);
    /// The host itself sent this frame.
    pub const OUTGOING: Flags = Flags(1 << 6);
    /// Several buffers of the receive path were joined into this frame.
    pub const JOINED: Flags = Flags(1 << 7);
    /// Truncated on request: `captured` was larger before slicing.
    pub const SLICED: Flags = Flags(1 << 8);
    /// The file or hardware marked the frame as damaged (bad FCS, symbol error).
    pub const DAMAGED: Flags = Flags(1 << 9);
    /// An FCS of 2 bytes belongs to the frame and follows its bytes if it is whole; `captured` and `wire` exclude it.
    pub const FCS_2: Flags = Flags(1 << 10);
    /// Like [`FCS_2`](Flags::FCS_2) with 4 bytes.
    pub const FCS_4: Flags = Flags(1 << 11);
    /// The frame is whole, but the capture ended before its FCS.
    pub const FCS_CUT: Flags = Flags(1 << 13);
    /// All flags about an FCS.
    pub const FCS: Flags = Flags(Flags::FCS_2.0 | Flags::FCS_4.0 | Flags::FCS_CUT.0);
    /// The source reports that the host received this frame.
    pub const INCOMING: Flags = Flags(1 << 12);

    /// The flags with their names in text and JSON.
    pub const NAMES: [(Flags, &'static str); 14] = [
        (Flags::VLAN_RESTORED, "vlan_restored"),
        (Flags::CHECKSUM_PARTIAL, "checksum_partial"),
        (Flags::CHECKSUM_VALID, "checksum_valid"),
        (Flags::SUPER_FRAME, "super_frame"),
        (Flags::LATE, "late"),
        (Flags::LOSING, "losing"),
        (Flags::OUTGOING, "outgoing"),
        (Flags::JOINED, "joined"),
        (Flags::SLICED, "sliced"),
        (Flags::DAMAGED, "damaged"),
        (Flags::FCS_2, "fcs_2"),
        (Flags::FCS_4, "fcs_4"),
        (Flags::INCOMING, "incoming"),
        (Flags::FCS_CUT, "fcs_cut"),
    ];

    /// Returns whether every bit of `other` is set.
    #[inline]
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any bit of `other` is set.
    #[inline]
    pub fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns these flags without those of `other`.
    #[inline]
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = f.debug_set();
        for (flag, name) in Flags::NAMES {
            if self.contains(flag) {
                set.entry(&name);
            }
        }
        set.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_one_bit_and_one_name_each() {
        let mut seen = Flags::NONE;
        for (flag, name) in Flags::NAMES {
            assert_eq!(flag.0.count_ones(), 1, "{name}");
            assert!(!seen.contains(flag), "{name} shares a bit");
            seen |= flag;
        }
        assert_eq!(format!("{:?}", Flags::LATE | Flags::SLICED), r#"{"late", "sliced"}"#);
        assert_eq!((Flags::LATE | Flags::SLICED).without(Flags::LATE), Flags::SLICED);
    }
}
