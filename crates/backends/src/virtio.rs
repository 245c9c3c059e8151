//! The header of a frame that may be a super-frame, or lack its checksum (`struct virtio_net_hdr`, linux/virtio_net.h),
//! as AF_PACKET (`PACKET_VNET_HDR`) and tun (`IFF_VNET_HDR`) prepend it.

use linerate_burst::Flags;
use linerate_port::ScatteredFrame;
use rustix::io::{Errno, readv};
use std::io::IoSliceMut;
use std::os::fd::AsFd;

/// Bytes of the header.
pub(crate) const LEN: usize = 10;
/// Maximum pieces of a read, without the header.
const PIECES: usize = 7;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the transport checksum covers only the pseudo-header.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the checksum was verified.
const DATA_VALID: u8 = 2;

/// Reads the next frame of a descriptor that prepends such a header, into these pieces.
///
/// # Panics
/// If there are more than [`PIECES`].
pub(crate) fn read_frame(fd: impl AsFd, pieces: &mut [IoSliceMut<'_>]) -> Result<ScatteredFrame, Errno> {
    let mut header = [0; LEN];
    let mut all: [IoSliceMut<'_>; PIECES + 1] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    let count = pieces.len();
    assert!(count <= PIECES, "{count} pieces");
    all[0] = IoSliceMut::new(&mut header);
    for (own, piece) in all[1..].iter_mut().zip(pieces.iter_mut()) {
        *own = IoSliceMut::new(piece);
    }
    let read = readv(fd, &mut all[..=count])?;
    let (flags, segment) = parse(&header);
    Ok(ScatteredFrame { len: read.saturating_sub(LEN), flags, segment })
}

/// Returns the flags of its frame, and the payload bytes of each packet in a super-frame; 0 for others.
fn parse(header: &[u8; LEN]) -> (Flags, u16) {
    let [flags, gso, ..] = *header;
    let mut known = Flags::NONE;
    if flags & NEEDS_CHECKSUM != 0 {
        known |= Flags::CHECKSUM_PARTIAL;
    }
    if flags & DATA_VALID != 0 {
        known |= Flags::CHECKSUM_VALID;
    }
    if gso == 0 {
        return (known, 0);
    }
    (known | Flags::SUPER_FRAME, u16::from_ne_bytes([header[4], header[5]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_segments_are_parsed() {
        let size = 1448_u16.to_ne_bytes();
        let header = |flags, gso| [flags, gso, 0, 0, size[0], size[1], 0, 0, 0, 0];
        assert_eq!(parse(&header(0, 0)), (Flags::NONE, 0));
        assert_eq!(parse(&header(DATA_VALID, 0)), (Flags::CHECKSUM_VALID, 0));
        assert_eq!(parse(&header(NEEDS_CHECKSUM, 1)), (Flags::CHECKSUM_PARTIAL | Flags::SUPER_FRAME, 1448));
    }
}
