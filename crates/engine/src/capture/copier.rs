//! Second thread that copies frames, if requested.

use linerate_burst::helper::Helper;
use std::thread::JoinHandle;

/// Minimum number of frames in a round for two threads: below it, waking the other thread takes as long.
const WORTH_IT: usize = 512;

/// A helper and its thread, which ends with it.
#[derive(Debug)]
pub(super) struct Copier {
    /// Present until the end.
    helper: Option<Helper>,
    thread: Option<JoinHandle<()>>,
}

impl Copier {
    pub(super) fn start() -> std::io::Result<Copier> {
        let (helper, worker) = Helper::new();
        let thread = std::thread::Builder::new().name("linerate-copy".into()).spawn(|| worker.work())?;
        Ok(Copier { helper: Some(helper), thread: Some(thread) })
    }

    /// Returns the helper for a round of `frames` frames; `None` if one thread is faster.
    pub(super) fn for_frames(&mut self, frames: usize) -> Option<&mut Helper> {
        self.helper.as_mut().filter(|_| frames >= WORTH_IT)
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.helper = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was already reported, and has panicked this thread.
            let _ = thread.join();
        }
    }
}
