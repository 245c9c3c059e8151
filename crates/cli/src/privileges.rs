//! Giving privileges up: ports are opened, then the program becomes somebody else, then that user opens what is
//! written, then ([`Assumed::confine`]) the program keeps no more of the kernel than a run needs.
//!
//! Every run takes both steps, or states with [`keep`] why it does not: [`settled`] fails otherwise, and without it no
//! run handles signals.

mod calls;
mod confine;
mod threads;
mod users;

pub use confine::{read_places, socket_folder};
pub use users::group_number;

use self::users::User;
use crate::exit::told;
use anyhow::{Context, anyhow, bail};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use rustix::thread::{set_keep_capabilities, set_thread_gid, set_thread_groups, set_thread_uid};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Capability to read files of any user: a search opens its files one after the other.
pub const READING: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// Capabilities to open interfaces again during a run.
pub const OPENING: CapabilitySet = CapabilitySet::NET_RAW
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK);

/// Whether this run has dropped its rights, or has stated why it keeps them.
static SETTLED: AtomicBool = AtomicBool::new(false);

/// Keeps the rights of this run, which reads nothing that others have written: `_why` is for the reader of the code.
pub fn keep(_why: &str) {
    SETTLED.store(true, Ordering::Relaxed);
}

/// Fails where neither [`Assumed::confine`] nor [`keep`] came first.
pub fn settled() -> anyhow::Result<()> {
    if SETTLED.load(Ordering::Relaxed) { Ok(()) } else { bail!("privileges were not dropped before the run (a bug)") }
}

/// Takes up the capabilities that this process may have: those of the program's file need not be in effect when it starts,
/// so that it starts all the same where some of them may not be had.
pub fn take_up() {
    if let Ok(sets) = capabilities(None) {
        // What this cannot change is missed by whoever needs it, who says so.
        let _ = set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets });
    }
}

/// Who the program goes on as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `None`: the same user as before.
    user: Option<User>,
    /// Whether nobody asked for it, and it is not the caller.
    is_default: bool,
}

impl Identity {
    /// The user asked for by name or number; else whoever called sudo, doas or pkexec; else, where root opens interfaces
    /// (`is_live`), `linerate` or `nobody`, since what comes from the wire is written by others; else the same user.
    pub fn choose(user: Option<&str>, is_live: bool) -> anyhow::Result<Self> {
        let asked = |user| Identity { user, is_default: false };
        if let Some(text) = user {
            let user = users::named(text)?;
            if !geteuid().is_root() && user.uid != geteuid().as_raw() {
                bail!("only root can go on as user {text:?}");
            }
            return Ok(asked(Some(user)));
        }
        if !geteuid().is_root() {
            return Ok(asked(None));
        }
        Ok(match users::caller()? {
            Some(user) => asked(Some(user)),
            None if is_live => {
                let user = may_change_users().then(users::unprivileged).transpose()?;
                Identity { user, is_default: true }
            }
            None => asked(None),
        })
    }

