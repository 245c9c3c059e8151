//! State files of labs, and the lock for creating and removing labs.
//!
//! A state is written before anything is created and after every relevant step, by renaming a complete new file over
//! the old one, so that a crash at any time leaves nothing unrecorded.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::names;
use crate::namespace::Identity;
use crate::plan::Plan;
use crate::process::Process;

/// Directory of states; it disappears with the namespaces on restart.
const DIRECTORY: &str = "/run/linerate/lab";

/// File that becomes a state by renaming; written only by the holder of the lock.
const NEW: &str = ".new";

/// Format of a state file.
const SCHEMA: &str = "linerate/lab/1";

/// Maximum size of a state file in bytes: far above the largest plan.
const LONGEST_STATE: u64 = 1 << 20;

/// Timeout for the lock.
const PATIENCE: Duration = Duration::from_secs(60);

/// Recorded progress of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    schema: String,
    /// Requested configuration.
    pub(crate) plan: Plan,
    /// Namespaces, in the order of the plan's hosts; `None`: planned, perhaps created.
    pub(crate) namespaces: Vec<Option<Identity>>,
    /// True once every step is done.
    pub(crate) complete: bool,
    /// True to remove it after its creator has ended.
    pub(crate) temporary: bool,
    /// Process that created it.
    pub(crate) creator: Process,
}

impl State {
    /// Returns the state of a lab that this process is about to create.
    pub(crate) fn intent(plan: &Plan, temporary: bool) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            plan: plan.clone(),
            namespaces: vec![None; plan.hosts.len()],
            complete: false,
            temporary,
            creator: Process::this(),
        }
    }

    /// Returns the hosts' namespaces: name, and identity if known.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (String, Option<Identity>)> {
        self.plan.hosts.iter().zip(&self.namespaces).map(|(host, &id)| (self.plan.namespace(&host.name), id))
    }

    /// Reads and checks the state of lab `name`; `None` if it does not exist.
    pub(crate) fn load(name: &str) -> Result<Option<Self>, LabError> {
        Self::load_from(Path::new(DIRECTORY), name)
    }

    /// Returns the names of all labs that have a state, in alphabetic order.
    pub(crate) fn names() -> Result<Vec<String>, LabError> {
        let entries = match fs::read_dir(DIRECTORY) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(LabError::file("read", DIRECTORY)(e)),
        };
        let stem = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned());
        let legal = |name: &String| names::check_name(name).is_ok();
        let mut names: Vec<String> = entries.flatten().filter_map(stem).filter(legal).collect();
        names.sort();
        Ok(names)
    }

    fn load_from(directory: &Path, name: &str) -> Result<Option<Self>, LabError> {
        let path = file_in(directory, name)?;
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(LONGEST_STATE).read_to_end(&mut text).map_err(LabError::file("read", &path))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(LabError::file("open", path)(e)),
        };
        let state = Self::parse(name, &text).map_err(|problem| LabError::State {
            path,
            problem: format!("{problem}; remove the file once `ip netns list` shows no namespace {name}-..."),
        })?;
        Ok(Some(state))
    }

    fn parse(name: &str, text: &[u8]) -> Result<Self, String> {
        let state: Self = serde_json::from_slice(text).map_err(|e| format!("invalid lab state: {e}"))?;
        if state.schema != SCHEMA {
            return Err(format!("unsupported schema {:?}; expected {SCHEMA:?}", state.schema));
        }
        state.plan.validate().map_err(|e| e.to_string())?;
        if state.plan.name != name {
            return Err(format!("belongs to lab {:?}", state.plan.name));
        }
        if state.namespaces.len() != state.plan.hosts.len() {
            return Err(format!("{} namespaces for {} hosts", state.namespaces.len(), state.plan.hosts.len()));
        }
        Ok(state)
    }
}

/// States of all labs, locked: no other process creates or removes a lab while it exists.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    lock: File,
}

impl Store {
    /// Creates the directory if needed, and waits for the lock.
    pub(crate) fn lock() -> Result<Self, LabError> {
        let directory = PathBuf::from(DIRECTORY);
        make_private(Path::new("/run/linerate"))?;
        make_private(&directory)?;
        Self::lock_in(directory, PATIENCE)
    }

