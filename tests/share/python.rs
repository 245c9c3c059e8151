//! The reader in Python reads the same frames as the reader in C; its tables equal the recorded packets and flows.

use crate::share::fixtures::{
    Feed, account_of, assert_all, cat_into, frame, frames, into_file, lossless, number, python, python_cat, read_ring,
    ring_name, root, share_file, wait_for_frames,
};
use linerate_tests::support::frames::sample;
use linerate_tests::support::program::{program, run};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs a Python text in the folder of `scratch`, with the program on the PATH; returns its output.
fn output_of(mut python: Command, scratch: &Scratch, text: &str) -> String {
    let link = scratch.file("linerate");
    if !Path::new(&link).exists() {
        std::os::unix::fs::symlink(program(), &link).unwrap();
    }
    let folder = Path::new(&link).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let ended = python.args(["-c", text]).current_dir(folder).env("PATH", path).output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{text}\n{errors}");
    String::from_utf8(ended.stdout).unwrap()
}

/// Readers with and without NumPy, where installed.
fn cats() -> Vec<Command> {
    [true, false].into_iter().filter_map(python_cat).collect()
}

#[test]
fn all_readers_copy_the_input() {
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    for (what, records) in [("the sample", sample()), ("many frames", frames(0..40_000))] {
        records::write(&file, &records);
        copy_by_all(&scratch, what, &file);
    }
    let Some(real) = corpus("real-mix.pcap") else { return };
    let real = real.to_str().unwrap();
    let own = scratch.file("own.pcap");
    run(&["capture", "-r", real, "-w", &own]).good();
    copy_by_all(&scratch, "real traffic", &own);
}

fn copy_by_all(scratch: &Scratch, what: &str, file: &str) {
    let (name, ours, c) = (ring_name(), scratch.file("ours.pcap"), scratch.file("c.pcap"));
    let cats = cats();
    let writer = share_file(file, &name, 2 + cats.len() as u32, &["--share-block", "512KiB"]);
    let mut readers = vec![read_ring(&lossless(&name), &ours, &[]), cat_into(&c, &["-l", "-w", &name])];
    let mut copies = vec![ours, c];
    for (index, cat) in cats.into_iter().enumerate() {
        copies.push(scratch.file(&format!("python{index}.pcap")));
        readers.push(into_file(cat, copies.last().unwrap(), &["-l", "-w", &name]));
    }
    readers.into_iter().for_each(|reader| drop(reader.end().good()));
    writer.end().good();
    let wanted = std::fs::read(file).unwrap();
    for copy in copies {
        assert!(std::fs::read(&copy).unwrap() == wanted, "{what}: {copy} differs");
    }
}

#[test]
fn descriptors_equal_those_of_the_c_reader() {
    let scratch = Scratch::new();
    let (file, by_c) = (scratch.file("in.pcap"), scratch.file("c"));
    records::write(&file, &[sample(), frames(0..500)].concat());
    for cat in cats() {
        let (name, by_python) = (ring_name(), scratch.file("python"));
        let writer = share_file(&file, &name, 2, &["--slice", "64"]);
        let readers = [cat_into(&by_c, &["-l", &name]), into_file(cat, &by_python, &["-l", &name])];
        readers.into_iter().for_each(|reader| drop(reader.end().good().says("0 skipped, 0 bad")));
        writer.end().good();
        let [by_c, by_python] = [&by_c, &by_python].map(|file| std::fs::read_to_string(file).unwrap());
        assert_eq!(by_c, by_python);
        assert!(by_c.lines().count() > 500 && by_c.contains("flags 0x0100"));
    }
}

#[test]
fn lossy_python_reader_reports_skipped_frames() {
    for cat in cats() {
        let scratch = Scratch::new();
        let (name, output) = (ring_name(), scratch.file("out.pcap"));
        let mut feed = Feed::start(&name, 1, &["--share-memory", "2MiB", "--share-block", "512KiB"]);
        let reader = into_file(cat, &output, &["-w", "-q", "2", &name]);
        feed.send(10);
        wait_for_frames(&output, 10);
        // Single frames: each wakes the reader.
        for count in 11..20 {
            feed.send(1);
            wait_for_frames(&output, count);
        }
        reader.signal(Signal::STOP);
        feed.send(60_000);
        reader.signal(Signal::CONT);
        let pid = reader.pid();
        let json = feed.end().good().json();
        let ended = reader.end().good();
        let account = account_of(&json, pid);
        let got = records::read(&output);
        assert!(account.skipped > 10_000, "{account:?}");
        assert_eq!(got.len() as u64 + account.skipped, 60_019);
        assert!(
            ended.errors.contains(&format!("{} frames, {} skipped", got.len(), account.skipped)),
            "{}",
            ended.errors
        );
        assert!(got.iter().all(|record| *record == frame(number(record))));
        assert_all("before the stop", &got[..19], 0..19);
    }
}

