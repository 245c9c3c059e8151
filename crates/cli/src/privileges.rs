//! Dropping privileges: open ports, become another user, open outputs as that user, then confine the process to the files and
//! system calls that a run needs ([`DroppedPrivileges::confine`]).
//!
//! Both steps, or a reason to keep the rights, make a [`Session`], without which no run can handle signals.

mod confine;
mod syscalls;
mod threads;
mod users;

pub use confine::{folders_of, socket_folder};
pub use users::group_number;

use self::users::User;
use crate::exit::error_text;
use anyhow::{Context, anyhow, bail};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use rustix::thread::{set_keep_capabilities, set_thread_gid, set_thread_groups, set_thread_uid};
use std::os::fd::OwnedFd;

/// Capability to read files of any user, for a search that opens its files one by one.
pub const READING: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// Capabilities to open interfaces again during a run.
pub const OPENING: CapabilitySet = CapabilitySet::NET_RAW
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK);

/// Raises permitted capabilities to effective. File capabilities need not be effective at start, so that the program also starts
/// where some of them are not available.
pub fn acquire() {
    if let Ok(sets) = capabilities(None) {
        // A missing capability is reported by the call that needs it.
        let _ = set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets });
    }
}

/// User that the program runs as after dropping privileges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `None`: the same user as before.
    user: Option<User>,
    /// True if it is neither given by `-Z` nor the caller.
    is_default: bool,
}

impl Identity {
    /// Returns the user given by name or number; else the caller of sudo, doas or pkexec; else, if root opens interfaces
    /// (`is_live`), `linerate` or `nobody`, since packets are untrusted input; else the same user.
    pub fn choose(user: Option<&str>, is_live: bool) -> anyhow::Result<Self> {
        let chosen = |user| Identity { user, is_default: false };
        if let Some(text) = user {
            let user = users::named(text)?;
            if !geteuid().is_root() && user.uid != geteuid().as_raw() {
                bail!("-Z {text}: only root can change to another user");
            }
            return Ok(chosen(Some(user)));
        }
        if !geteuid().is_root() {
            return Ok(chosen(None));
        }
        Ok(match users::caller()? {
            Some(user) => chosen(Some(user)),
            None if is_live => {
                let user = may_change_users().then(users::unprivileged).transpose()?;
                Identity { user, is_default: true }
            }
            None => chosen(None),
        })
    }

