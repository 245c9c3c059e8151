//! Operations on a single thread: a private network namespace, and interrupting a system call.
//!
//! Unsafe because signals and namespaces are taken from libc.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Once;

/// Ignored by default, so that a stray one affects no program, and hardly used otherwise.
const SIGNAL: i32 = libc::SIGURG;

/// Runs `work` in an unnamed network namespace that holds only `lo`, in its own thread. The namespace is removed when
/// the returned file is closed and nothing else holds it, however the process ends.
pub(crate) fn in_new_network<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<(T, File)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no memory is involved; the thread ends here, so only it is moved.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let namespace = File::open("/proc/thread-self/ns/net")?;
            Ok((work()?, namespace))
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A thread that can be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(libc::pid_t);

impl Caller {
    /// Returns this thread, whose system calls can be interrupted from now on.
    pub(crate) fn this() -> Self {
        listen();
        // SAFETY: has no arguments and cannot fail.
        Caller(unsafe { libc::gettid() })
    }

    /// Makes an interruptible system call of that thread end with `EINTR`, if one is in progress. The thread must be
    /// alive.
    pub(crate) fn interrupt(self) {
        // SAFETY: sends a signal to a thread of this process; `this` has installed a handler.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, SIGNAL) };
    }
}

/// Installs an empty handler, unless the program has its own.
fn listen() {
    static ONCE: Once = Once::new();
    extern "C" fn nothing(_: i32) {}
    ONCE.call_once(|| {
        // SAFETY: sigaction is plain data of which all zeros is a valid value (SIG_DFL, no flags, empty mask); both
        // calls get valid pointers, and the handler accesses no memory.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(SIGNAL, std::ptr::null(), &mut action) == 0
                && (action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN)
            {
                action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(SIGNAL, &action, std::ptr::null_mut());
            }
        }
    });
}
