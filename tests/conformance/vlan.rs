//! VLAN tags stripped by the kernel and restored by the receiver, in truncated frames.

use crate::conformance::backends::{Harness, Veth};
use crate::conformance::frames::{CUSTOMER, SERVICE, tagged};
use linerate_burst::Flags;
use linerate_port::RxOptions;

/// The kernel truncates the frame without its tag: four bytes more are delivered.
#[test]
fn truncated_frame_keeps_its_tag_and_wire_length() {
    let Some(veth) = Veth::up(1, Some(1)) else { return };
    let sent = [vec![
        tagged(0, 0, 26, &[(CUSTOMER, 7)]),
        tagged(0, 1, 200, &[(SERVICE, 7), (CUSTOMER, 8)]),
        tagged(0, 2, 1518, &[(CUSTOMER, 0)]),
    ]];
    for snap in [200u32, 64, 18, 14, 13, 12] {
        let outcome = veth.open(&RxOptions { snap, ..RxOptions::default() }).exchange(&sent);
        assert_eq!(outcome.got.len(), 3, "snap {snap}");
        for (got, frame) in outcome.got.iter().zip(&sent[0]) {
            let length = frame.bytes.len();
            let kept = length.min(snap as usize + 4);
            assert_eq!((got.desc.captured as usize, got.desc.wire as usize), (kept, length), "snap {snap}");
            assert_eq!(got.bytes, frame.bytes[..kept], "snap {snap}");
            assert!(got.desc.flags.contains(Flags::VLAN_RESTORED), "snap {snap}: {:?}", got.desc.flags);
        }
    }
}

/// A frame cut within the addresses has no room for the tag, but its wire length includes it.
#[test]
fn frame_truncated_before_its_tag_keeps_its_wire_length() {
    let Some(veth) = Veth::up(1, Some(1)) else { return };
    let sent = [vec![tagged(0, 0, 200, &[(CUSTOMER, 7)])]];
    let outcome = veth.open(&RxOptions { snap: 11, ..RxOptions::default() }).exchange(&sent);
    let got = &outcome.got[0];
    assert_eq!((got.desc.captured, got.desc.wire), (11, 200));
    assert_eq!(got.bytes, sent[0][0].bytes[..11]);
}