    fn lock_in(directory: PathBuf, patience: Duration) -> Result<Self, LabError> {
        let path = directory.join(".lock");
        // Read-only for us, and no access for others: a process that can open it could hold the lock.
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        let lock = File::from(opened.map_err(|e| LabError::file("open", &path)(e.into()))?);
        let started = Instant::now();
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // Left by a writer that was killed before it could rename it.
                    let _ = fs::remove_file(directory.join(NEW));
                    return Ok(Self { directory, lock });
                }
                Err(rustix::io::Errno::WOULDBLOCK) if started.elapsed() < patience => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(LabError::Busy { path, seconds: patience.as_secs() }),
                Err(e) => return Err(LabError::file("lock", path)(e.into())),
            }
        }
    }

    /// Returns the lock as the standard output of a child, which then holds it too.
    pub(crate) fn lock_handle(&self) -> io::Result<Stdio> {
        self.lock.try_clone().map(Stdio::from)
    }

    /// Writes a lab's state atomically.
    pub(crate) fn save(&self, state: &State) -> Result<(), LabError> {
        let path = file_in(&self.directory, &state.plan.name)?;
        let new = self.directory.join(NEW);
        let text = serde_json::to_vec_pretty(state).map_err(|e| LabError::file("write", &new)(e.into()))?;
        fs::write(&new, text).map_err(LabError::file("write", &new))?;
        fs::rename(&new, &path).map_err(LabError::file("write", path))
    }

    /// Removes a lab's state.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LabError> {
        let path = file_in(&self.directory, name)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LabError::file("remove", path)(e)),
            _ => Ok(()),
        }
    }
}

/// Returns the path of a state file; the name is checked, as it becomes part of a path.
fn file_in(directory: &Path, name: &str) -> Result<PathBuf, LabError> {
    names::check_name(name).map_err(|_| LabError::NoSuchLab { name: name.to_owned() })?;
    Ok(directory.join(format!("{name}.json")))
}

/// Creates a directory that only root can write, or checks that it is one.
fn make_private(path: &Path) -> Result<(), LabError> {
    match DirBuilder::new().mode(0o755).create(path) {
        // The umask may have cleared bits.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(LabError::file("set up", path))?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(LabError::file("create", path)(e)),
    }
    let metadata = fs::symlink_metadata(path).map_err(LabError::file("examine", path))?;
    if metadata.is_dir() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let problem =
        "must be a directory that only root can write; remove it, or `chown root` and `chmod 755` it".to_owned();
    Err(LabError::State { path: path.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A temporary directory, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("linerate-lab-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn state() -> State {
        let plan = Plan::from_links("demo", vec!["left:eth0=10.0.0.1/24,right:eth0".parse().unwrap()]).unwrap();
        State::intent(&plan, true)
    }

    #[test]
    fn saved_state_is_loaded_and_can_be_removed() {
        let scratch = Scratch::new("save");
        let store = Store::lock_in(scratch.0.clone(), PATIENCE).unwrap();
        assert_eq!(State::load_from(&scratch.0, "demo").unwrap(), None);
        let mut state = state();
        store.save(&state).unwrap();
        state.complete = true;
        store.save(&state).unwrap();
        assert_eq!(State::load_from(&scratch.0, "demo").unwrap(), Some(state));
        store.remove("demo").unwrap();
        store.remove("demo").unwrap();
        assert_eq!(State::load_from(&scratch.0, "demo").unwrap(), None);
        assert!(matches!(State::load_from(&scratch.0, "../demo"), Err(LabError::NoSuchLab { .. })));
    }

    #[test]
    fn leftovers_of_a_killed_writer_are_removed() {
        let scratch = Scratch::new("new");
        fs::write(scratch.0.join(NEW), "{").unwrap();
        let _store = Store::lock_in(scratch.0.clone(), PATIENCE).unwrap();
        assert!(!scratch.0.join(NEW).exists());
    }

    #[test]
    fn invalid_state_is_rejected() {
        let good = serde_json::to_string(&state()).unwrap();
        assert!(State::parse("demo", good.as_bytes()).is_ok());
        assert!(State::parse("other", good.as_bytes()).unwrap_err().contains("lab \"demo\""));
        let bad = [
            ("\"name\":\"left\"", "\"name\":\"../../etc\""),
            ("\"host\":\"left\"", "\"host\":\"middle\""),
            ("\"interface\":\"eth0\"", "\"interface\":\"eth0 up\""),
            ("[null,null]", "[null]"),
            ("linerate/lab/1", "linerate/lab/2"),
            ("\"complete\":false", "\"complete\":false,\"more\":1"),
            ("}", ""),
        ];
        for (from, to) in bad {
            assert!(good.contains(from), "{from} is not in {good}");
            assert!(State::parse("demo", good.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn child_keeps_the_lock_after_its_parent_exits() {
        let scratch = Scratch::new("lock");
        let store = Store::lock_in(scratch.0.clone(), PATIENCE).unwrap();
        let mut child = Command::new("sleep").arg("30").stdout(store.lock_handle().unwrap()).spawn().unwrap();
        drop(store);
        let refused = Store::lock_in(scratch.0.clone(), Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(refused, Err(LabError::Busy { .. })), "{refused:?}");
        assert!(Store::lock_in(scratch.0.clone(), PATIENCE).is_ok());
    }

    #[test]
    fn directory_writable_by_others_is_rejected() {
        let scratch = Scratch::new("mode");
        fs::set_permissions(&scratch.0, Permissions::from_mode(0o777)).unwrap();
        assert!(make_private(&scratch.0).unwrap_err().to_string().contains("only root"));
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink("/run", &link).unwrap();
        assert!(make_private(&link).is_err(), "a symbolic link is not followed");
    }
}
