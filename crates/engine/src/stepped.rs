//! Runs that their caller advances, for code that asks for frames instead of being called with them.

use crate::consumer::Consumer;
use crate::error::ReceiveError;
use crate::receive::{Receive, ReceiveLoop, RunReport};
use crate::thread_panic::{ThreadPanic, survive};

/// A run with one consumer, advanced round by round by its owner.
pub struct SteppedRun<C: Consumer> {
    receiver: ReceiveLoop,
    consumer: C,
    /// Panic of the loop, if any.
    died: Option<ThreadPanic>,
    is_over: bool,
}

impl<C: Consumer> SteppedRun<C> {
    /// Starts the run.
    pub fn start(receive: Receive, mut consumer: C) -> Self {
        let receiver = ReceiveLoop::new(receive, &mut [&mut consumer]);
        SteppedRun { receiver, consumer, died: None, is_over: false }
    }

    /// Passes the consumer the frames that are ready, or waits for some, at most 10 ms; returns false at the end of the
    /// run.
    pub fn step(&mut self) -> bool {
        if !self.is_over {
            let round = survive(|| self.receiver.round(&mut [&mut self.consumer]));
            self.is_over = !round.unwrap_or_else(|died| {
                self.died = Some(died);
                false
            });
        }
        !self.is_over
    }

    /// Returns the consumer.
    pub fn consumer(&mut self) -> &mut C {
        &mut self.consumer
    }

    /// Returns the failure of the run so far, if any.
    pub fn take_failure(&mut self) -> Option<ReceiveError> {
        self.died.take().map(ReceiveError::from).or_else(|| self.receiver.take_failure())
    }

    /// Ends the run, even if its ports have not ended.
    pub fn finish(mut self) -> (RunReport, C) {
        let report = self.receiver.finish(&mut [&mut self.consumer], self.died);
        (report, self.consumer)
    }
}
