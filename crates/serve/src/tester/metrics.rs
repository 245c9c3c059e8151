//! TrafficMetrics of ports and flows.

use super::{FORGET, MANY, Tester};
use crate::port::{FCS, Port};
use crate::rates::Rates;
use crate::running_flow::received_metrics;
use linerate_engine::transmit::TransmitState;
use linerate_otg::flow::Flow;
use linerate_otg::metrics::{FlowMetrics, PortMetrics, TrafficMetrics, Transmit};
use serde_json::Value;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

impl Tester {
    /// Returns a flow of the configuration.
    pub fn flow(&self, at: usize) -> &Flow {
        &self.config.flows[at]
    }

    /// Returns the figures of a flow.
    pub fn figures(&self, at: usize) -> FlowMetrics {
        let running = &self.running[at];
        if let Some(frozen) = &running.frozen {
            return frozen.clone();
        }
        // Reads receivers first: their frames are then counted as sent.
        let (mut rx, mut figures) = received_metrics(&self.ports, running);
        rx.frames -= running.before.0.min(rx.frames);
        rx.bytes -= running.before.1.min(rx.bytes);
        figures.distinct -= running.before.0.min(figures.distinct);
        figures.transmit = match running.sending.doing() {
            TransmitState::Started => Transmit::Started,
            TransmitState::Paused => Transmit::Paused,
            TransmitState::Stopped => Transmit::Stopped,
        };
        let frames = running.sending.frames();
        let mut tx =
            TrafficMetrics { frames, bytes: running.sending.bytes() + FCS * frames, ..TrafficMetrics::default() };
        running.rates.fill(&mut tx, &mut rx);
        let line = self.ports[running.tx].line;
        FlowMetrics { tx, rx, line, late: running.sending.late(), ..figures }
    }

    /// Returns the figures of a port of the configuration.
    pub fn port_figures(&self, at: usize) -> PortMetrics {
        let (own, port) = (&self.config.ports[at], &self.ports[self.places[at]]);
        let ([tx, rx], is_capturing) = port.counted();
        let (mut tx, mut rx) = (tx, rx);
        port.rates.fill(&mut tx, &mut rx);
        let is_sending = self
            .running
            .iter()
            .any(|running| running.tx == self.places[at] && running.sending.doing() == TransmitState::Started);
        PortMetrics {
            name: own.name.clone(),
            location: own.location.clone(),
            is_up: (port.is_up)(),
            is_capturing,
            is_sending,
            tx,
            rx,
            speed: own.speed.or(port.line),
        }
    }

    /// Returns for each port its name, frames sent and received in total, and its failure.
    pub fn totals(&self) -> Vec<(String, u64, u64, Option<String>)> {
        let total = |port: &Port| {
            let failure = port.transmitter.failure().or(port.listener.failure());
            (port.name.clone(), port.transmitter.sent().0, port.listener.reception().frames, failure)
        };
        self.ports.iter().map(total).collect()
    }

    /// Returns the number of flows that are sending or paused.
    pub fn active(&self) -> usize {
        self.ports.iter().map(|port| port.transmitter.active()).sum()
    }

    /// Marks a flow as viewed.
    pub fn mark_viewed(&self, at: usize) {
        self.watched.borrow_mut().insert(at, self.ticks);
    }

    /// Returns whether the rate of a flow is known, one second after its first view.
    pub fn is_paced(&self, at: usize) -> bool {
        self.mark_viewed(at);
        let running = &self.running[at];
        running.id == 0 || running.rates.is_known() || !running.is_active()
    }

    /// Returns the last ten minutes of all ports together.
    pub fn history(&self) -> Value {
        self.history.json()
    }

    /// Samples counters for rates, called twice per second. With many flows only viewed ones are sampled.
    pub fn tick(&mut self, now: Instant) {
        let mut all = [0.0, 0.0];
        let mut missing = 0;
        for port in &mut self.ports {
            let ([mut tx, mut rx], _) = port.counted();
            port.rates.note(now, &tx, &rx);
            port.rates.fill(&mut tx, &mut rx);
            all = [all[0] + tx.frame_rate, all[1] + rx.frame_rate];
            missing += port.listener.reception().check.totals().missing;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.history.note(time, all[0].round() as u64, all[1].round() as u64, missing);
        self.ticks += 1;
        let all = 0..if self.running.len() <= MANY { self.running.len() } else { 0 };
        let (ticks, running) = (self.ticks, &mut self.running);
        let watched = self.watched.get_mut();
        watched.retain(|at, looked| {
            let is_watched = ticks - *looked <= FORGET && *at < running.len();
            if !is_watched
                && all.is_empty()
                && let Some(running) = running.get_mut(*at)
            {
                running.rates = Rates::default();
            }
            is_watched
        });
        let some: Vec<usize> = if all.is_empty() { watched.keys().copied().collect() } else { all.collect() };
        for at in some {
            if self.running[at].frozen.is_none() && self.running[at].id != 0 {
                let FlowMetrics { tx, rx, .. } = self.figures(at);
                self.running[at].rates.note(now, &tx, &rx);
            }
        }
    }
}
