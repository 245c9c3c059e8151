//! Recordings that streams replay: captured at a port, uploaded by a client, or from a folder of the server.

use super::server::Server;
use linerate_tests::support::wait_until;
use serde_json::{Value, json};

/// Base64 (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let of = |part: &[u8]| {
        let number = (0..3).fold(0u32, |number, at| number << 8 | u32::from(part.get(at).copied().unwrap_or(0)));
        let letter = |at: usize| match at <= part.len() {
            true => char::from(LETTERS[(number >> (18 - 6 * at) & 63) as usize]),
            false => '=',
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(of).collect()
}

/// Builds a pcap file (draft-ietf-opsawg-pcap) of frames with times in us; the upper half of `link` is the FCS field.
fn pcap(link: u32, frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file =
        [0xa1b2_c3d4u32.to_le_bytes(), [2, 0, 4, 0], [0; 4], [0; 4], 65_535u32.to_le_bytes(), link.to_le_bytes()]
            .concat();
    for (micros, frame) in frames {
        let length = frame.len() as u32;
        file.extend(
            [1_000_000 + micros / 1_000_000, micros % 1_000_000, length, length].map(u32::to_le_bytes).concat(),
        );
        file.extend(frame);
    }
    file
}

fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &vec![number; length - 14]].concat();
    frame[14] = number;
    frame
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of each frame captured at p2.
fn captured(server: &Server, frames: usize) -> Vec<String> {
    let number =
        || server.post("/api/v1/capture/frames", &json!({"port": "p2"}))["frames"].as_u64().unwrap_or(0) as usize;
    wait_until("all frames are captured", || number() >= frames);
    (0..number())
        .map(|number| {
            let one = server.post("/api/v1/capture/frame", &json!({"port": "p2", "number": number}));
            one["hex"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn captured_frames_are_replayed_unchanged() {
    let Some(server) = Server::start() else { return };
    let made = json!({"name": "made", "tx": "p1", "rx": ["p2"], "packet": "ip/udp(sport=1000..1999)", "size": "random(64..300)",
        "rate": "2kpps", "poisson": true, "count": 40});
    server.post("/api/v1/streams", &json!({"streams": [made]}));
    server.post("/api/v1/capture", &json!({"port": "p2", "do": "start"}));
    server.post("/api/v1/traffic", &json!({"do": "start"}));
    let first = captured(&server, 40);
    let kept = server.post("/api/v1/files", &json!({"name": "kept", "port": "p2"}));
    assert_eq!(kept["frames"], 40, "{kept}");
    let replay = json!({"name": "again", "tx": "p1", "rx": ["p2"], "replay": "kept"});
    let (status, answer) = server.ask("PATCH", "/api/v1/streams", json!({"streams": [replay]}).to_string().as_bytes());
    assert_eq!(status, 200, "{answer}");
    server.post("/api/v1/capture", &json!({"port": "p2", "do": "start"}));
    server.post("/api/v1/traffic", &json!({"do": "start", "streams": ["again"]}));
    assert_eq!(captured(&server, 40), first, "the same frames in the same order, once");
    // Its definition can be read back and set again, but not written as a file.
    assert_eq!(server.ask("GET", "/api/v1/streams?name=again", b"").1["streams"][0], replay);
    assert_eq!(server.ask("POST", "/api/v1/write", br#"{"form": "file"}"#).0, 400);
    assert_eq!(server.ask("POST", "/api/v1/files", br#"{"name": "kept", "do": "remove"}"#).0, 400);
    server.ask("PATCH", "/api/v1/streams", br#"{"streams": [], "remove": ["again"]}"#);
    server.post("/api/v1/files", &json!({"name": "kept", "do": "remove"}));
    assert_eq!(server.ask("GET", "/api/v1/files", b"").1["files"], json!([]));
}

#[test]
fn files_keep_their_times_and_frames() {
    let folder = std::env::temp_dir().join(format!("linerate-replays-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let frames = [(0, frame(1, 60)), (1000, frame(2, 100)), (1000, frame(3, 60)), (9000, frame(4, 1000))];
    std::fs::write(folder.join("four.pcap"), pcap(1, &frames)).unwrap();
    let Some(server) = Server::with("", "", &["--files", folder.to_str().unwrap()]) else { return };
    // With an FCS of four bytes after each frame.
    let with_fcs: Vec<(u32, Vec<u8>)> =
        frames.iter().map(|(at, frame)| (*at, [&frame[..], &[9; 4]].concat())).collect();
    server
        .post("/api/v1/files", &json!({"name": "brought", "base64": base64(&pcap(1 | 1 << 26 | 2 << 28, &with_fcs))}));
    server.post("/api/v1/files", &json!({"name": "own", "open": "four.pcap"}));
    let (_, files) = server.ask("GET", "/api/v1/files", b"");
    assert_eq!((&files["folder"], files["files"].as_array().map(Vec::len)), (&json!(["four.pcap"]), Some(2)));
    for name in ["brought", "own"] {
        let file = files["files"].as_array().unwrap().iter().find(|file| file["name"] == name).unwrap();
        assert_eq!((&file["frames"], &file["bytes"], &file["seconds"]), (&json!(4), &json!(1220), &json!(0.009)));
        let shown = |more: Value| {
            let mut stream = json!({"name": "a", "tx": "p1", "rx": ["p2"], "replay": name});
            stream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let answer = server.post("/api/v1/check", &json!({"stream": stream, "frames": 12}));
            assert_eq!(answer["faults"], json!([]), "{answer}");
            let frames = answer["frames"].as_array().unwrap().clone();
            frames
                .iter()
                .map(|one| (one["due_ns"].as_u64().unwrap(), one["hex"].as_str().unwrap().to_owned()))
                .collect::<Vec<_>>()
        };
        let own: Vec<String> = frames.iter().map(|(_, frame)| hex(frame)).collect();
        let once = shown(json!({}));
        assert_eq!(once.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1_000_000, 1_000_000, 9_000_000]);
        assert_eq!(once.into_iter().map(|one| one.1).collect::<Vec<_>>(), own);
        // Repeated, with a mean gap between the passes, and three times as fast.
        let more = shown(json!({"count": 6, "rate": "1kpps", "start": "1ms"}));
        let due: Vec<u64> = more.iter().map(|one| one.0).collect();
        assert_eq!(due, [1_000_000, 1_333_333, 1_333_333, 4_000_000, 5_000_000, 5_333_333]);
        assert_eq!(more[5].1, own[1]);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn invalid_recordings_are_rejected() {
    let Some(server) = Server::start() else { return };
    let good = pcap(1, &[(0, frame(1, 60))]);
    let named = |name: &str, file: &[u8]| json!({"name": name, "base64": base64(file)});
    let mut cut = good.clone();
    cut[36..40].copy_from_slice(&200u32.to_le_bytes());
    for (document, what) in [
        (json!({"base64": base64(&good)}), "name"),
        (named(&"x".repeat(200), &good), "name"),
        (json!({"name": "a"}), "base64"),
        (json!({"name": "a", "base64": "?"}), "base64"),
        (named("a", b""), "base64"),
        (named("a", b"GET / HTTP/1.1"), "base64"),
        (named("a", &good[..good.len() - 5]), "base64"),
        (named("a", &pcap(1, &[])), "no frame"),
        (named("a", &pcap(101, &[(0, frame(1, 60))])), "Ethernet"),
        (named("a", &cut), "truncated to"),
        (json!({"name": "a", "port": "p9"}), "port"),
        (json!({"name": "a", "port": "p2"}), "no frame"),
        (json!({"name": "a", "open": "/etc/passwd"}), "--files"),
        (json!({"name": "a", "do": "remove"}), "unknown file"),
    ] {
        let (status, answer) = server.ask("POST", "/api/v1/files", document.to_string().as_bytes());
        assert!(status == 400 && answer["errors"].to_string().contains(what), "{document}: {answer}");
    }
    server.post("/api/v1/files", &named("a", &good));
    for (key, value, what) in [
        ("replay", json!("b"), "unknown file"),
        ("replay", json!(7), "text"),
        ("packet", json!("ip/udp"), "remove it"),
        ("size", json!("64"), "remove it"),
        ("rate", json!("1mbps"), "frame rate"),
        ("rate", json!("max"), "frame rate"),
    ] {
        let mut stream = json!({"name": "s", "tx": "p1", "rx": ["p2"], "replay": "a"});
        stream[key] = value;
        let (status, answer) =
            server.ask("POST", "/api/v1/streams", json!({"streams": [stream]}).to_string().as_bytes());
        assert!(status == 400 && answer["errors"].to_string().contains(what), "{stream}: {answer}");
    }
}
