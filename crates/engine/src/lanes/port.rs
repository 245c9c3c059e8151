//! A port of a run: each of its lanes reports a change of its state, which is one event.

use super::LaneState;
use linerate_headers::Link;
use linerate_port::PortError;
use linerate_port::contract::Monitor;

const UP_AGAIN: &str = "the interface is up and delivers frames again";

/// A port of a run, and its state.
pub(super) struct Port {
    pub name: String,
    pub monitor: Option<Box<dyn Monitor>>,
    pub filter: String,
    /// Number of times the port went down, and whether it is down, as reported by all its lanes.
    downs: u64,
    is_down: bool,
    /// Failure that was reported, if any.
    failed: Option<String>,
    /// Index of each of its interfaces in the list of all.
    pub map: Vec<u16>,
    /// Link type of each interface.
    pub links: Vec<Option<Link>>,
}

impl Port {
    pub(super) fn new(name: String, monitor: Option<Box<dyn Monitor>>, filter: String) -> Self {
        Port { name, monitor, filter, downs: 0, is_down: false, failed: None, map: Vec::new(), links: Vec::new() }
    }

    /// Returns the event that the port is up again, if a lane that has reported it down delivers frames.
    pub(super) fn link_up_event(&mut self, downs: u64, brings: bool) -> Option<String> {
        if !(brings && self.is_down && downs == self.downs) {
            return None;
        }
        self.is_down = false;
        Some(format!("{}: {UP_AGAIN}", self.name))
    }

    /// Handles an error of a lane's queue, transient or permanent. Each lane of a port reports the same change: it is
    /// one event.
    pub(super) fn fail(
        &mut self,
        (state, downs): (&mut LaneState, &mut u64),
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
                *state = LaneState::Ended;
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

    /// Three lanes of one interface that goes down twice and is removed; the second lane misses one of the changes.
    #[test]
    fn port_state_changes_are_reported_once() {
        let mut port = Port::new("packet:e0".into(), None, String::new());
        let mut lanes = [(); 3].map(|()| (LaneState::Open, 0));
        let (mut events, mut failure) = (Vec::new(), None);
        let down = |lane: usize| PortError::Down { port: format!("packet:e0@{lane}") };
        for reporting in [&[0, 1, 2][..], &[0, 2]] {
            for lane in reporting {
                let (state, downs) = &mut lanes[*lane];
                events.extend(port.fail((state, downs), down(*lane), &mut failure));
            }
            // Frames that had arrived earlier do not show that the port is up for a lane not yet polled.
            events.extend(port.link_up_event(0, true));
            events.extend(port.link_up_event(lanes[0].1, false));
            events.extend(port.link_up_event(lanes[0].1, true));
            events.extend(port.link_up_event(lanes[2].1, true));
        }
        for (lane, (state, downs)) in lanes.iter_mut().enumerate() {
            let removed = PortError::removed(format!("packet:e0@{lane}"));
            events.extend(port.fail((state, downs), removed, &mut failure));
        }
        let (down, back) =
            ("packet:e0: the interface is down", "packet:e0: the interface is up and delivers frames again");
        assert_eq!(events, [down, back, down, back, "packet:e0@0: the interface was removed"]);
        assert!(lanes.iter().all(|(state, _)| *state == LaneState::Ended) && failure.is_some());
    }
}