#[test]
fn death_of_the_writer_and_eviction_are_reported() {
    for cat in cats() {
        let scratch = Scratch::new();
        let (name, output) = (ring_name(), scratch.file("out.pcap"));
        let mut feed = Feed::start(&name, 1, &[]);
        let reader = into_file(cat, &output, &["-l", "-w", &name]);
        feed.send(1000);
        wait_for_frames(&output, 1000);
        feed.running.signal(Signal::KILL);
        reader.end().with_status(1).says("1000 frames, 0 skipped, 0 bad: the writer died");
    }
    let Some(python) = python(false) else { return };
    let scratch = Scratch::new();
    let name = ring_name();
    let arguments = ["--share-memory", "2MiB", "--share-block", "512KiB", "--share-timeout", "0.2"];
    let mut feed = Feed::start(&name, 1, &arguments);
    let text = format!(
        "import linerate, time\nring = linerate.Ring({name:?}, lossless=True)\nburst = next(ring)\ntime.sleep(3)\n\
         try:\n  for burst in ring: pass\nexcept linerate.RingError as error: print(error)"
    );
    std::thread::scope(|scope| {
        let output = scope.spawn(|| output_of(python, &scratch, &text));
        feed.send(60_000);
        assert!(output.join().unwrap().contains("evicted by the writer"));
    });
    feed.end().good();
}

/// Compares sums over a table with those over the records.
#[test]
fn tables_of_packets_equal_the_file() {
    if python(true).is_none() {
        return;
    }
    let scratch = Scratch::new();
    let records = frames(0..5000);
    records::write(&scratch.file("in.pcap"), &records);
    let bytes: u64 = records.iter().map(|record| record.bytes.len() as u64).sum();
    let times: u64 = records.iter().map(|record| record.time % 1_000_000_000).sum();
    let wanted = format!("5000 {bytes} {times} 61");
    for (engine, text) in [
        ("pandas", "t = f"),
        ("polars", "t = f.to_pandas(use_pyarrow_extension_array=True)"),
        ("arrow", "t = f.to_pandas()"),
    ] {
        let text = format!(
            "import linerate\nf = linerate.frames('in.pcap', 'udp', engine={engine:?})\n{text}\n\
             nanos = t['time'].astype('int64') % 10**9\n\
             print(len(t), t['captured'].sum(), nanos.sum(), t['hash'].nunique())\n\
             assert type(f).__module__.split('.')[0] in ({engine:?}, 'pyarrow')\n\
             assert str(t['time'].iloc[0]).startswith('2023-11-14 22:13:20') and 'UTC' in str(t['time'].dtype)\n\
             assert not t['late'].any()"
        );
        assert_eq!(output_of(python(true).unwrap(), &scratch, &text).trim(), wanted, "{engine}");
    }
}

#[test]
fn tables_of_flows_equal_the_records() {
    if python(true).is_none() {
        return;
    }
    let scratch = Scratch::new();
    records::write(&scratch.file("in.pcap"), &frames(0..5000));
    let folder = format!("{}/", scratch.file("flows"));
    let file = scratch.file("in.pcap");
    run(&["flows", "-r", &file, "--write", &folder, "--write", &scratch.file("flows.jsonl")]).good();
    let lines = std::fs::read_to_string(scratch.file("flows.jsonl")).unwrap();
    let sums = lines.lines().map(|line| {
        let flow: serde_json::Value = serde_json::from_str(line).unwrap();
        let of = |side: &str| flow[side]["frame_bytes"].as_u64().unwrap();
        of("orig") + of("resp")
    });
    let wanted = format!("61 {} 22", sums.sum::<u64>());
    for engine in ["pandas", "polars", "arrow"] {
        let text = format!(
            "import linerate\nf = linerate.flows('flows/', engine={engine:?})\n\
             bytes = [sum(f[side + '_frame_bytes'].to_{}()) for side in ('orig', 'resp')]\n\
             hours = set(f['hour'].to_{0}())\nprint(len(f), sum(bytes), *hours)\n\
             assert list(linerate.flows('flows/', columns=['hour', 'id'], engine={engine:?}).{}) == ['hour', 'id']",
            if engine == "arrow" { "pylist" } else { "list" },
            if engine == "arrow" { "column_names" } else { "columns" },
        );
        assert_eq!(output_of(python(true).unwrap(), &scratch, &text).trim(), wanted, "{engine}");
    }
}

/// Errors name the missing package and the command that installs it.
#[test]
fn errors_name_a_remedy() {
    let scratch = Scratch::new();
    let (whole, cut) = (scratch.file("in.pcap"), scratch.file("cut.pcap"));
    records::write(&whole, &frames(0..100));
    let bytes = std::fs::read(whole).unwrap();
    std::fs::write(cut, &bytes[..bytes.len() - 7]).unwrap();
    std::fs::create_dir(scratch.file("flows")).unwrap();
    if python(false).is_none() {
        return;
    }
    for (call, part) in [
        ("linerate.frames('in.pcap')", "needs numpy; run pip install numpy"),
        ("linerate.flows('flows')", "pip install pandas pyarrow, or pip install polars"),
        ("linerate.flows('flows', engine='pandas')", "needs pandas; run pip install pandas"),
        ("linerate.flows('nowhere')", "nowhere: no flow records found"),
        ("linerate.flows('flows', engine='excel')", "one of pandas, polars, arrow"),
        ("linerate.capture('in.pcap', program='no-such')", "install linerate"),
        ("linerate.capture('none.pcap')", "none.pcap: no such file\n"),
        ("linerate.capture('in.pcap', 'no such filter')", "syntax error"),
        ("[len(burst) for burst in linerate.capture('cut.pcap')]", "cut off in the middle"),
        ("linerate.Ring('nobody-shares-this')", "no writer shares it"),
        ("linerate.Ring('')", "invalid ring name"),
    ] {
        let text = format!("import linerate\ntry: {call}\nexcept (OSError, ValueError, ImportError) as e: print(e)");
        let output = output_of(python(false).unwrap(), &scratch, &text);
        assert!(output.contains(part), "{call}: {output}");
    }
}

