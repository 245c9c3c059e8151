//! What is said at once while frames are under way: that an engine has come, has gone, was put out, and what becomes of frames then.

use linerate_port::news;
use linerate_share::{Deciding, Writer};

/// Engines may come and go as fast as they like.
const MOST: u32 = 200;

/// How much was said.
#[derive(Debug, Default)]
pub(super) struct News(u32);

impl News {
    /// An engine has come, or has gone with so many frames under way, which pass or do not.
    pub(super) fn tell(&mut self, writer: &Writer, passes: bool, under_way: usize) {
        self.0 = self.0.saturating_add(1);
        let Some((who, evict)) = writer.engine().filter(|_| self.0 <= MOST) else { return };
        let name = if who.name.is_empty() { "without a name" } else { &who.name };
        let engine = format!("engine {name} (pid {})", who.pid);
        let rest = if self.0 == MOST { "; no more is said of engines" } else { "" };
        if writer.deciding() == Deciding::Attached {
            return news::say(format!("{engine} decides about frames from now on{rest}"));
        }
        let went = evict.map_or_else(|| "has gone".to_owned(), |reason| format!("was put out ({reason})"));
        let becomes = if passes { "pass" } else { "are dropped" };
        news::say(format!(
            "{engine} {went}: {under_way} frames under way and those that come {becomes}, until one comes (--on-death){rest}"
        ));
    }
}
