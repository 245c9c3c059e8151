//! Devices of a configuration at a port: whose addresses are answered for, and whose gateways are asked for.
//!
//! Questions come as all frames do; answers leave by a port of their own beside that of the flows.

use linerate_burst::Burst;
use linerate_engine::Answers;
use linerate_engine::consumer::Round;
use linerate_generate::answer::{ANSWERS_PER_SECOND, Addresses, Answerer, Hop, Own, Resolution, may_be_asked};
use linerate_port::TxPort;
use linerate_wire::MacAddr;

/// Those at a port.
pub struct Devices {
    /// Or why there can be none.
    answers: Result<Answers, String>,
    own: Vec<Own>,
    hops: Vec<Hop>,
    is_on: bool,
}

fn answerer(own: Vec<Own>) -> Answerer {
    // Two at one address were refused with the configuration.
    Answerer::new(Addresses::new(own).unwrap_or_default(), ANSWERS_PER_SECOND)
}

impl Devices {
    /// None yet; they answer by this port, if there is one.
    pub fn new(to: Result<TxPort, String>) -> Self {
        let answers = to.map(|to| Answers::new(to, answerer(Vec::new())));
        Devices { answers, own: Vec::new(), hops: Vec::new(), is_on: false }
    }

    /// Why there can be none, if that is so.
    pub fn refusal(&self) -> Option<&str> {
        self.answers.as_ref().err().map(String::as_str)
    }

    /// These from now on, and there at once; none where there are none.
    pub fn set(&mut self, own: Vec<Own>, hops: Vec<Hop>) {
        (self.own, self.hops) = (own, hops);
        self.switch(true);
    }

    /// Whether they are there.
    pub fn switch(&mut self, is_on: bool) {
        self.is_on = is_on && !self.own.is_empty();
        let Ok(answers) = &mut self.answers else { return };
        answers.renew(answerer(if self.is_on { self.own.clone() } else { Vec::new() }));
        if self.is_on {
            answers.announce();
            self.hops.iter().for_each(|hop| answers.ask(*hop));
        }
    }

    /// Where a gateway is, if it has answered; who is silent is asked once more.
    pub fn find(&mut self, hop: &Hop) -> Option<MacAddr> {
        let answers = self.answers.as_mut().ok().filter(|_| self.is_on)?;
        match answers.resolution(hop)? {
            Resolution::At(mac) => return Some(mac),
            Resolution::Silent => answers.ask(*hop),
            Resolution::Asking => {}
        }
        None
    }

    /// Looks at what has come, and sends what is to be sent.
    pub fn hear(&mut self, round: &mut Round<'_>) {
        let Some(answers) = self.answers.as_mut().ok().filter(|_| self.is_on) else { return };
        let questions: Vec<Vec<u8>> = round.bursts.iter().flat_map(asked).collect();
        answers.answer(questions.into_iter(), round);
    }
}

/// Frames that may be questions, or answers to ours.
fn asked<'a>(burst: &'a Burst<'a>) -> impl Iterator<Item = Vec<u8>> + 'a {
    let whole = burst.iter().filter(|(desc, _)| !desc.is_truncated());
    whole.map(|(_, frame)| frame).filter(|frame| may_be_asked(frame)).map(<[u8]>::to_vec)
}
