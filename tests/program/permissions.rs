//! Owners and permissions of written files, and the privileges and system calls that a run keeps.

use linerate_tests::support::program::{Ended, linerate, program, run, spawn};
use linerate_tests::support::{Scratch, frames, has_tools, may_change_user, records, wait_until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;

/// A capture file, and a folder that only root may write to, with a file that only root may read.
fn scene() -> (Scratch, String, String) {
    let scratch = Scratch::new();
    let (file, folder) = (scratch.file("sample.pcap"), scratch.file("roots"));
    records::write(&file, &frames::sample());
    run(&["flows", "-r", &file, "--write", &format!("{file}.parquet"), "-q"]).good();
    // Only root may read the inputs: they are read with the privileges of the start.
    for own in [file.clone(), format!("{file}.parquet")] {
        fs::set_permissions(own, fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let secret = format!("{folder}/secret");
    fs::write(&secret, "of root").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    (scratch, file, folder)
}

fn owned_by_nobody(path: &str) -> String {
    fs::create_dir(path).unwrap();
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    path.to_owned()
}

/// Every way to write a file, to these names. `file` is a capture; `FILE.parquet` has its flow records.
fn writers(file: &str, to: &str) -> [Vec<String>; 9] {
    let stored = format!("{file}.parquet");
    [
        words_of(&["find", file, "-w", to]),
        words_of(&["query", &stored, "--write", to, "--format", "jsonl"]),
        words_of(&["capture", "-r", file, "-w", to]),
        words_of(&["flows", "-r", file, "--write", to, "--format", "jsonl"]),
        words_of(&["query", &stored, "--every", "1s", "--plot", to]),
        words_of(&["flows", "-r", file, "--every", "1s", "--plot", to]),
        words_of(&["flows", "-r", file, "--write", &format!("{to}.d/")]),
        words_of(&["replay", "-r", file, "--rate", "max", "--to", &format!("pcap:{to}")]),
        words_of(&["generate", "--udp", "-c", "3", "--rate", "max", "--to", &format!("pcap:{to}")]),
    ]
}

/// Commands that drop privileges: by -Z, and as under sudo, doas and pkexec.
fn as_user_nobody(words: &[String]) -> [Command; 4] {
    let number = NOBODY.to_string();
    let mut all = [(); 4].map(|()| linerate(words));
    let [asked, sudo, doas, pkexec] = &mut all;
    asked.args(["-Z", "nobody"]);
    sudo.env("SUDO_UID", &number).env("SUDO_GID", &number);
    doas.env("DOAS_USER", "nobody");
    pkexec.env("PKEXEC_UID", &number);
    all
}

#[test]
fn no_file_is_created_without_rights_of_the_target_user() {
    if !may_change_user() {
        return;
    }
    let (scratch, file, folder) = scene();
    let mine = owned_by_nobody(&scratch.file("nobodys"));
    let secret = format!("{folder}/secret");
    symlink(&secret, format!("{mine}/link")).unwrap();
    symlink(&folder, format!("{mine}/link.d")).unwrap();
    for to in [format!("{folder}/new"), secret.clone(), format!("{mine}/link")] {
        for words in writers(&file, &to) {
            for mut command in as_user_nobody(&words) {
                let ended = Ended::of(command.output().unwrap()).with_status(1).says("ermission denied");
                assert!(ended.errors.contains("denied for user nobody"), "{words:?}: {}", ended.errors);
            }
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "of root");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "{to}");
        assert_eq!(fs::metadata(&folder).unwrap().uid(), 0);
        assert_eq!(fs::read_dir(&mine).unwrap().count(), 2, "{to}");
    }
    // The same for sockets.
    let words = ["capture", "-r", &file, "--share", &format!("{folder}/ring")].map(str::to_owned);
    for mut command in as_user_nobody(&words) {
        Ended::of(command.output().unwrap()).with_status(1).says("denied for user nobody");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn created_files_belong_to_the_target_user() {
    if !may_change_user() {
        return;
    }
    let (scratch, file, _) = scene();
    for (writer, way) in (0..9).flat_map(|writer| (0..4).map(move |way| (writer, way))) {
        let mine = owned_by_nobody(&scratch.file(&format!("nobodys{writer}-{way}")));
        let words = &writers(&file, &format!("{mine}/out"))[writer];
        Ended::of(as_user_nobody(words)[way].output().unwrap()).good();
        let made = linerate_tests::support::files(Path::new(&mine));
        assert_eq!(made.len(), 1, "{words:?}");
        let data = fs::metadata(&made[0]).unwrap();
        assert_eq!((data.uid(), data.gid()), (NOBODY, NOBODY), "{words:?}, way {way}");
        assert_eq!(data.mode() & 0o777, 0o600, "{words:?}");
    }
}

/// Privileges are not dropped if the caller is root itself; an unknown user name is an error and does not mean root.
#[test]
fn privileges_are_not_dropped_to_root_or_unknown_users() {
    if !may_change_user() {
        return;
    }
    let (scratch, file, _) = scene();
    let words = |to: &str| writers(&file, to)[0].clone();
    for (at, (name, value)) in [("SUDO_UID", "0"), ("DOAS_USER", "root"), ("PKEXEC_UID", "0")].into_iter().enumerate() {
        let out = scratch.file(&format!("out{at}"));
        Ended::of(linerate(&words(&out)).env(name, value).output().unwrap()).good();
        assert_eq!(fs::metadata(&out).unwrap().uid(), 0, "{name}");
    }
    let out = scratch.file("out");
    let mut unknown = linerate(&words(&out));
    unknown.env("DOAS_USER", "no-such-user");
    Ended::of(unknown.output().unwrap()).with_status(1).says("DOAS_USER").says("no-such-user");
    assert!(!Path::new(&out).exists());
}

/// The owner of a folder could replace a new file by a link: ownership and modes must not be changed by path.
#[test]
fn owners_and_modes_are_never_changed_by_path() {
    if !may_change_user() || !has_tools(&["strace"]) {
        return;
    }
    let (scratch, file, _) = scene();
    let mine = owned_by_nobody(&scratch.file("nobodys"));
    let mut lines = writers(&file, &format!("{mine}/out")).to_vec();
    lines.push(["capture", "-r", &file, "--share", &format!("{mine}/ring")].map(str::to_owned).to_vec());
    for words in lines {
        let calls = scratch.file("calls");
        let mut traced = Command::new("strace");
        traced.args(["-f", "-e", "trace=chown,fchown,lchown,fchownat,chmod,fchmodat", "-o", &calls]);
        traced.arg(program()).args(&words).args(["-Z", "nobody"]).stdin(Stdio::null()).stdout(Stdio::null());
        Ended::of(traced.output().unwrap()).good();
        let calls = fs::read_to_string(&calls).unwrap();
        assert!(!calls.contains("chown") && !calls.contains("chmod"), "{words:?}: {calls}");
        for made in fs::read_dir(&mine).unwrap().flatten() {
            let _ = fs::remove_file(made.path()).or_else(|_| fs::remove_dir_all(made.path()));
        }
    }
}

/// A user replaces the new folder by a link to a folder of root, as fast as possible.
#[test]
fn replacing_a_new_folder_by_a_link_gains_nothing() {
    if !may_change_user() || !has_tools(&["setpriv"]) {
        return;
    }
    let (scratch, file, folder) = scene();
    for round in 0..20 {
        let mine = owned_by_nobody(&scratch.file(&format!("nobodys{round}")));
        let script = r#"cd "$1" && ln -s "$2" evil && while [ ! -e stop ]; do mv -T flows old && mv -T evil flows && exit; done"#;
        let mut racer = Command::new("setpriv");
        racer.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "sh",
            "-c",
            script,
            "sh",
            &mine,
            &folder,
        ]);
        let mut racer = racer.stderr(Stdio::null()).spawn().unwrap();
        wait_until("the link is ready", || Path::new(&format!("{mine}/evil")).is_symlink());
        let mut command = linerate(&["flows", "-r", &file, "--write", &format!("{mine}/flows/"), "-q", "-Z", "nobody"]);
        let _ = command.output().unwrap();
        fs::write(format!("{mine}/stop"), "").unwrap();
        racer.wait().unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().uid(), 0, "round {round}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "round {round}");
    }
}

#[test]
fn socket_belongs_to_the_target_user() {
    if !may_change_user() {
        return;
    }
    let scratch = Scratch::new();
    let mine = owned_by_nobody(&scratch.file("nobodys"));
    let ring = format!("{mine}/ring");
    let mut command = linerate(&["capture", "-r", "-", "--share", &ring, "-Z", "nobody"]);
    let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    running.wait_until_open();
    let data = fs::symlink_metadata(&ring).unwrap();
    assert_eq!((data.uid(), data.gid(), data.mode() & 0o777), (NOBODY, NOBODY, 0o600));
    drop(running.take_input());
    let _ = running.end();
    assert!(fs::symlink_metadata(&ring).is_err(), "the socket is removed at the end of the run");
}

/// The error precedes any change of the file.
#[test]
fn input_files_are_never_overwritten() {
    let (scratch, file, _) = scene();
    let link = scratch.file("link.pcap");
    symlink(&file, &link).unwrap();
    let before = fs::read(&file).unwrap();
    for port in [format!("pcap:{file}"), format!("faulty:pcap:{file}?drop=1%"), format!("faulty:faulty:pcap:{link}")] {
        for to in [&file, &link] {
            for verb in [&["capture", "-i", &port, "-w", to][..], &["flows", "-i", &port, "--write", to]] {
                run(verb).with_status(2).says("both read and written");
            }
        }
    }
    for to in [format!("pcap:{link}"), format!("faulty:pcap:{link}")] {
        run(&["replay", "-r", &file, "--to", &to]).with_status(2).says("both read and written");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
}

/// Root reads files as root, but keeps no capabilities, and a seccomp filter is installed.
#[test]
fn run_over_files_keeps_no_capabilities() {
    let scratch = Scratch::new();
    let out = scratch.file("out");
    let (folder, ring) = (format!("{out}.d/"), scratch.file("ring"));
    for words in [
        &["capture", "-r", "-", "-w", &out][..],
        &["capture", "-r", "-", "--share", &ring],
        &["count", "-r", "-", "--json"],
        &["flows", "-r", "-", "--write", &format!("{out}.jsonl"), "--workers", "2"],
        &["flows", "-r", "-", "--write", &folder],
        &["replay", "-r", "-", "--to", &format!("pcap:{out}.pcap")],
    ] {
        let mut running = spawn(linerate(words).stdin(Stdio::piped()).stdout(Stdio::null()));
        wait_until("the seccomp filter is installed", || running.proc_status("Seccomp").as_deref() == Some("2"));
        assert_eq!(running.proc_status("CapEff").map(|set| u64::from_str_radix(&set, 16)), Some(Ok(0)), "{words:?}");
        let own = format!("{0}\t{0}\t{0}\t{0}", rustix::process::geteuid().as_raw());
        assert_eq!(running.proc_status("Uid"), Some(own), "{words:?}");
        let mut input = running.take_input().unwrap();
        std::io::Write::write_all(&mut input, &sample_bytes()).unwrap();
        drop(input);
        let ended = running.end().good();
        assert!(!ended.errors.contains("confined"), "{}", ended.errors);
    }
}

/// The sample as a capture file.
fn sample_bytes() -> Vec<u8> {
    [records::header(), records::body(&frames::sample())].concat()
}

/// A search opens its files one after another: it keeps the capability to read all files, and no other.
#[test]
fn search_keeps_only_the_capability_to_read() {
    if !may_change_user() || !has_tools(&["strace"]) {
        return;
    }
    let (scratch, file, _) = scene();
    let index = words_of(&["find", &file, "--make-index"]);
    for words in [&writers(&file, &scratch.file("out"))[..2], &[index]].concat() {
        let calls = scratch.file("calls");
        let mut traced = Command::new("strace");
        traced.args(["-f", "-e", "trace=capset,seccomp", "-o", &calls]).arg(program()).args(&words);
        Ended::of(traced.stdin(Stdio::null()).stdout(Stdio::null()).output().unwrap()).good();
        let calls = fs::read_to_string(&calls).unwrap();
        let last = calls.lines().rfind(|line| line.contains("capset(")).unwrap_or_default();
        let left = "{effective=1<<CAP_DAC_READ_SEARCH, permitted=1<<CAP_DAC_READ_SEARCH, inheritable=0}";
        assert!(last.contains(left), "{words:?}: {calls}");
        assert!(calls.lines().last().is_some_and(|line| !line.contains("capset(")), "{words:?}: {calls}");
    }
}

/// Landlock restricts reads to the named paths, even if an input exploits a parser.
#[test]
fn search_reads_only_below_named_paths() {
    if !may_change_user() || !has_tools(&["strace"]) {
        return;
    }
    let (scratch, file, _) = scene();
    let calls = scratch.file("calls");
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=landlock_create_ruleset,landlock_restrict_self", "-o", &calls]);
    Ended::of(traced.arg(program()).args(["find", &file, "--count"]).output().unwrap()).good();
    let calls = fs::read_to_string(&calls).unwrap();
    assert!(calls.contains("landlock_restrict_self"), "{calls}");
    assert!(calls.contains("LANDLOCK_ACCESS_FS_READ_FILE"), "{calls}");
}

/// Ports are opened again for each trial: all threads keep only the capabilities for that.
#[test]
fn measurement_keeps_only_capabilities_to_open_ports() {
    // CAP_NET_ADMIN, NET_RAW, IPC_LOCK, PERFMON, BPF: see linux/capability.h.
    const OPENING: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39;
    if !may_change_user() {
        return;
    }
    let soak = ["--method", "soak", "--size", "128", "--rate", "1kpps", "-T", "600", "-Z", "nobody"];
    let ports = ["measure", "--to", "mem:rights", "--check", "mem:rights"];
    let running = spawn(linerate(&[&ports[..], &soak].concat()).stdout(Stdio::null()));
    running.wait_until_open();
    let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap().flatten();
    let statuses: Vec<String> = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect();
    for status in &statuses {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        assert_eq!(field("Uid:"), format!("{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}"), "{status}");
        assert_eq!(u64::from_str_radix(&field("CapPrm:"), 16).unwrap() & !OPENING, 0, "{status}");
    }
    assert!(!statuses.is_empty());
    running.signal(rustix::process::Signal::TERM);
    let _ = running.end();
}

fn words_of(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
