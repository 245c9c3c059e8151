//! The held frames of a lane.

use super::XdpRx;
use super::intake::publish_released;
use linerate_burst::Desc;
use linerate_port::{HeldFrame, HoldQueue, Region, Room};

/// Only for frames that the program writes: they are packed, without room around them.
impl HoldQueue for XdpRx {
    fn region(&self) -> Region {
        match self.intake.segment() {
            Some(segment) => Region::new(segment.area().clone()),
            None => Region::new(self.queue.attachment.clone()),
        }
    }

    fn spare(&self) -> usize {
        self.intake.segment().map_or(0, |segment| segment.spare())
    }

    fn room(&self) -> Room {
        Room::default()
    }

    fn hold(&mut self, frames: usize, indices: &[u32], held: &mut Vec<HeldFrame>) -> usize {
        let Some(segment) = self.intake.segment_mut() else { return 0 };
        let done = segment.hold(frames, indices, &mut |desc, number| held.push(HeldFrame::new(desc, number)));
        publish_released(segment, &self.queue);
        self.delivered += done as u64;
        done
    }

    fn keep(&mut self, held: &mut HeldFrame) -> bool {
        let Some(segment) = self.intake.segment_mut() else { return false };
        let Some((desc, number)) = segment.keep(held.number(), &held.desc) else { return false };
        held.move_to(desc, number);
        publish_released(segment, &self.queue);
        true
    }

    fn release(&mut self, held: &mut Vec<HeldFrame>) {
        if let Some(segment) = self.intake.segment_mut() {
            held.iter().for_each(|held| segment.release(held.number()));
            publish_released(segment, &self.queue);
        }
        held.clear();
    }

    fn bytes_mut<'a>(&'a mut self, held: &'a mut HeldFrame) -> &'a mut [u8] {
        match self.intake.segment_mut() {
            Some(segment) => segment.bytes_mut(held.number(), &held.desc),
            None => &mut [],
        }
    }

    fn resize(&mut self, held: &mut HeldFrame, head: i32, tail: i32) -> bool {
        let Some(segment) = self.intake.segment_mut() else { return false };
        let (offset, captured) = (i64::from(held.desc.offset), i64::from(held.desc.captured));
        let (head, tail) = (i64::from(head), i64::from(tail));
        let (offset, captured) = (u32::try_from(offset - head), u32::try_from(captured + head + tail));
        let (Ok(offset), Ok(captured)) = (offset, captured) else { return false };
        let desc = Desc { offset, captured, wire: captured, ..held.desc };
        let fits = captured == 0 || !segment.bytes_mut(held.number(), &desc).is_empty();
        if fits {
            held.desc = desc;
        }
        fits
    }
}
