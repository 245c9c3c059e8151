//! What remains of a run in which this program has a bug: a panic ends the run, not the account of it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// A panic, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Died {
    thread: String,
    reason: String,
}

impl fmt::Display for Died {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Died { thread, reason } = self;
        write!(f, "thread {thread} died: {reason}; this is a bug of this program, and what was done before is told")
    }
}

impl std::error::Error for Died {}

impl Died {
    /// Of a thread that was joined.
    pub fn of(thread: &str, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Died { thread: thread.to_owned(), reason: text.unwrap_or("it gave no reason").to_owned() }
    }
}

/// Does a piece of work of this thread; a panic in it is an error. What the work had in hand may be half done: it is only to
/// be looked at, for what had been counted.
pub fn survive<T>(work: impl FnOnce() -> T) -> Result<T, Died> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| Died::of(thread::current().name().unwrap_or("without a name"), &*panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_and_its_reason_are_named() {
        let dead = thread::Builder::new().name("one".into()).spawn(|| survive(|| panic!("at {}", 7))).unwrap();
        let died: Died = dead.join().unwrap().unwrap_err();
        let text = died.to_string();
        assert!(text.starts_with("thread one died: at 7;"), "{text}");
        assert!(survive(|| 5) == Ok(5));
    }
}
