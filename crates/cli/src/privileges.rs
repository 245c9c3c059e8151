//! Giving privileges up: ports are opened, then the program becomes somebody else, then that user opens what is
//! written, then ([`confine()`]) the program keeps no more of the kernel than a run needs.

mod calls;
mod confine;
mod users;

pub use confine::{confine, socket_folder};
pub use users::group_number;

use self::users::User;
use crate::exit::told;
use anyhow::{Context, anyhow, bail};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

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
    pub fn assume(&self) -> anyhow::Result<()> {
        set_no_new_privs(true).context("cannot give up privileges (no_new_privs)")?;
        if let Some(user) = self.user.as_ref().filter(|_| geteuid().is_root()) {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            let told = |what: &str| format!("cannot become {}: {what}; -Z root stays root", user.name);
            set_thread_groups(&[gid]).with_context(|| told("supplementary groups cannot be given up"))?;
            set_thread_gid(gid).with_context(|| told("the group cannot be changed"))?;
            set_thread_uid(uid).with_context(|| told("the user cannot be changed"))?;
        }
        let nothing = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, nothing).context("cannot give up capabilities")?;
        #[cfg(feature = "serve")]
        crate::view::metrics::bind_path().map_err(|error| self.explain(error))?;
        Ok(())
    }

    /// Does something with the rights of that user: a thread becomes it, and no more.
    pub fn by<T: Send>(&self, act: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let become_it = || self.assume().and_then(|()| act());
        let done = std::thread::scope(|scope| scope.spawn(become_it).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The error of opening what is written, with advice where this user may not.
    pub fn explain(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let error = error.into();
        let text = told(&error);
        match &self.user {
            Some(User { name, uid, .. }) if *uid != 0 && text.contains(DENIED) => anyhow!(
                "{text}; linerate goes on as {name}: name a folder that the user {name} may write to, or another user: \
                 -Z USER (-Z root stays root)"
            ),
            _ => error,
        }
    }
}

/// How the standard library ends what it says of `EACCES`.
const DENIED: &str = "(os error 13)";

/// A container may have taken that from root.
fn may_change_users() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID))
}
