//! Sockets at which a run is told something.

use crate::exit::usage;
use anyhow::Context;
use linerate_share::{NoFile, SocketFile};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, listen, socket_with};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Bytes of the name of a socket at most (unix(7)).
const LONGEST: usize = 107;

/// Who may wait to be answered.
const BACKLOG: i32 = 16;

/// Makes one, named by `option`, that its `owner` alone may write (user and group; else the user of this process), where there is nothing, or a socket that
/// nobody listens at. Its file goes with the second.
///
/// # Errors
/// If anything else is there, or the name is too long for a socket.
pub(crate) fn listen_at(
    option: &str,
    path: &Path,
    owner: Option<(u32, u32)>,
) -> anyhow::Result<(UnixListener, SocketFile)> {
    let told = || format!("{option} {}", path.display());
    check_length(path).with_context(told)?;
    let failed = |error: Errno| anyhow::Error::new(error).context(told());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    let file = SocketFile::bind(&socket, path, false, owner).map_err(|why| match why {
        NoFile::System(error) => failed(error),
        NoFile::NoSocket => usage(format!("{}: this is there, and is no socket: choose another name", told())),
        NoFile::Taken(_) => usage(format!("{}: somebody listens there already: choose another name", told())),
    })?;
    listen(&socket, BACKLOG).map_err(failed)?;
    Ok((UnixListener::from(socket), file))
}

/// Says whether a name is too long for a socket.
pub(super) fn check_length(path: &Path) -> anyhow::Result<()> {
    let length = path.as_os_str().len();
    if length > LONGEST {
        return Err(usage(format!("the name of a socket has at most {LONGEST} bytes, and this one {length}")));
    }
    Ok(())
}
