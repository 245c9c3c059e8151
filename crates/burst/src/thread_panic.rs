//! Panics as errors: a panic (a bug of this program) ends a run, but its counters are still reported.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// A panic: its thread and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPanic {
    thread: String,
    reason: String,
}

impl fmt::Display for ThreadPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ThreadPanic { thread, reason } = self;
        write!(f, "thread {thread} panicked: {reason}; this is a bug in linerate, please report it")
    }
}

impl std::error::Error for ThreadPanic {}

impl ThreadPanic {
    /// Returns the panic of a thread that was joined.
    pub fn of(thread: &str, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        ThreadPanic { thread: thread.to_owned(), reason: text.unwrap_or("no message").to_owned() }
    }
}

/// Runs `work` in this thread and returns its panic as an error. Data that the work was changing may be half changed:
/// only read it, for counters.
pub fn survive<T>(work: impl FnOnce() -> T) -> Result<T, ThreadPanic> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| ThreadPanic::of(thread::current().name().unwrap_or("without a name"), &*panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_and_its_reason_are_named() {
        let dead = thread::Builder::new().name("one".into()).spawn(|| survive(|| panic!("at {}", 7))).unwrap();
        let died: ThreadPanic = dead.join().unwrap().unwrap_err();
        let text = died.to_string();
        assert!(text.starts_with("thread one panicked: at 7;"), "{text}");
        assert!(survive(|| 5) == Ok(5));
    }
}