/// The socket may exist before the program accepts connections.
#[test]
fn slow_start_of_the_program_is_awaited() {
    let Some(python) = python(false) else { return };
    let (scratch, slow) = (Scratch::new(), "slow");
    records::write(&scratch.file("in.pcap"), &frames(0..100));
    let text = "#!/usr/bin/env python3\nimport os, socket, sys, time\npath = sys.argv[sys.argv.index('--share') + 1]\n\
                s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.bind(path)\ntime.sleep(0.3)\n\
                os.remove(path)\ntime.sleep(0.3)\nos.execvp('linerate', ['linerate', *sys.argv[1:]])\n";
    std::fs::write(scratch.file(slow), text).unwrap();
    std::fs::set_permissions(scratch.file(slow), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "import linerate\nprint(sum(len(b) for b in linerate.capture('in.pcap', program='./slow')))";
    assert_eq!(output_of(python, &scratch, text).trim(), "100");
}

/// If many readers attach at once, the accept queue of the socket is full for a while.
#[test]
fn full_accept_queue_is_awaited() {
    let Some(python) = python(false) else { return };
    let text = "import linerate, socket, threading, time\nnew = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
                door = new()\ndoor.bind('door.socket')\ndoor.listen(0)\nwaiting = []\ntry:\n  while True:\n    \
                waiting.append(new())\n    waiting[-1].setblocking(False)\n    waiting[-1].connect('door.socket')\n\
                except BlockingIOError: pass\ndef let_in():\n  time.sleep(0.3)\n  while True: door.accept()[0].close()\n\
                threading.Thread(target=let_in, daemon=True).start()\ntry: linerate.Ring('./door.socket')\n\
                except OSError as error: print(error)";
    assert!(output_of(python, &Scratch::new(), text).contains("peer is not a linerate ring"));
}

#[test]
fn released_burst_cannot_be_read() {
    for numpy in [true, false] {
        let Some(python) = python(numpy) else { return };
        let scratch = Scratch::new();
        records::write(&scratch.file("in.pcap"), &frames(0..20_000));
        let text = "import linerate, os\nring = linerate.capture('in.pcap')\nfirst = next(ring)\n\
                    kept = bytes(first.frame(0)), first.frame(-1), list(first)[1]\nsecond = ring.next(5)\n\
                    try: first.frame(0)\nexcept ValueError as error: print(error)\n\
                    print(len(kept[0]), kept[1].readonly, len(kept[2]), len(second.frame(0)) > 40)\n\
                    ring.close()\nprint(ring.ended, list(ring), ring._process.returncode is not None)";
        let output = output_of(python, &scratch, text);
        let length = |record: Record| record.bytes.len();
        let wanted = format!(
            "burst was released: its frames may be overwritten; copy them before requesting the next burst\n\
             {} True {} True\nclosed [] True\n",
            length(frame(0)),
            length(frame(1))
        );
        assert_eq!(output, wanted);
    }
}

/// Runs each example unchanged, except for the name of its ring.
#[test]
fn examples_of_the_guide_run() {
    let page = std::fs::read_to_string(root().join("docs/guide/rings.md")).unwrap();
    let blocks = |kind: &str| -> Vec<String> {
        let parts = page.split("\n```").filter_map(|part| part.strip_prefix(kind)?.strip_prefix('\n'));
        parts.map(|text| format!("{text}\n")).collect()
    };
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    assert_eq!(blocks("c"), [read("examples/c/ring_count.c")]);
    assert!(read("crates/linerate/examples/attach.rs").contains(&blocks("rust")[0]));
    if python(true).is_none() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("trace.pcap");
    records::write(&file, &frames(0..20_000));
    run(&["flows", "-r", &file, "--write", &format!("{}/", scratch.file("flows"))]).good();
    let examples = blocks("python");
    for (text, part) in examples.iter().zip([
        "bytes, first 02000000000b",
        "top port 53 skipped 0 bad 0",
        "20000 frames, 0 late, ended",
        "frames of DNS",
    ]) {
        let name = ring_name();
        let writer = text.contains("\"feed\"").then(|| share_file(&file, &name, 1, &[]));
        let output = output_of(python(true).unwrap(), &scratch, &text.replace("\"feed\"", &format!("{name:?}")));
        assert!(output.contains(part), "{text}: {output}");
        if let Some(writer) = writer {
            writer.end().good();
        }
    }
    assert_eq!(examples.len(), 4);
}
