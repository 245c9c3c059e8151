//! The second thread that copies frames, where one was asked for.

use linerate_burst::helper::Helper;
use std::thread::JoinHandle;

/// Rounds of fewer frames are copied by one thread: calling another takes as long.
const WORTH_IT: usize = 512;

/// A helper and its thread, which ends with it.
#[derive(Debug)]
pub(super) struct Copier {
    /// There until the end.
    helper: Option<Helper>,
    thread: Option<JoinHandle<()>>,
}

impl Copier {
    /// Starts the thread.
    pub(super) fn start() -> std::io::Result<Copier> {
        let (helper, worker) = Helper::new();
        let thread = std::thread::Builder::new().name("linerate-copy".into()).spawn(|| worker.work())?;
        Ok(Copier { helper: Some(helper), thread: Some(thread) })
    }

    /// For a round of so many frames, who helps; `None` if that takes longer than to copy them alone.
    pub(super) fn for_frames(&mut self, frames: usize) -> Option<&mut Helper> {
        self.helper.as_mut().filter(|_| frames >= WORTH_IT)
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.helper = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told already, and this thread has panicked over it.
            let _ = thread.join();
        }
    }
}
