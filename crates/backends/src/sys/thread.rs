//! What concerns one thread alone: a network of its own, and being called out of a system call.
//!
//! Unsafe because signals and namespaces are taken from libc.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Once;

/// Its default is to be ignored, so that a stray one harms no program, and little else uses it.
const SIGNAL: i32 = libc::SIGURG;

/// Runs `work` in a network namespace without a name that holds nothing but `lo`, from a thread of its own. The
/// namespace goes when the file returned is closed and nothing else holds it, however the process ends.
pub(crate) fn in_new_network<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<(T, File)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no memory is involved; the thread ends here, so that it alone is moved.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let namespace = File::open("/proc/thread-self/ns/net")?;
            Ok((work()?, namespace))
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The thread that runs this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(libc::pid_t);

impl Caller {
    /// This thread, which can be called out of system calls from now on.
    pub(crate) fn this() -> Self {
        listen();
        // SAFETY: has no arguments and cannot fail.
        Caller(unsafe { libc::gettid() })
    }

    /// Makes a system call of that thread end with `EINTR`, if one that can is under way. The thread lives.
    pub(crate) fn interrupt(self) {
        // SAFETY: sends a signal to a thread of this process; `this` has seen to a handler.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, SIGNAL) };
    }
}

/// Installs a handler that does nothing, unless the program has one of its own.
fn listen() {
    static ONCE: Once = Once::new();
    extern "C" fn nothing(_: i32) {}
    ONCE.call_once(|| {
        // SAFETY: sigaction is plain data of which all zeros is a valid value (SIG_DFL, no flags, empty mask);
        // both calls get valid pointers, and the handler touches nothing.
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
