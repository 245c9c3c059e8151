//! Devices of a configuration at a port: replies for their addresses, and resolution of their gateways.
//!
//! Requests arrive like all frames; replies leave through a separate port next to that of the flows.

use linerate_burst::Burst;
use linerate_engine::Answers;
use linerate_engine::consumer::Round;
use linerate_generate::answer::{
    ANSWERS_PER_SECOND, AddressRange, Addresses, Answerer, Hop, Resolution, may_be_request,
};
use linerate_headers::MacAddr;
use linerate_port::TxPort;

/// Devices at a port.
pub struct Devices {
    /// Responder, or the reason why devices are not possible.
    answers: Result<Answers, String>,
    own: Vec<AddressRange>,
    hops: Vec<Hop>,
    is_on: bool,
}

fn answerer(own: Vec<AddressRange>) -> Answerer {
    // Duplicate addresses were rejected with the configuration.
    Answerer::new(Addresses::new(own).unwrap_or_default(), ANSWERS_PER_SECOND)
}

impl Devices {
    /// Creates an empty set that replies through this port, if there is one.
    pub fn new(to: Result<TxPort, String>) -> Self {
        let answers = to.map(|to| Answers::new(to, answerer(Vec::new())));
        Devices { answers, own: Vec::new(), hops: Vec::new(), is_on: false }
    }

    /// Returns the reason why devices are not possible, if so.
    pub fn refusal(&self) -> Option<&str> {
        self.answers.as_ref().err().map(String::as_str)
    }

    /// Sets the devices and enables them at once, or disables them if empty.
    pub fn set(&mut self, own: Vec<AddressRange>, hops: Vec<Hop>) {
        (self.own, self.hops) = (own, hops);
        self.switch(true);
    }

    /// Enables or disables the devices.
    pub fn switch(&mut self, is_on: bool) {
        self.is_on = is_on && !self.own.is_empty();
        let Ok(answers) = &mut self.answers else { return };
        answers.renew(answerer(if self.is_on { self.own.clone() } else { Vec::new() }));
        if self.is_on {
            answers.announce();
            self.hops.iter().for_each(|hop| answers.ask(*hop));
        }
    }

    /// Returns the MAC address of a gateway, if it has replied; otherwise asks again.
    pub fn find(&mut self, hop: &Hop) -> Option<MacAddr> {
        let answers = self.answers.as_mut().ok().filter(|_| self.is_on)?;
        match answers.resolution(hop)? {
            Resolution::At(mac) => return Some(mac),
            Resolution::Silent => answers.ask(*hop),
            Resolution::Asking => {}
        }
        None
    }

    /// Processes received frames, and sends what is due.
    pub fn receive(&mut self, round: &mut Round<'_>) {
        let Some(answers) = self.answers.as_mut().ok().filter(|_| self.is_on) else { return };
        let questions: Vec<Vec<u8>> = round.bursts.iter().flat_map(asked).collect();
        answers.answer(questions.into_iter(), round);
    }
}

/// Returns frames that may be requests, or replies to ours.
fn asked<'a>(burst: &'a Burst<'a>) -> impl Iterator<Item = Vec<u8>> + 'a {
    let whole = burst.iter().filter(|(desc, _)| !desc.is_truncated());
    whole.map(|(_, frame)| frame).filter(|frame| may_be_request(frame)).map(<[u8]>::to_vec)
}
