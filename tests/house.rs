//! House rules checked by program.

#[path = "house/words.rs"]
mod words;

use linerate::burst::{Count, Kind};
use linerate::export::fields::{Ipfix, Part, Responder, Zeek, fields};
use linerate::meter::Level;
use linerate::port::BACKENDS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Only files with unsafe code; each explains it in its first lines.
const UNSAFE_FILES: &[&str] = &[
    "crates/burst/src/burst.rs",
    "crates/burst/src/copy.rs",
    "crates/burst/src/cpu.rs",
    "crates/burst/src/helper.rs",
    "crates/burst/src/memory.rs",
    "crates/burst/src/pool.rs",
    "crates/cli/src/main.rs",
    "crates/device/src/cuda.rs",
    "crates/device/src/cuda/driver.rs",
    "crates/device/src/cuda/host.rs",
    "crates/device/src/cuda/work.rs",
    "crates/device/src/dlpack.rs",
    "crates/filter/src/libpcap.rs",
    "crates/merge/src/kernel.rs",
    "crates/backends/src/sys/area.rs",
    "crates/backends/src/sys/bpf_ringbuf.rs",
    "crates/backends/src/sys/bpf.rs",
    "crates/backends/src/sys/bpf_live.rs",
    "crates/backends/src/sys/clock.rs",
    "crates/backends/src/sys/dpdk_device.rs",
    "crates/backends/src/sys/dpdk_plugin.rs",
    "crates/backends/src/sys/ethtool.rs",
    "crates/backends/src/sys/memif_memory.rs",
    "crates/backends/src/sys/inet_socket.rs",
    "crates/backends/src/sys/packet_blocks.rs",
    "crates/backends/src/sys/packet_ring.rs",
    "crates/backends/src/sys/packet_socket.rs",
    "crates/backends/src/sys/peer.rs",
    "crates/backends/src/sys/thread.rs",
    "crates/backends/src/sys/tun_device.rs",
    "crates/backends/src/sys/xsk_frames.rs",
    "crates/backends/src/sys/xsk_memory.rs",
    "crates/backends/src/sys/xsk_ring.rs",
    "crates/backends/src/sys/xsk_sender.rs",
    "crates/backends/src/sys/xsk_socket.rs",
    "crates/transport/src/copy/x86.rs",
    "crates/share/src/credentials.rs",
    "crates/share/src/frames.rs",
    "crates/share/src/mapping.rs",
];

/// Allowed dependencies between crates, as drawn in ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 27] = [
    ("headers", &[]),
    ("burst", &[]),
    ("filter", &[]),
    ("lab", &[]),
    ("tls", &["burst"]),
    ("share", &["burst"]),
    ("pcap", &["burst"]),
    ("index", &["burst", "filter", "pcap"]),
    ("merge", &["burst"]),
    ("generate", &["burst", "headers"]),
    ("otg", &["burst", "generate", "headers"]),
    ("serve", &["burst", "engine", "filter", "generate", "meter", "otg", "port", "print", "tls", "headers"]),
    ("measure", &[]),
    ("names", &[]),
    ("meter", &["burst", "names", "headers"]),
    ("transport", &["burst", "headers"]),
    ("device", &["burst", "transport", "headers"]),
    ("switch", &["burst", "headers"]),
    ("export", &["burst", "meter", "pcap", "tls", "headers"]),
    ("query", &["burst", "meter", "pcap", "export"]),
    ("port", &["burst"]),
    ("print", &["burst", "headers"]),
    ("backends", &["burst", "filter", "generate", "port", "pcap", "share", "headers"]),
    ("engine", &["burst", "filter", "generate", "merge", "meter", "port", "transport", "share", "switch", "headers"]),
    (
        "linerate",
        &[
            "backends",
            "burst",
            "device",
            "engine",
            "filter",
            "generate",
            "index",
            "measure",
            "merge",
            "meter",
            "names",
            "port",
            "print",
            "query",
            "transport",
            "pcap",
            "export",
            "share",
            "switch",
            "headers",
        ],
    ),
    (
        "cli",
        &[
            "backends",
            "burst",
            "device",
            "engine",
            "filter",
            "generate",
            "index",
            "lab",
            "measure",
            "meter",
            "port",
            "print",
            "query",
            "transport",
            "pcap",
            "export",
            "serve",
            "share",
            "switch",
            "headers",
        ],
    ),
    (
        "bench",
        &[
            "backends",
            "burst",
            "cli",
            "device",
            "engine",
            "generate",
            "lab",
            "merge",
            "meter",
            "port",
            "print",
            "query",
            "transport",
            "pcap",
            "export",
            "share",
            "switch",
            "headers",
        ],
    ),
];

