//! A port of a run: its lanes report what happens to it, each for itself, and it is an event once.

use super::State;
use linerate_port::PortError;
use linerate_port::contract::Monitor;
use linerate_wire::Link;

const CAME_BACK: &str = "the interface that was down delivers frames again";

/// A port of a run, and what has happened to it.
pub(super) struct Port {
    pub name: String,
    pub monitor: Option<Box<dyn Monitor>>,
    pub filter: String,
    /// How often the port went down, and whether it is down: all its lanes report that, each for itself.
    downs: u64,
    is_down: bool,
    /// Why the port failed for good, as reported.
    failed: Option<String>,
    /// The place of each of its interfaces in the list of all.
    pub map: Vec<u16>,
    /// What frames of each begin with.
    pub links: Vec<Option<Link>>,
}

impl Port {
    /// An open port.
    pub(super) fn new(name: String, monitor: Option<Box<dyn Monitor>>, filter: String) -> Self {
        Port { name, monitor, filter, downs: 0, is_down: false, failed: None, map: Vec::new(), links: Vec::new() }
    }

    /// The event that the port is up again, if a lane that has reported it down brings frames.
    pub(super) fn back_up(&mut self, downs: u64, brings: bool) -> Option<String> {
        if !(brings && self.is_down && downs == self.downs) {
            return None;
        }
        self.is_down = false;
        Some(format!("{}: {CAME_BACK}", self.name))
    }

    /// The queue of a lane failed, for now or for good. Each lane of a port reports what happens to the port: it is an event once.
    pub(super) fn fail(
        &mut self,
        (state, downs): (&mut State, &mut u64),
        error: PortError,
        failure: &mut Option<PortError>,
    ) -> Option<String> {
        let event = error.to_string();
        match error {
            PortError::Again { .. } => None,
            PortError::Down { .. } => {
                *downs += 1;
                let is_new = *downs > self.downs;
                self.downs = self.downs.max(*downs);
                self.is_down |= is_new;
                is_new.then(|| PortError::Down { port: self.name.clone() }.to_string())
            }
            error => {
                *state = State::Ended;
                let reason = match &error {
                    PortError::Broken { reason, .. } => reason.clone(),
                    _ => event.clone(),
                };
                failure.get_or_insert(error);
                (self.failed.replace(reason.clone()) != Some(reason)).then_some(event)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three lanes of one interface that goes down twice and is removed; the second lane misses one of it.
    #[test]
    fn what_happens_to_a_port_is_an_event_once() {
        let mut port = Port::new("packet:e0".into(), None, String::new());
        let mut lanes = [(); 3].map(|()| (State::Open, 0));
        let (mut events, mut failure) = (Vec::new(), None);
        let down = |lane: usize| PortError::Down { port: format!("packet:e0@{lane}") };
        for reporting in [&[0, 1, 2][..], &[0, 2]] {
            for lane in reporting {
                let (state, downs) = &mut lanes[*lane];
                events.extend(port.fail((state, downs), down(*lane), &mut failure));
            }
            // What had come before is no sign of life of the lane that has not looked yet.
            events.extend(port.back_up(0, true));
            events.extend(port.back_up(lanes[0].1, false));
            events.extend(port.back_up(lanes[0].1, true));
            events.extend(port.back_up(lanes[2].1, true));
        }
        for (lane, (state, downs)) in lanes.iter_mut().enumerate() {
            let removed = PortError::removed(format!("packet:e0@{lane}"));
            events.extend(port.fail((state, downs), removed, &mut failure));
        }
        let (down, back) =
            ("packet:e0: the interface is down", "packet:e0: the interface that was down delivers frames again");
        assert_eq!(events, [down, back, down, back, "packet:e0@0: the interface was removed"]);
        assert!(lanes.iter().all(|(state, _)| *state == State::Ended) && failure.is_some());
    }
}
