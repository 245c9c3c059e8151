//! Unix sockets of a run.

use crate::exit::usage;
use anyhow::Context;
use linerate_share::{SocketFile, SocketFileError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, listen, socket_with};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Maximum bytes of the path of a socket (unix(7)).
const LONGEST: usize = 107;

/// Maximum pending connections.
const BACKLOG: i32 = 16;

/// Creates a socket for `option` that only its `owner` can write (user and group; default: the user of this process). Replaces a
/// stale socket. Dropping the second value removes the file.
///
/// # Errors
/// If another file exists at the path, another process listens on it, or the path is too long.
pub(crate) fn listen_at(
    option: &str,
    path: &Path,
    owner: Option<(u32, u32)>,
) -> anyhow::Result<(UnixListener, SocketFile)> {
    let name = || format!("{option} {}", path.display());
    check_length(path).with_context(name)?;
    let failed = |error: Errno| anyhow::Error::new(error).context(name());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    let file = SocketFile::bind(&socket, path, false, owner).map_err(|why| match why {
        SocketFileError::System(error) => failed(error),
        SocketFileError::NoSocket => usage(format!("{}: exists and is not a socket; use another path", name())),
        SocketFileError::Taken(_) => usage(format!("{}: in use by another process; use another path", name())),
    })?;
    listen(&socket, BACKLOG).map_err(failed)?;
    Ok((UnixListener::from(socket), file))
}

/// Checks the length of the path of a socket.
pub(super) fn check_length(path: &Path) -> anyhow::Result<()> {
    let length = path.as_os_str().len();
    if length > LONGEST {
        return Err(usage(format!("socket path too long: {length} bytes, maximum {LONGEST}")));
    }
    Ok(())
}
