//! Labs that are removed when no longer used, for tests and demonstrations.

use std::ops::Deref;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::LabError;
use crate::lab::{Lab, Removal, require_root};
use crate::plan::Plan;
use crate::state::{State, Store};

/// Number of labs created by this process: a part of their names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A lab with a unique name, removed when this is dropped.
///
/// If the process is killed before, the next temporary lab (or [`sweep`]) removes it.
#[derive(Debug)]
pub struct TemporaryLab {
    lab: Lab,
    is_down: bool,
}

impl TemporaryLab {
    /// Creates the plan under a unique name, `t{process id}-{number}`, in place of the plan's own. First removes
    /// temporary labs whose creators have ended.
    pub fn up(plan: &Plan) -> Result<Self, LabError> {
        let name = format!("t{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let lab = Lab::raise(&Plan { name, ..plan.clone() }, true)?;
        Ok(Self { lab, is_down: false })
    }

    /// Removes it now and returns the result, which dropping cannot.
    pub fn down(mut self) -> Result<Removal, LabError> {
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
            // The result cannot be returned; leftovers are swept once this process has ended.
            let _ = Lab::down(self.lab.name());
        }
    }
}

/// Removes the temporary labs whose creators have ended without doing so. Needs root and `ip`.
pub fn sweep() -> Result<Vec<Removal>, LabError> {
    require_root()?;
    sweep_locked(&Store::lock()?)
}

/// Removes abandoned labs. Ignores a state that cannot be read: [`crate::list`] reports it.
pub(crate) fn sweep_locked(store: &Store) -> Result<Vec<Removal>, LabError> {
    let states = State::names()?.into_iter().filter_map(|name| State::load(&name).ok().flatten());
    let abandoned = states.filter(|state| state.temporary && !state.creator.is_alive());
    abandoned.map(|state| Removal::of(store, &state)).collect()
}
