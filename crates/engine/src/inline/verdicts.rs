//! Verdicts of the engine, checked, and the handling of missing ones.

use super::decide::{Fate, FramePosition, PolicyReason};
use super::output::{Exits, Taken};
use super::verdict_ring::VerdictRing;
use linerate_burst::{Desc, Nanos};
use linerate_share::{EngineState, UNDECIDED, Verdict, Writer};

impl<E: Exits> VerdictRing<E> {
    /// Reads the engine's verdicts. An engine with an invalid one is evicted.
    pub(crate) fn receive_verdicts(&mut self, now: Nanos) {
        let deciding = self.ring.as_mut().map(|ring| ring.writer().deciding());
        if deciding.is_none_or(|deciding| deciding == EngineState::Absent) {
            return;
        }
        let received =
            self.read_verdicts(now).and_then(|()| self.read_held_verdicts(now)).and_then(|()| self.check_returned());
        let Some(ring) = &mut self.ring else { return };
        ring.writer().answers_done(self.onward.take_completed());
        if let Err(reason) = received {
            ring.writer().refuse_engine(&reason);
        }
        self.listed.tick(now);
    }

    /// Checks that a returned block has a verdict on each frame: all its verdicts have been read by now.
    fn check_returned(&mut self) -> Result<(), String> {
        let VerdictRing { ring: Some(ring), onward, decisions, .. } = self else { return Ok(()) };
        if ring.writer().deciding() != EngineState::Attached {
            return Ok(());
        }
        for (block, taken) in (onward.blocks.first..).zip(&onward.blocks.all) {
            let is_returned = !taken.is_released && ring.writer().engine_from(taken.slot).is_none();
            if is_returned && decisions.is_open(block) {
                return Err("it returned a block without a verdict on each frame".into());
            }
        }
        Ok(())
    }

    /// Reads answers, which must be done after reading the verdicts that they preceded.
    fn read_answers(&mut self) -> Result<(), String> {
        let VerdictRing { ring: Some(ring), onward, decisions, .. } = self else { return Ok(()) };
        while let Some(answer) = ring.writer().take_answer()? {
            onward.take_answer(answer, ring.writer(), |place| decisions.is_gone(place))?;
        }
        Ok(())
    }

    /// Reads verdicts in the order of inspection.
    fn read_verdicts(&mut self, now: Nanos) -> Result<(), String> {
        while let Some(place) = self.decisions.next() {
            let VerdictRing { ring: Some(ring), onward, .. } = self else { break };
            let writer = ring.writer();
            let Some(taken) = onward.blocks.at(place.block) else { break };
            if place.frame >= taken.looked {
                look_at(taken, writer)?;
                if place.frame >= taken.looked {
                    break;
                }
                let more = taken.looked - place.frame;
                // Later verdicts make space for the frames that it holds next.
                if self.decisions.is_crowded(more) {
                    self.read_held_verdicts(now)?;
                }
                self.read_line(place.block);
                self.read_answers()?;
                continue;
            }
            let said = taken.said[place.frame as usize];
            let fate = if said == UNDECIDED { None } else { Some(self.fate_of(now, place, said)?) };
            let VerdictRing { onward, decisions, .. } = self;
            onward.tally(decisions.way(place)).held += u64::from(fate.is_none());
            decisions.look(fate, &mut |place, way, fate| onward.route(place, way, fate));
        }
        Ok(())
    }

    /// Reads the verdicts on inspected frames of a block, before the answers that preceded them: a frame that is held
    /// now, and decided with an answer a moment later, is treated as held.
    fn read_line(&mut self, block: u64) {
        let VerdictRing { ring: Some(ring), onward, .. } = self else { return };
        let Some(taken) = onward.blocks.at(block) else { return };
        let (slot, known) = (taken.slot, taken.said.len() as u32);
        taken.said.extend((known..taken.looked).map(|frame| ring.writer().verdict(slot, frame)));
    }

    /// Reads verdicts on held frames.
    fn read_held_verdicts(&mut self, now: Nanos) -> Result<(), String> {
        let VerdictRing { ring: Some(ring), onward, decisions, .. } = self else { return Ok(()) };
        let (mut news, mut last) = (Vec::new(), None);
        for place in decisions.held() {
            if last.replace(place.block) == Some(place.block) {
                continue;
            }
            let Some(taken) = onward.blocks.at(place.block) else { continue };
            let (_, later) = ring.writer().verdicts(taken.slot);
            if std::mem::replace(&mut taken.later, later) != later {
                news.push(place.block);
            }
        }
        if news.is_empty() {
            return Ok(());
        }
        let mut held: Vec<(FramePosition, u8)> = Vec::new();
        for place in decisions.held().filter(|place| news.contains(&place.block)) {
            let Some(taken) = onward.blocks.at(place.block) else { continue };
            let said = ring.writer().verdict(taken.slot, place.frame);
            held.extend((said != UNDECIDED).then_some((place, said)));
        }
        self.read_answers()?;
        for (place, said) in held {
            let fate = self.fate_of(now, place, said)?;
            let VerdictRing { onward, decisions, .. } = self;
            decisions.apply_verdict(place, fate, &mut |place, way, fate| onward.route(place, way, fate));
        }
        Ok(())
    }

