//! Frames of a lane that are held.

use super::{Frames, XdpRx};
use linerate_burst::Desc;
use linerate_port::{Held, Holding, Region, Room};

/// Of frames that the program writes: they lie back to back, so there is no room around them.
impl Holding for XdpRx {
    fn region(&self) -> Region {
        match &self.frames {
            Frames::Segment(segment) => Region::new(segment.area().clone()),
            Frames::Socket(_, socket) => Region::new(socket.memory().clone()),
            // Without a frame.
            Frames::Tally(_) => Region::new(self.attachment.clone()),
        }
    }

    fn spare(&self) -> usize {
        if let Frames::Segment(segment) = &self.frames { segment.spare() } else { 0 }
    }

    fn room(&self) -> Room {
        Room::default()
    }

    fn hold(&mut self, frames: usize, indices: &[u32], held: &mut Vec<Held>) -> usize {
        let Frames::Segment(segment) = &mut self.frames else { return 0 };
        let done = segment.hold(frames, indices, &mut |desc, number| held.push(Held::new(desc, number)));
        self.give_back();
        self.delivered += done as u64;
        done
    }

    fn keep(&mut self, held: &mut Held) -> bool {
        let Frames::Segment(segment) = &mut self.frames else { return false };
        let Some((desc, number)) = segment.keep(held.number(), &held.desc) else { return false };
        held.move_to(desc, number);
        self.give_back();
        true
    }

    fn release(&mut self, held: &mut Vec<Held>) {
        if let Frames::Segment(segment) = &mut self.frames {
            held.iter().for_each(|held| segment.release(held.number()));
        }
        held.clear();
        self.give_back();
    }

    fn bytes_mut<'a>(&'a mut self, held: &'a mut Held) -> &'a mut [u8] {
        match &mut self.frames {
            Frames::Segment(segment) => segment.bytes_mut(held.number(), &held.desc),
            Frames::Socket(..) | Frames::Tally(_) => &mut [],
        }
    }

    fn resize(&mut self, held: &mut Held, head: i32, tail: i32) -> bool {
        let Frames::Segment(segment) = &mut self.frames else { return false };
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
