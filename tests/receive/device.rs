//! Frames in device memory, here of the processor as a device: each frame is verified there.

use crate::receive::testbed::{OWN, OWN6, Stage, Way, sound, streams};
use linerate_tests::support::program::run;

const MIB: u64 = 1 << 20;
const ROUTES: [&str; 3] = ["copy", "place", "gather"];

#[test]
fn every_byte_reaches_the_device_by_every_route() {
    let Some(stage) = Stage::up(true) else { return };
    for route in ROUTES {
        for way in [Way::Packet, Way::Bursts] {
            let more = ["--check", "--streams", "2", "--to", "device:cpu", "--route", route, "--frame-size", "3MiB"];
            let running = stage.receive(&stage.port(way, ""), &more);
            for to in [format!("{OWN}:5001"), format!("[{OWN6}]:5001")] {
                stage.send(&to, &["--size", "16MiB"]).good();
            }
            let report = sound(running.end());
            assert_eq!(streams(&report), vec![("complete".to_owned(), 16 * MIB); 2], "{route} {way:?}");
            assert_eq!((&report["options"]["to"], &report["options"]["route"]), (&"device:cpu".into(), &route.into()));
            assert!(report["frames"].as_u64() >= Some(12), "{report:#}");
        }
    }
}

/// Duplicated, late and corrupted packets never write a byte twice: lists that do so are errors.
#[test]
fn link_faults_do_not_reach_the_device() {
    let Some(stage) = Stage::up(false) else { return };
    let faults = "drop=1%&burst=0.05%x10&repeat=1%&reorder=1%x50&corrupt=0.5%x1&truncate=0.5%&pad=1%x9";
    for route in ROUTES {
        let more = ["--check", "--streams", "1", "--to", "device:cpu", "--route", route, "--frame-size", "1MiB"];
        let report = stage.send_over_faulty_link(faults, &["--size", "4MiB"], |port| stage.receive(port, &more));
        assert_eq!(report["balanced"], true, "{route}: {report:#}");
        assert_eq!(streams(&report), [("complete".to_owned(), 4 * MIB)], "{route}");
    }
}

#[test]
fn samples_are_converted_and_the_route_is_chosen() {
    let Some(stage) = Stage::up(true) else { return };
    for more in [&["--convert", "int16-be"][..], &["--convert", "int8", "--route", "gather"], &[]] {
        let arguments = [&["--check", "--streams", "1", "--to", "device:cpu", "--frame-size", "2MiB"], more].concat();
        let running = stage.receive(&stage.port(Way::Bursts, ""), &arguments);
        stage.send(&format!("{OWN}:5001"), &["--size", "9MiB"]).good();
        assert_eq!(streams(&sound(running.end())), [("complete".to_owned(), 9 * MIB)], "{more:?}");
    }
}

#[test]
fn wrong_byte_is_found_on_the_device() {
    let Some(stage) = Stage::up(true) else { return };
    for route in ROUTES {
        let more = ["--check", "--key", "7", "--streams", "1", "--to", "device:cpu", "--route", route];
        let running = stage.receive(&stage.port(Way::Packet, ""), &more);
        stage.send(&format!("{OWN}:5001"), &["--size", "1MiB", "--key", "8"]);
        running.end().with_status(1).says("byte 0 of the stream is");
    }
}

/// The error message only: no core file and no backtrace.
#[test]
fn missing_gpu_is_reported() {
    let Some(stage) = Stage::up(true) else { return };
    let more = ["receive", &stage.port(Way::Packet, ""), "--tcp", "10.7.0.9:5001", "-T", "0.1", "--to", "device:63"];
    let ended = run(&more).with_status(1);
    assert!(ended.errors.contains("no CUDA device") && !ended.errors.contains("panicked"), "{}", ended.errors);
    assert_eq!(ended.errors.trim().lines().count(), 1, "{}", ended.errors);
}

#[test]
fn invalid_combinations_are_rejected() {
    let Some(stage) = Stage::up(true) else { return };
    let port = stage.port(Way::Packet, "");
    for (more, why) in [
        (&["--route", "place"][..], "frames stay in the memory of this host"),
        (&["--to", "gpu"], "device:cpu"),
        (&["--to", "device:cpu", "--route", "copy", "--convert", "int8"], "use another route than copy"),
        (&["--to", "device:cpu", "--missing", "left", "--convert", "int8"], "gaps cannot be left"),
        (&["--to", "device:cpu", "-w", "there/"], "cannot be used with"),
    ] {
        let all = [&["receive", &port, "--tcp", "10.7.0.9:5001", "-T", "0.1"], more].concat();
        let ended = run(&all).with_status(2);
        assert!(ended.errors.contains(why), "{more:?}: {}", ended.errors);
    }
}
