//! Permissions of a confined process. Each case runs in a separate process, as confinement is irreversible.

use linerate_cli::privileges::{Identity, folders_of};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs one ignored test of this file in another process; returns its success and output.
fn in_a_process(test: &str) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads", "1"]);
    command.env("LINERATE_FOLDER", folder());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Folder for the files of the process that [`in_a_process`] starts.
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("linerate-confined-{}", std::process::id()))
}

#[test]
fn confined_process_runs_nothing_and_writes_only_to_its_folders() {
    let (good, output) = in_a_process("confined");
    // The confined process may not delete it.
    let _ = fs::remove_dir_all(folder());
    assert!(good, "{output}");
}

#[test]
fn panic_in_a_confined_process_is_reported() {
    let (good, output) = in_a_process("panicking");
    assert!(!good && output.contains("reported despite confinement"), "{output}");
}

#[test]
fn search_reads_only_its_own_files() {
    let (good, output) = in_a_process("searching");
    let _ = fs::remove_dir_all(folder().join("search"));
    assert!(good, "{output}");
}

/// Drops rights, and stays the same user.
fn itself() -> Identity {
    let uid = rustix::process::geteuid().as_raw().to_string();
    Identity::choose(Some(&uid), false).unwrap()
}

#[test]
#[ignore = "run by a test above in a separate process"]
fn searching() {
    let root = PathBuf::from(std::env::var_os("LINERATE_FOLDER").expect("the test above")).join("search");
    let (own, other) = (root.join("own"), root.join("other"));
    for folder in [&own, &other] {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("file"), "text").unwrap();
    }
    std::os::unix::fs::symlink(other.join("file"), own.join("link")).unwrap();
    let identity = itself();
    let _ = identity.assume().unwrap().confine_reading(&[], &folders_of([&*own.join("file")]));
    let read = [own.join("file"), own.join("link"), other.join("file"), "/etc/passwd".into()].map(fs::read_to_string);
    let is_read = read.map(|text| text.is_ok());
    // The target of a link is readable only if it was named at the start of the search.
    assert_eq!(is_read, [true, false, false, false]);
}

#[test]
#[ignore = "run by a test above in a separate process"]
fn panicking() {
    let _ = itself().assume().unwrap().confine(&[]);
    panic!("reported despite confinement");
}

#[test]
#[ignore = "run by a test above in a separate process"]
fn confined() {
    let root = PathBuf::from(std::env::var_os("LINERATE_FOLDER").expect("the test above"));
    let (own, other) = (root.join("own"), root.join("other"));
    fs::create_dir_all(&own).unwrap();
    fs::create_dir_all(&other).unwrap();
    let mut open = File::create(other.join("open")).unwrap();
    let folder = openat(CWD, &own, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let session = itself().assume().unwrap().confine(&[folder]);
    assert!(!session.notes().iter().any(|note| note.starts_with("not confined")), "{session:?}");

    // Denied: programs, sockets, signals to other processes, changes outside its folder and of permissions.
    Command::new("/bin/true").spawn().unwrap_err();
    UdpSocket::bind("127.0.0.1:0").unwrap_err();
    let parent = rustix::process::getppid();
    assert!(parent.is_none_or(|parent| rustix::process::test_kill_process(parent).is_err()));
    File::create(other.join("new")).unwrap_err();
    File::options().write(true).open(other.join("open")).unwrap_err();
    fs::remove_file(other.join("open")).unwrap_err();
    fs::set_permissions(own.join("."), fs::metadata(&own).unwrap().permissions()).unwrap_err();

    // Allowed: its own files, open files, reading, threads, memory, time.
    std::io::Write::write_all(&mut open, b"more").unwrap();
    fs::create_dir(own.join("folder")).unwrap();
    fs::write(own.join("folder/a"), "a").unwrap();
    fs::rename(own.join("folder/a"), own.join("folder/b")).unwrap();
    assert_eq!(fs::read(own.join("folder/b")).unwrap(), b"a");
    fs::remove_file(own.join("folder/b")).unwrap();
    assert_eq!(fs::read(other.join("open")).unwrap(), b"more");
    assert!(!fs::read_to_string("/proc/self/status").unwrap().is_empty());
    let many: Vec<_> = (0..16).map(|number| std::thread::spawn(move || vec![number; 1 << 20].len())).collect();
    assert!(many.into_iter().all(|thread| thread.join().unwrap() == 1 << 20));
    std::thread::sleep(std::time::Duration::from_millis(1));
}