    /// User and group that the program becomes, if it is to be another than the process's own.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.user.as_ref().map(|user| (user.uid, user.gid))
    }

    /// What those should know who asked for no user.
    pub fn note(&self) -> Option<String> {
        Some(match &self.user {
            _ if !self.is_default => return None,
            Some(User { name, .. }) => format!("goes on as {name}; -Z USER names another, -Z root stays root"),
            None => "stays root, which may not become another user here".to_owned(),
        })
    }

    /// Drops every capability of this thread and of threads it starts from now on, and becomes that user. Call it while
    /// this is the only thread, with all ports open, and before what is written is opened.
    pub fn assume(&self) -> anyhow::Result<Assumed<'_>> {
        self.assume_keeping(CapabilitySet::empty())
    }

    /// The same, but keeps those capabilities of `kept` that the process has.
    pub fn assume_keeping(&self, kept: CapabilitySet) -> anyhow::Result<Assumed<'_>> {
        let kept = self.become_user(kept)?;
        #[cfg(feature = "serve")]
        crate::view::metrics::bind_path().map_err(|error| self.explain(error))?;
        Ok(Assumed { identity: self, kept })
    }

    /// Changes the user and the capabilities of this thread; returns the capabilities that are left.
    fn become_user(&self, kept: CapabilitySet) -> anyhow::Result<CapabilitySet> {
        set_no_new_privs(true).context("cannot give up privileges (no_new_privs)")?;
        let had = capabilities(None).context("cannot read capabilities")?.permitted;
        let kept = had & kept;
        // Root that stays root and has dropped its rights already may not set groups again.
        let is_done = |user: &&User| user.uid == 0 && !had.contains(CapabilitySet::SETGID);
        if let Some(user) = self.user.as_ref().filter(|_| geteuid().is_root()).filter(|user| !is_done(user)) {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            let told = |what: &str| format!("cannot become {}: {what}; -Z root stays root", user.name);
            set_thread_groups(&[gid]).with_context(|| told("supplementary groups cannot be given up"))?;
            set_thread_gid(gid).with_context(|| told("the group cannot be changed"))?;
            // The kernel clears all of them where root becomes another user.
            set_keep_capabilities(!kept.is_empty()).context("cannot keep capabilities")?;
            set_thread_uid(uid).with_context(|| told("the user cannot be changed"))?;
        }
        let left = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, left).context("cannot give up capabilities")?;
        Ok(kept)
    }

    /// Does something with the rights of that user: a thread becomes it, and no more.
    pub fn by<T: Send>(&self, act: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let become_it = || self.become_user(CapabilitySet::empty()).and_then(|_| act());
        let done = std::thread::scope(|scope| scope.spawn(become_it).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The error of opening an output; where this user may not write there it names the user and the remedy.
    pub fn explain(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let error = error.into();
        let (cause, remedy) = match &self.user {
            Some(User { name, uid, .. }) if *uid != 0 => {
                (format!("permission denied for user {name}"), "use -Z root to stay root, -Z USER, or another folder")
            }
            None if geteuid().is_root() => (
                "permission denied for root, which drops its right to write to files of other users".to_owned(),
                "use -Z USER with the owner of the folder, or another folder",
            ),
            _ => return error,
        };
        let text = told(&error);
        if text.contains(DENIED) { anyhow!("{}; {remedy}", text.replace(DENIED, &cause)) } else { error }
    }
}

/// The rights of a run that has dropped those of its start, before it is confined.
#[must_use = "a run is confined before it reads what others have written"]
pub struct Assumed<'a> {
    identity: &'a Identity,
    kept: CapabilitySet,
}

impl Assumed<'_> {
    /// Confines this thread and those it starts from now on: files are made, replaced and removed beneath `folders` alone,
    /// what is open stays open. Call it while this is the only thread. Returns notes for the user: the new identity,
    /// what could not be done, and threads that have more rights than this one.
    pub fn confine(self, folders: &[OwnedFd]) -> Vec<String> {
        self.settle(|| confine::confine(folders, None))
    }

    /// The same, and files are read beneath `places` alone.
    pub fn confine_reading(self, folders: &[OwnedFd], places: &[OwnedFd]) -> Vec<String> {
        self.settle(|| confine::confine(folders, Some(places)))
    }

    /// Leaves the run unconfined, for this reason.
    pub fn unconfined(self, reason: &str) -> Vec<String> {
        self.settle(|| vec![format!("not confined in system calls and files: {reason}")])
    }

    fn settle(self, confine: impl FnOnce() -> Vec<String>) -> Vec<String> {
        // Afterwards /proc may be out of reach.
        let threads = threads::beyond(self.kept);
        let notes = self.identity.note().into_iter().chain(threads).chain(confine()).collect();
        SETTLED.store(true, Ordering::Relaxed);
        notes
    }
}

/// The text of `EACCES` in the standard library.
const DENIED: &str = "Permission denied (os error 13)";

/// A container may have taken that from root.
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
            told(&identity.explain(error(13))),
            "cannot write rep.html: permission denied for user nobody; use -Z root to stay root, -Z USER, or another folder"
        );
        let full = "cannot write rep.html: No space left on device (os error 28)";
        assert_eq!(told(&identity.explain(error(28))), full);
    }
}