    /// Returns the user and group to change to, or `None` to stay the same user.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.user.as_ref().map(|user| (user.uid, user.gid))
    }

    /// Returns a note about a user that was chosen by default.
    pub fn note(&self) -> Option<String> {
        Some(match &self.user {
            _ if !self.is_default => return None,
            Some(User { name, .. }) => {
                format!("dropped privileges to {name} (-Z USER to change, -Z root to stay root)")
            }
            None => "running as root: it cannot change to another user here".to_owned(),
        })
    }

    /// Drops every capability of this thread and of threads it starts later, and becomes that user. Call it while this is the
    /// only thread, after opening all ports, and before opening outputs.
    pub fn assume(&self) -> anyhow::Result<DroppedPrivileges<'_>> {
        self.assume_keeping(CapabilitySet::empty())
    }

    /// Like [`assume`](Identity::assume), but keeps those capabilities of `kept` that the process has.
    pub fn assume_keeping(&self, kept: CapabilitySet) -> anyhow::Result<DroppedPrivileges<'_>> {
        let kept = self.become_user(kept)?;
        #[cfg(feature = "serve")]
        crate::view::metrics::bind_path().map_err(|error| self.explain(error))?;
        Ok(DroppedPrivileges { identity: self, kept })
    }

    /// Changes the user and the capabilities of this thread; returns the remaining capabilities.
    fn become_user(&self, kept: CapabilitySet) -> anyhow::Result<CapabilitySet> {
        set_no_new_privs(true).context("cannot drop privileges (no_new_privs)")?;
        let had = capabilities(None).context("cannot read capabilities")?.permitted;
        let kept = had & kept;
        // Root that stays root and has already dropped its capabilities cannot set groups again.
        let is_done = |user: &&User| user.uid == 0 && !had.contains(CapabilitySet::SETGID);
        if let Some(user) = self.user.as_ref().filter(|_| geteuid().is_root()).filter(|user| !is_done(user)) {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            let text = |what: &str| format!("cannot change to user {}: {what}; use -Z root to stay root", user.name);
            set_thread_groups(&[gid]).with_context(|| text("cannot drop supplementary groups"))?;
            set_thread_gid(gid).with_context(|| text("cannot change the group"))?;
            // The kernel clears all of them when root becomes another user.
            set_keep_capabilities(!kept.is_empty()).context("cannot keep capabilities")?;
            set_thread_uid(uid).with_context(|| text("cannot change the user ID"))?;
        }
        let left = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, left).context("cannot drop capabilities")?;
        Ok(kept)
    }

    /// Runs `act` with the rights of that user, in a separate thread.
    pub fn by<T: Send>(&self, act: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let become_it = || self.become_user(CapabilitySet::empty()).and_then(|_| act());
        let done = std::thread::scope(|scope| scope.spawn(become_it).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the error of opening an output; permission errors name the user and the remedy, a missing directory its remedy.
    pub fn explain(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let error = error.into();
        let text = error_text(&error);
        if text.ends_with(MISSING) {
            return anyhow!("{}no such directory; create it first", text.trim_end_matches(MISSING));
        }
        let (cause, remedy) = match &self.user {
            Some(User { name, uid, .. }) if *uid != 0 => (
                format!("permission denied for user {name}"),
                "use -Z root to stay root, -Z USER, or another directory",
            ),
            None if geteuid().is_root() => (
                "permission denied for root, which has dropped its right to write to files of other users".to_owned(),
                "use -Z USER with the owner of the directory, or another directory",
            ),
            _ => return error,
        };
        if text.contains(DENIED) { anyhow!("{}; {remedy}", text.replace(DENIED, &cause)) } else { error }
    }
}

/// A run that may begin: it is confined, or keeps its rights for a reason.
#[must_use = "a run must handle signals"]
#[derive(Debug)]
pub struct Session {
    notes: Vec<String>,
}

impl Session {
    /// Keeps the privileges of a run that reads no data of others: `_why` documents the reason in the code.
    pub fn keeping(_why: &str) -> Session {
        Session { notes: Vec::new() }
    }

    /// Returns notes for the user: the new identity, failures, and threads with more rights than this one.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// A run that has dropped privileges, before it is confined: it opens its outputs.
#[must_use = "a run must be confined before it reads untrusted input"]
pub struct DroppedPrivileges<'a> {
    identity: &'a Identity,
    kept: CapabilitySet,
}

impl DroppedPrivileges<'_> {
    /// Opens outputs as the new user; errors as of [`Identity::explain`].
    pub fn open<T>(&self, open: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        open().map_err(|error| self.identity.explain(error))
    }

    /// Confines this thread and those it starts later: files can be created, replaced and removed only below `folders`; open
    /// files stay open. Call it while this is the only thread.
    pub fn confine(self, folders: &[OwnedFd]) -> Session {
        self.settle(|| confine::confine(folders, None))
    }

    /// Like [`confine`](DroppedPrivileges::confine), and files can be read only below `places`.
    pub fn confine_reading(self, folders: &[OwnedFd], places: &[OwnedFd]) -> Session {
        self.settle(|| confine::confine(folders, Some(places)))
    }

    /// Leaves the run unconfined, and reports this reason.
    pub fn unconfined(self, reason: &str) -> Session {
        self.settle(|| vec![format!("not confined (system calls, files): {reason}")])
    }

    fn settle(self, confine: impl FnOnce() -> Vec<String>) -> Session {
        // After confinement /proc may be unreadable.
        let threads = threads::beyond(self.kept);
        Session { notes: self.identity.note().into_iter().chain(threads).chain(confine()).collect() }
    }
}

/// The text of `EACCES` in the standard library.
const DENIED: &str = "Permission denied (os error 13)";

/// The text of `ENOENT` in the standard library.
const MISSING: &str = "No such file or directory (os error 2)";

/// Returns whether root can change users; a container may not allow it.
fn may_change_users() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn a_denied_output_names_the_user_and_the_remedy() {
        let nobody = User { name: "nobody".into(), uid: 65534, gid: 65534 };
        let identity = Identity { user: Some(nobody), is_default: true };
        let error = |code| anyhow::Error::new(Error::from_raw_os_error(code)).context("cannot write rep.html");
        assert_eq!(
            error_text(&identity.explain(error(13))),
            "cannot write rep.html: permission denied for user nobody; use -Z root to stay root, -Z USER, or another directory"
        );
        let missing = "cannot write rep.html: no such directory; create it first";
        assert_eq!(error_text(&identity.explain(error(2))), missing);
        let full = "cannot write rep.html: No space left on device (os error 28)";
        assert_eq!(error_text(&identity.explain(error(28))), full);
    }
}
