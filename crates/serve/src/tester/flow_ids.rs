//! Ids of flows in trailers, and the accounts kept by id.
//!
//! A flow with trailers gets a new id at each start, so that frames still in flight from before are ignored. The
//! account of the previous id is closed and its memory reused.

use super::Tester;
use crate::reception::account;
use crate::running_flow::matchers;
use linerate_burst::random::mix;
use linerate_generate::stream::Mark;
use linerate_generate::trailer::Key;
use linerate_otg::read::Faults;

/// Number of accounts closed per lock, so that the receiver can continue.
const AT_ONCE: usize = 256;

impl Tester {
    /// Assigns ids to starting flows.
    ///
    /// # Errors
    /// No ids are left; then nothing changes.
    pub(super) fn number(&mut self, flows: &[usize]) -> Result<(), Faults> {
        let is_new = |at: &usize| self.config.flows[*at].stream.mark == Mark::Trailer || self.running[*at].id == 0;
        let new: Vec<usize> = flows.iter().copied().filter(is_new).collect();
        if self.next_id as usize + new.len() > self.numbers {
            let mut faults = Faults::default();
            let what = format_args!(
                "flows have started {} times since all were stopped, and no trailer ids are left; stop all of them once",
                self.next_id - 1
            );
            faults.add("", what);
            return Err(faults);
        }
        let mut ended = Vec::new();
        for at in new {
            let (stream, running) = (&self.config.flows[at].stream, &mut self.running[at]);
            ended.extend((running.id != 0).then_some(running.id));
            running.id = self.next_id;
            self.next_id += 1;
            if stream.mark != Mark::Trailer {
                for place in &running.rx {
                    let mut reception = self.ports[*place].listener.reception();
                    matchers(stream).for_each(|matcher| reception.check.count_only(running.id, matcher));
                }
            }
        }
        self.forget(&ended);
        Ok(())
    }

    /// Closes the accounts of these ids.
    pub(super) fn forget(&self, ids: &[u32]) {
        for port in &self.ports {
            ids.chunks(AT_ONCE).for_each(|some| port.listener.reception().check.forget(some));
        }
    }

    /// Freezes the figures of a flow and releases its id, which is returned if it had one.
    pub(super) fn freeze(&mut self, at: usize) -> Option<u32> {
        let figures = self.figures(at);
        let running = &mut self.running[at];
        let id = std::mem::take(&mut running.id);
        if id != 0 {
            running.frozen.get_or_insert(figures);
        }
        (id != 0).then_some(id)
    }

    /// Starts new accounts with a new key, so that older frames are ignored; figures are kept.
    pub(super) fn renew(&mut self) {
        for at in 0..self.running.len() {
            self.freeze(at);
        }
        self.key = mix(self.key) | 1;
        self.next_id = 1;
        for port in &self.ports {
            port.listener.reception().check = account(Key(self.key), self.room);
        }
    }
}

#[cfg(test)]
impl Tester {
    /// Sets the number of streams per account, and the limit of ids.
    pub(super) fn with_room(self, room: usize, numbers: usize) -> Self {
        Tester { room, numbers, ..self }
    }
}
