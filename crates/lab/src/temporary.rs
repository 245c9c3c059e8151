//! Labs that go when they are no longer used, as tests and demonstrations want them.

use std::ops::Deref;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::LabError;
use crate::lab::{Down, Lab, require_root};
use crate::plan::Plan;
use crate::state::{State, Store};

/// How many this process has made: a part of their names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A lab with a name of its own, taken down when this is dropped.
///
/// Should the process be killed before, the next temporary lab (or [`sweep`]) removes it.
#[derive(Debug)]
pub struct TemporaryLab {
    lab: Lab,
    is_down: bool,
}

impl TemporaryLab {
    /// Makes the plan under a name that nobody else has: `t{process id}-{number}`, in place of the plan's
    /// own. Removes temporary labs whose creators are gone first.
    pub fn up(plan: &Plan) -> Result<Self, LabError> {
        let name = format!("t{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let lab = Lab::raise(&Plan { name, ..plan.clone() }, true)?;
        Ok(Self { lab, is_down: false })
    }

    /// Takes it down now and tells how that went, which dropping it cannot.
    pub fn down(mut self) -> Result<Down, LabError> {
        self.is_down = true;
        Lab::down(self.lab.name())
    }
}

impl Deref for TemporaryLab {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for TemporaryLab {
    fn drop(&mut self) {
        if !self.is_down {
            // Nobody to tell; what is left is swept once this process has ended.
            let _ = Lab::down(self.lab.name());
        }
    }
}

/// Removes the temporary labs whose creators have ended without doing so. Needs root and `ip`.
pub fn sweep() -> Result<Vec<Down>, LabError> {
    require_root()?;
    sweep_locked(&Store::lock()?)
}

/// A state that cannot be read is left alone: [`crate::list`] tells of it.
pub(crate) fn sweep_locked(store: &Store) -> Result<Vec<Down>, LabError> {
    let states = State::names()?.into_iter().filter_map(|name| State::load(&name).ok().flatten());
    let abandoned = states.filter(|state| state.temporary && !state.creator.is_alive());
    abandoned.map(|state| Down::of(store, &state)).collect()
}
