//! Giving privileges up once everything that needs them is open.

use anyhow::{Context, bail};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

/// Who the program goes on as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The same user, without capabilities.
    Same,
    /// Another user.
    User {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
}

impl Identity {
    /// The user asked for by name or number; else whoever called sudo; else the same user.
    pub fn choose(user: Option<&str>) -> anyhow::Result<Self> {
        if let Some(user) = user {
            let identity = look_up(user)?;
            if !geteuid().is_root() && identity.owner().is_some_and(|(uid, _)| uid != geteuid().as_raw()) {
                bail!("only root can go on as user {user:?}");
            }
            return Ok(identity);
        }
        let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
        Ok(match (number("SUDO_UID"), number("SUDO_GID")) {
            (Some(uid), Some(gid)) if uid != 0 && geteuid().is_root() => Identity::User { uid, gid },
            _ => Identity::Same,
        })
    }

    /// Owner for files that the program creates, if it is to be another than the process's own.
    pub fn owner(&self) -> Option<(u32, u32)> {
        match *self {
            Identity::Same => None,
            Identity::User { uid, gid } => Some((uid, gid)),
        }
    }
}

/// Drops every capability of this thread and of threads it starts from now on, and becomes `identity`. Call it
/// while this is the only thread, with all ports and files open.
pub fn drop_to(identity: Identity) -> anyhow::Result<()> {
    set_no_new_privs(true).context("cannot give up privileges (no_new_privs)")?;
    if let Identity::User { uid, gid } = identity
        && geteuid().is_root()
    {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[gid]).context("cannot give up supplementary groups")?;
        set_thread_gid(gid).context("cannot change the group")?;
        set_thread_uid(uid).context("cannot change the user")?;
    }
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, nothing).context("cannot give up capabilities")
}

/// The number of a group, given by name or number.
pub fn group_number(group: &str) -> anyhow::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").context("cannot read /etc/group")?;
    for line in groups.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, number, ..] = fields[..]
            && name == group
        {
            return Ok(number.parse()?);
        }
    }
    bail!("there is no group {group:?} in /etc/group")
}

fn look_up(user: &str) -> anyhow::Result<Identity> {
    let passwd = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    for line in passwd.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, uid, gid, ..] = fields[..]
            && (name == user || uid == user)
        {
            return Ok(Identity::User { uid: uid.parse()?, gid: gid.parse()? });
        }
    }
    bail!("there is no user {user:?} in /etc/passwd")
}