/// Files of pure crates that may read the clock and start threads.
const HAS_A_THREAD: &[&str] = &[
    "crates/query/src/store.rs",
    "crates/export/src/queue.rs",
    "crates/export/src/encode/parquet/workers.rs",
    "crates/export/src/export/transport.rs",
    "crates/export/src/export/network.rs",
    "crates/export/src/export/ship.rs",
    "crates/export/src/export/ship/batches.rs",
    "crates/export/src/export/ship/link.rs",
    "crates/export/src/export/ship/sender.rs",
    "crates/export/src/ipfix/listen/connections.rs",
    "crates/export/src/ipfix/listen/secure.rs",
    "crates/pcap/src/compression/parallel.rs",
];

/// Files that write binary data (packets) to standard output.
const PRINTS_DATA: &[&str] = &["crates/pcap/src/file.rs"];

/// Maximum number of lines of a source file.
const LONGEST_FILE: usize = 400;

#[test]
fn unsafe_code_is_only_in_listed_files() {
    for (path, text) in sources() {
        let named = UNSAFE_FILES.contains(&path.as_str());
        let allows = text.contains("allow(unsafe_code)");
        assert_eq!(allows, named, "{path}: allow(unsafe_code) belongs in exactly the named files");
        if path.ends_with("/src/lib.rs") {
            let closed = text.contains("#![forbid(unsafe_code)]") || text.contains("#![deny(unsafe_code)]");
            assert!(closed, "{path}: neither forbids nor denies unsafe code");
        }
    }
}

#[test]
fn crates_depend_only_along_the_arrows() {
    for (name, allowed) in ARROWS {
        let used: BTreeSet<String> = dependencies(name)
            .into_iter()
            .filter_map(|name| Some(name.strip_prefix("linerate-")?.to_owned()))
            .collect();
        let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(used, allowed, "{name}: dependencies and arrows");
    }
    let crates = fs::read_dir(root().join("crates")).unwrap().count();
    assert_eq!(crates, ARROWS.len(), "a crate is missing in ARROWS");
}

#[test]
fn every_dependency_is_used() {
    let sources = sources();
    for (name, _) in ARROWS {
        let folder = format!("crates/{name}/src/");
        let code: String =
            sources.iter().filter(|(path, _)| path.starts_with(&folder)).map(|(_, text)| &**text).collect();
        for dependency in dependencies(name) {
            let called = dependency.replace('-', "_");
            let is_used = ["::", " as ", ";"].iter().any(|after| code.contains(&format!("{called}{after}")));
            assert!(is_used, "{name} does not use {dependency}");
        }
    }
}

#[test]
fn pure_crates_use_no_clock_thread_or_output() {
    let forbidden = ["Instant::now", "SystemTime::now", "clock_gettime", "thread::spawn", "println!", "eprintln!"];
    for (path, text) in sources() {
        let pure = [
            "headers",
            "burst",
            "port",
            "print",
            "merge",
            "generate",
            "otg",
            "measure",
            "meter",
            "names",
            "transport",
            "pcap",
            "export",
            "query",
            "share",
            "index",
            "switch",
        ]
        .iter()
        .any(|name| path.starts_with(&format!("crates/{name}/src")) && !HAS_A_THREAD.contains(&path.as_str()));
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for word in forbidden {
            assert!(!pure || !code.contains(word), "{path} is pure and has {word}");
        }
    }
}

