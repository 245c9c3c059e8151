//! The ways in.

use crate::stage::{OWN, OWN6, Stage, Way, sound, streams};

const MIB: u64 = 1 << 20;

#[test]
fn every_byte_arrives_over_every_way_in_by_ipv4_and_ipv6() {
    for offloads in [true, false] {
        let Some(stage) = Stage::up(offloads) else { return };
        for way in Way::ALL {
            // What the sender leaves to hardware nobody makes up for where an XDP program takes the frames.
            if way == Way::Xdp && offloads {
                continue;
            }
            let running = stage.receive(&stage.port(way, ""), &["--check", "--streams", "2"]);
            for to in [format!("{OWN}:5001"), format!("[{OWN6}]:5001")] {
                stage.send(&to, &["--size", "67MiB"]).good();
            }
            let report = sound(running.end());
            assert_eq!(streams(&report), vec![("complete".to_owned(), 67 * MIB); 2], "{way:?} {offloads}");
        }
    }
}

#[test]
fn sequence_numbers_go_round_and_bytes_go_on() {
    let Some(stage) = Stage::up(true) else { return };
    let running = stage.receive(&stage.port(Way::Packet, ""), &["--check", "--streams", "1"]);
    let size = (4 << 10) + 300;
    stage.send(&format!("{OWN}:5001"), &["--size", &format!("{size}MiB")]).good();
    assert_eq!(streams(&sound(running.end())), [("complete".to_owned(), size * MIB)]);
}

#[test]
fn many_streams_at_once_share_the_frames() {
    let Some(stage) = Stage::up(true) else { return };
    for (connections, frames, size) in [("64", "80", 1), ("5", "6", 20)] {
        let arguments = ["--check", "--frames", frames, "--frame-size", "1MiB", "--streams", connections];
        let running = stage.receive(&stage.port(Way::Packet, ""), &arguments);
        let size_text = format!("{size}MiB");
        stage.send(&format!("{OWN}:5001"), &["--size", &size_text, "--connections", connections]).good();
        let report = sound(running.end());
        assert_eq!(streams(&report), vec![("complete".to_owned(), size * MIB); connections.parse().unwrap()]);
    }
}
