//! Sockets at which a run is told something.

use crate::exit::usage;
use anyhow::Context;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Bytes of the name of a socket at most (unix(7)).
const LONGEST: usize = 107;

/// Makes one that its owner alone may write, where there is nothing, or a socket that nobody listens at.
///
/// # Errors
/// If anything else is there, or the name is too long for a socket.
pub fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let told = || format!("--control {}", path.display());
    check_length(path).with_context(told)?;
    // Of a run that was killed. Connecting to a file is refused as well.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path).with_context(told)?;
    }
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => usage(format!("{}: something is there already", told())),
        _ => anyhow::Error::new(error).context(told()),
    })?;
    listener.set_nonblocking(true).with_context(told)?;
    Ok(listener)
}

/// Says whether a name is too long for a socket.
pub fn check_length(path: &Path) -> anyhow::Result<()> {
    let length = path.as_os_str().len();
    if length > LONGEST {
        return Err(usage(format!("the name of a socket has at most {LONGEST} bytes, and this one {length}")));
    }
    Ok(())
}