/// One file handles untrusted names, closed pipes and full disks for all output.
#[test]
fn only_one_file_prints() {
    let forbidden = ["print!(", "println!(", "dbg!(", "stdout()", "stderr()"];
    for (path, text) in sources()
        .into_iter()
        .filter(|(path, _)| path != "crates/cli/src/view/terminal.rs" && !path.ends_with("/tests.rs"))
    {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = forbidden.iter().find(|word| line.contains(*word));
            let is_data = PRINTS_DATA.contains(&path.as_str());
            assert!(found.is_none() || is_data, "{path} prints, which only view/terminal.rs may do: {line}");
        }
    }
}

#[test]
fn every_crate_uses_the_workspace_lints() {
    let workspace = read(&root().join("Cargo.toml"));
    assert!(workspace.contains("missing_docs = \"deny\""), "public items may lack documentation");
    for (name, _) in ARROWS {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not use the workspace lints");
    }
}

#[test]
fn no_file_exceeds_the_maximum_length() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LONGEST_FILE, "{path} has {lines} lines; split it");
    }
}

#[test]
fn backend_is_one_file_and_one_row() {
    let files: BTreeSet<String> = fs::read_dir(root().join("crates/backends/src"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && read(path).contains("pub const BACKEND: Backend = "))
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned))
        .collect();
    let rows: BTreeSet<String> = BACKENDS.iter().map(|backend| backend.scheme.replace('-', "_")).collect();
    assert_eq!(files, rows);
}

/// `docs/counters.md` is generated by `UPDATE_DOCS=1 cargo test --workspace --test house`.
#[test]
fn counters_page_is_up_to_date() {
    let path = root().join("docs/counters.md");
    let page = counters_page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        page,
        "run UPDATE_DOCS=1 cargo test --workspace --test house"
    );
}

/// The field tables between marks in `docs/flows.md` are generated as well.
#[test]
fn field_tables_are_up_to_date() {
    let path = root().join("docs/flows.md");
    let mut page = read(&path);
    for (level, name) in
        [(Some(Level::Counters), "counters"), (Some(Level::Tcp), "tcp"), (Some(Level::Stats), "stats"), (None, "names")]
    {
        let begin = format!("<!-- made from crates/export/src/fields/: level {name} -->\n");
        let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once("<!-- end -->").expect("an end mark");
        page = format!("{before}{begin}{}<!-- end -->{after}", fields_table(level));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(read(&path) == page, "docs/flows.md: run UPDATE_DOCS=1 cargo test --workspace --test house");
}

#[test]
fn links_in_documents_have_targets() {
    let documents = documents();
    assert!(documents.len() > 10, "the documents were not found: {documents:?}");
    for document in documents {
        let folder = document.parent().unwrap();
        for part in read(&document).split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default().split('#').next().unwrap_or_default();
            let outside = target.starts_with("http") || target.is_empty();
            assert!(outside || folder.join(target).exists(), "{document:?} links to {target}, which does not exist");
        }
    }
}

/// Code spans that are paths or files of Rust, or the last parts of paths.
#[test]
fn paths_in_the_pages_for_developers_exist() {
    let files: Vec<String> = rust_files().into_iter().map(|name| format!("/{name}/")).collect();
    let mut places = vec![root(), root().join("crates"), root().join("crates/cli/src/verbs")];
    places.extend(fs::read_dir(root().join("crates")).unwrap().map(|folder| folder.unwrap().path()));
    let is_path = |span: &&str| {
        let is_plain = span.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_./-".contains(&b));
        is_plain && !span.starts_with('/') && (span.contains('/') || span.ends_with(".rs"))
    };
    // Made by tests, or by the reader.
    let made = ["target/mutants", "own.rs"];
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(&root().join(page));
        let spans: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_path).collect();
        assert!(spans.len() > 20, "paths were not found: {spans:?}");
        for span in spans.into_iter().filter(|span| !made.contains(span)) {
            let ends = ["/", ".rs/"].map(|end| format!("/{}{end}", span.trim_end_matches('/')));
            let exists = places.iter().any(|place| place.join(span).exists())
                || files.iter().any(|file| ends.iter().any(|end| file.contains(end)));
            assert!(exists, "{page} names {span}, which does not exist");
        }
    }
}

