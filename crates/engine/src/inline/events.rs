//! Events reported at once: an engine attached, detached or was evicted, and the handling of frames after that.

use linerate_port::events;
use linerate_share::{EngineState, Writer};

/// Maximum number of reports, since engines may attach and detach at any rate.
const MOST: u32 = 200;

/// Number of reports.
#[derive(Debug, Default)]
pub(super) struct ReportCount(u32);

impl ReportCount {
    /// Reports that an engine has attached, or has detached with `under_way` pending frames, which pass or do not.
    pub(super) fn report_events(&mut self, writer: &Writer, passes: bool, under_way: usize) {
        self.0 = self.0.saturating_add(1);
        let Some((who, evict)) = writer.engine().filter(|_| self.0 <= MOST) else { return };
        let name = if who.name.is_empty() { "unnamed" } else { &who.name };
        let engine = format!("engine {name} (pid {})", who.pid);
        let rest = if self.0 == MOST { "; further engines are not reported" } else { "" };
        if writer.deciding() == EngineState::Attached {
            return events::report(format!("{engine} attached{rest}"));
        }
        let went = evict.map_or_else(|| "detached".to_owned(), |reason| format!("was evicted ({reason})"));
        let becomes = if passes { "pass" } else { "are dropped" };
        events::report(format!(
            "{engine} {went}: {under_way} pending and all new frames {becomes} until an engine attaches \
             (--on-death){rest}"
        ));
    }
}