    /// Returns the fate of a frame with this verdict, and records it for its flow if it is permanent.
    fn fate_of(&mut self, now: Nanos, place: FramePosition, said: u8) -> Result<Fate, String> {
        let wrong = || format!("invalid verdict {said} on a frame");
        let verdict = *Verdict::ALL.get(usize::from(said)).ok_or_else(wrong)?;
        let fate = fate(said).ok_or_else(wrong)?;
        if verdict == Verdict::Replace && !self.onward.answers.replaces(place) {
            return Err("it replaced a frame without data".into());
        }
        if matches!(verdict, Verdict::Whitelist | Verdict::Ignore | Verdict::Blacklist) {
            let VerdictRing { ring: Some(ring), onward, listed, decisions, .. } = self else { return Ok(fate) };
            let Some(taken) = onward.blocks.at(place.block) else { return Ok(fate) };
            let burst = ring.writer().filled(taken.slot).burst();
            let desc: &Desc = &burst.descs()[place.frame as usize];
            listed.insert(now, desc, burst.frame(place.frame as usize), fate, decisions.newest());
        }
        Ok(fate)
    }

    /// Applies the policy to frames whose timeout has expired, and to all pending ones if the engine has detached.
    pub(crate) fn settle(&mut self, now: Nanos, give_up: bool) {
        let VerdictRing { ring: Some(ring), onward, decisions, .. } = self else { return };
        let deciding = ring.writer().deciding();
        let comes = deciding == EngineState::Attached && !self.is_decided;
        self.engines += u64::from(comes);
        self.is_decided = deciding == EngineState::Attached;
        let mut acted = Vec::new();
        let mut out = |place: FramePosition, way: u16, fate: Fate| {
            if matches!(fate, Fate::Policy(..)) {
                acted.push((place, way));
            }
            onward.route(place, way, fate);
        };
        match deciding {
            EngineState::Attached if !give_up => decisions.settle(now, &mut out),
            // An engine that is attached at the end without all verdicts is slow, not dead.
            EngineState::Attached => decisions.give_up(decisions.fate_of_slow(PolicyReason::Held), &mut out),
            _ if decisions.is_busy() || decisions.past().is_some() => {
                decisions.give_up(decisions.fate_of_dead(), &mut out);
            }
            _ => {}
        }
        let under_way = acted.len();
        for (place, way) in acted {
            let Some(taken) = onward.blocks.at(place.block) else { continue };
            ring.writer().settle(taken.slot, place.frame);
            if deciding == EngineState::Attached {
                taken.overdue.push((place.frame, way));
            }
        }
        if deciding == EngineState::Gone {
            // All its verdicts are dropped with it.
            for taken in &mut onward.blocks.all {
                (taken.looked, taken.later) = (0, 0);
                taken.said.clear();
                taken.overdue.clear();
            }
            onward.drop_answers();
            self.listed.clear();
        }
        if comes || deciding == EngineState::Gone {
            self.news.report_events(ring.writer(), decisions.fate_of_dead().is_sent(), under_way);
        }
        if deciding == EngineState::Gone {
            ring.writer().remove_engine();
        }
    }
}

/// Reads how far the engine has inspected a block.
fn look_at(taken: &mut Taken, writer: &Writer) -> Result<(), String> {
    let (looked, _) = writer.verdicts(taken.slot);
    let frames = writer.filled(taken.slot).len() as u32;
    if looked < taken.looked || looked > frames {
        return Err("its count of inspected frames decreased or exceeds the block".into());
    }
    taken.looked = looked;
    Ok(())
}

/// Returns the fate for a verdict; `None` if the verdict is invalid.
pub(super) fn fate(said: u8) -> Option<Fate> {
    Some(match *Verdict::ALL.get(usize::from(said))? {
        Verdict::Pass | Verdict::Whitelist | Verdict::Ignore => Fate::Passed,
        Verdict::Block | Verdict::Blacklist => Fate::Blocked,
        Verdict::Replace => Fate::Replaced,
    })
}
