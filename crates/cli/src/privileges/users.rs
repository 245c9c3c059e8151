//! Users and groups by name and number, and the caller of sudo, doas or pkexec.

use anyhow::{Context, bail};
use std::env::var;

/// A user and its primary group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
}

/// Number of the user `nobody` and of its group.
const NOGROUP: u32 = 65_534;

/// Returns the user of this name or number.
pub(super) fn named(user: &str) -> anyhow::Result<User> {
    find(user)?.with_context(|| format!("no such user {user:?} in /etc/passwd"))
}

/// Returns the caller of sudo, doas or pkexec, unless it was root.
pub(super) fn caller() -> anyhow::Result<Option<User>> {
    let number = |name| var(name).ok().and_then(|value| value.parse::<u32>().ok()).filter(|number| *number != 0);
    if let Some(uid) = number("SUDO_UID") {
        let gid = var("SUDO_GID").ok().and_then(|gid| gid.parse().ok());
        return numbered(uid, gid).map(Some);
    }
    if let Ok(user) = var("DOAS_USER") {
        return Ok(Some(named(&user).context("DOAS_USER")?).filter(|user| user.uid != 0));
    }
    number("PKEXEC_UID").map(|uid| numbered(uid, None)).transpose()
}

/// Returns the user `linerate` if it exists, else `nobody`.
pub(super) fn unprivileged() -> anyhow::Result<User> {
    for name in ["linerate", "nobody"] {
        if let Some(user) = find(name)?.filter(|user| user.uid != 0) {
            return Ok(user);
        }
    }
    Ok(User { uid: NOGROUP, gid: NOGROUP, name: "nobody".to_owned() })
}

/// Returns the number of a group given by name or number.
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
    bail!("no such group {group:?} in /etc/group")
}

fn numbered(uid: u32, gid: Option<u32>) -> anyhow::Result<User> {
    let known = find(&uid.to_string()).unwrap_or(None);
    let name = known.as_ref().map_or_else(|| format!("user {uid}"), |user| user.name.clone());
    Ok(User { uid, gid: gid.or(known.map(|user| user.gid)).unwrap_or(NOGROUP), name })
}

/// Finds a user by name or number. A missing `/etc/passwd`, as in containers, counts as empty.
fn find(user: &str) -> anyhow::Result<Option<User>> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for line in passwd.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, uid, gid, ..] = fields[..]
            && (name == user || uid == user)
        {
            return Ok(Some(User { uid: uid.parse()?, gid: gid.parse()?, name: name.to_owned() }));
        }
    }
    Ok(None)
}
