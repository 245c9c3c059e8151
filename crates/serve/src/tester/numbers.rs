//! The numbers of flows in trailers, and the accounts that are kept by them.
//!
//! A flow with trailers has another number each time that it begins: what is still on the way from before is nobody's then. The account of
//! the number before is closed, and its memory another's.

use super::Tester;
use crate::listen::account;
use crate::running::matchers;
use linerate_burst::random::mix;
use linerate_generate::stream::Mark;
use linerate_generate::trailer::Key;
use linerate_otg::read::Faults;

/// Accounts that are closed before whoever receives gets on.
const AT_ONCE: usize = 256;

impl Tester {
    /// Gives flows that begin their numbers.
    ///
    /// # Errors
    /// If there are no more; then none has another.
    pub(super) fn number(&mut self, flows: &[usize]) -> Result<(), Faults> {
        let is_new = |at: &usize| self.config.flows[*at].stream.mark == Mark::Trailer || self.running[*at].id == 0;
        let new: Vec<usize> = flows.iter().copied().filter(is_new).collect();
        if self.next_id as usize + new.len() > self.numbers {
            let mut faults = Faults::default();
            let what = format_args!(
                "flows have started {} times since all were stopped, and a trailer has no number for more: stop all of them once",
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
                    let mut heard = self.ports[*place].listener.heard();
                    matchers(stream).for_each(|matcher| heard.check.count_only(running.id, matcher));
                }
            }
        }
        self.forget(&ended);
        Ok(())
    }

    /// Closes the accounts of these numbers.
    pub(super) fn forget(&self, ids: &[u32]) {
        for port in &self.ports {
            ids.chunks(AT_ONCE).for_each(|some| port.listener.heard().check.forget(some));
        }
    }

    /// What a flow came to stays known, and its number is none any more: that is returned, where it had one.
    pub(super) fn freeze(&mut self, at: usize) -> Option<u32> {
        let figures = self.figures(at);
        let running = &mut self.running[at];
        let id = std::mem::take(&mut running.id);
        if id != 0 {
            running.frozen.get_or_insert(figures);
        }
        (id != 0).then_some(id)
    }

    /// New accounts and another key, so that frames of before are nobody's; what they had come to stays known.
    pub(super) fn renew(&mut self) {
        for at in 0..self.running.len() {
            self.freeze(at);
        }
        self.key = mix(self.key) | 1;
        self.next_id = 1;
        for port in &self.ports {
            port.listener.heard().check = account(Key(self.key), self.room);
        }
    }
}

#[cfg(test)]
impl Tester {
    /// With accounts for so many streams, and numbers below this.
    pub(super) fn with_room(self, room: usize, numbers: usize) -> Self {
        Tester { room, numbers, ..self }
    }
}