/// Newcomers read these two pages first, in ten minutes.
#[test]
fn front_pages_are_short() {
    for (page, most) in [("README.md", 8 << 10), ("ARCHITECTURE.md", 14 << 10)] {
        let text = read(&root().join(page));
        assert!(text.len() <= most, "{page} has {} bytes, {most} are allowed: put it into docs or a crate", text.len());
        for (index, line) in text.lines().enumerate() {
            assert!(line.chars().count() <= 160, "{page}:{}: more than 160 characters", index + 1);
        }
    }
}

/// Markdown files of the root, and below `docs` and `examples`.
fn documents() -> Vec<PathBuf> {
    let mut folders = vec![root().join("docs"), root().join("examples")];
    let mut found: Vec<PathBuf> = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found
}

fn counters_page() -> String {
    let mut page = String::from(
        "# Counters and drop reasons\n\nMade from the table in `crates/burst/src/counters.rs`. `received = delivered + \
         refused + lost` holds for each account once its stage has quiesced; `refused` is what the user asked to leave \
         out, `lost` is loss.\n",
    );
    let mut stage = None;
    for count in Count::ALL {
        if stage != Some(count.stage()) {
            stage = Some(count.stage());
            page += &format!("\n## {}\n\n| name | kind | what it counts |\n|---|---|---|\n", count.stage().name());
        }
        let kind = match count.kind() {
            Kind::Received => "received",
            Kind::Delivered => "delivered",
            Kind::Refused => "refused",
            Kind::Lost => "lost",
            Kind::Note => "note",
        };
        page += &format!("| `{}` | {kind} | {} |\n", count.name(), count.sentence());
    }
    page
}

/// Table of the fields of a level, or of names for `None`.
fn fields_table(level: Option<Level>) -> String {
    let mut table =
        String::from("| field | type | what it is | IPFIX | Argus | Zeek | tstat |\n|---|---|---|---|---|---|---|\n");
    let level_of = |part: Part| (part != Part::Names).then(|| part.level());
    for field in fields().filter(|field| level_of(field.part) == level) {
        let name = match field.path.strip_prefix("*.") {
            Some(name) => format!("..`{name}`"),
            None if field.is_of_sides() => format!("`{}`, `{}`", field.path_of(0), field.path_of(1)),
            None => format!("`{}`", field.path),
        };
        let comma = if field.unit.is_empty() { "" } else { ", " };
        let kind = format!("{}{comma}{}", field.get.kind(), field.unit);
        let zeek = match field.zeek {
            Zeek::None => String::new(),
            Zeek::Same(names) => names.join(", "),
            Zeek::Like(names) => format!("({names})"),
        };
        let cells = [&name, &kind, field.meaning, &elements(field.ipfix), field.argus, &zeek, field.tstat];
        table += &cells.iter().map(|cell| format!("| {cell} ")).collect::<String>().replace("|  ", "| ");
        table += "|\n";
    }
    table
}

fn elements(ipfix: Ipfix) -> String {
    let numbers = |elements: &[u16]| elements.iter().map(u16::to_string).collect::<Vec<_>>().join("/");
    let enterprise = if ipfix.enterprise == 0 { String::new() } else { format!("{}/", ipfix.enterprise) };
    let responder = match ipfix.responder {
        Responder::None => String::new(),
        Responder::Reverse => ", *R*".to_owned(),
        Responder::Own(elements) => format!(", {}", numbers(elements)),
    };
    let remark = if ipfix.remark.is_empty() { String::new() } else { format!(" ({})", ipfix.remark) };
    format!("{enterprise}{}{responder}{remark}", numbers(ipfix.elements)).trim_start().to_owned()
}

/// Dependencies of a crate, without those of its tests.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
    let section = manifest.split("[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| Some(line.split_once('=')?.0.split('.').next()?.trim().to_owned()))
        .filter(|name| !name.starts_with('#'))
        .collect()
}

/// Path from the root and text of every source file of every crate.
fn sources() -> Vec<(String, String)> {
    let names = rust_files().into_iter().filter(|name| name.starts_with("crates/") && name.contains("/src/"));
    let found: Vec<(String, String)> = names.map(|name| (name.clone(), read(&root().join(name)))).collect();
    assert!(found.len() > 40, "the sources were not found");
    found
}

/// Returns the names of all files of Rust, from the root.
fn rust_files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
