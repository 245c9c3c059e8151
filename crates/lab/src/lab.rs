//! Operations on labs: up, open, exec, down, list.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;

use crate::error::LabError;
use crate::make::{self, Condition};
use crate::plan::Plan;
use crate::program;
use crate::state::{State, Store};
use crate::temporary;

/// A lab that is up. Dropping it changes nothing: see [`crate::TemporaryLab`] for one that is removed on drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lab {
    plan: Plan,
    /// In the order of the plan's hosts.
    namespaces: Vec<String>,
    outcome: Outcome,
}

/// Action taken by [`Lab::up`] or [`Lab::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The lab did not exist and was created.
    Made,
    /// The lab existed as planned.
    Unchanged,
    /// Interfaces that were down or lacked addresses were repaired; nothing was removed.
    Repaired,
    /// A part was missing; the rest was removed and the lab created again.
    Remade,
}

/// Result of [`Lab::down`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Lab name.
    pub name: String,
    /// Namespaces in which processes still run. Their names and links are removed; the namespaces themselves are
    /// removed when these processes end.
    pub occupied: Vec<OccupiedNamespace>,
}

/// A namespace that outlives its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OccupiedNamespace {
    /// Former name.
    pub namespace: String,
    /// Processes that have a thread in it.
    pub processes: BTreeSet<u32>,
}

/// An entry of [`list`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LabSummary {
    /// Lab name.
    pub name: String,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of links.
    pub links: usize,
    /// True if it was created completely, and all its namespaces exist.
    pub alive: bool,
    /// True if it is removed after its creator has ended.
    pub temporary: bool,
    /// True if the process that created it is still running.
    pub creator_alive: bool,
    /// Reason why its state cannot be read; the other fields are empty in that case.
    pub problem: Option<String>,
}

impl Lab {
    /// Creates the lab, or repairs it, see [`Lab::outcome`]. Needs root and `ip`.
    ///
    /// Fails if a lab of that name exists with another plan, or a required namespace exists that it did not create. If
    /// a step fails, what was created before is removed.
    pub fn up(plan: &Plan) -> Result<Self, LabError> {
        Self::raise(plan, false)
    }

    /// Opens a lab that is up.
    pub fn open(name: &str) -> Result<Self, LabError> {
        let missing = || LabError::NoSuchLab { name: name.to_owned() };
        let state = State::load(name)?.filter(|state| state.complete).ok_or_else(missing)?;
        if !make::all_present(&state)? {
            return Err(missing());
        }
        Ok(Self::of(&state.plan, Outcome::Unchanged))
    }

    /// Removes a lab, even if it is incomplete after a crash. Needs root and `ip`.
    ///
    /// Removes only namespaces that the lab created. Processes in them are not ended but reported.
    pub fn down(name: &str) -> Result<Removal, LabError> {
        require_root()?;
        let store = Store::lock()?;
        let state = State::load(name)?.ok_or_else(|| LabError::NoSuchLab { name: name.to_owned() })?;
        Removal::of(&store, &state)
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Returns the action taken to create or open it.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the namespace of a host.
    pub fn host(&self, host: &str) -> Result<&str, LabError> {
        let at = self.plan.hosts.iter().position(|h| h.name == host);
        at.and_then(|at| self.namespaces.get(at)).map(String::as_str).ok_or_else(|| {
            let hosts: Vec<&str> = self.plan.hosts.iter().map(|host| host.name.as_str()).collect();
            LabError::NoSuchHost { lab: self.plan.name.clone(), host: host.to_owned(), hosts: hosts.join(", ") }
        })
    }

    /// Returns a command that runs `program` in a host: `ip netns exec NAMESPACE PROGRAM`, which also gives it that
    /// host's `/sys`. Add arguments and start it.
    pub fn exec(&self, host: &str, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
        let namespace = self.host(host)?;
        let mut command = Command::new(program::find_ip()?);
        command.args(["netns", "exec", namespace]).arg(program);
        Ok(command)
    }

    pub(crate) fn raise(plan: &Plan, temporary: bool) -> Result<Self, LabError> {
        plan.validate()?;
        require_root()?;
        program::find_ip()?;
        let store = Store::lock()?;
        if temporary {
            // Failing to remove an old lab must not prevent a new one; `list` and `sweep` report it.
            let _ = temporary::sweep_locked(&store);
        }
        let build = || make::build(&store, State::intent(plan, temporary));
        let outcome = match State::load(&plan.name)? {
            None => build().map(|()| Outcome::Made)?,
            Some(state) if state.plan != *plan => {
                return Err(LabError::DifferentPlan { name: plan.name.clone() });
            }
            Some(state) => match make::inspect(&state)? {
                Condition::Sound => Outcome::Unchanged,
                Condition::Unsettled => make::configure(&store, plan).map(|()| Outcome::Repaired)?,
                Condition::Broken => {
                    make::take_down(&store, &state)?;
                    build().map(|()| Outcome::Remade)?
                }
            },
        };
        Ok(Self::of(plan, outcome))
    }

    fn of(plan: &Plan, outcome: Outcome) -> Self {
        let namespaces = plan.hosts.iter().map(|host| plan.namespace(&host.name)).collect();
        Self { plan: plan.clone(), namespaces, outcome }
    }
}

impl Removal {
    /// Removes the lab of `state`.
    pub(crate) fn of(store: &Store, state: &State) -> Result<Self, LabError> {
        let occupied = make::take_down(store, state)?.into_iter();
        let occupied = occupied.map(|(namespace, processes)| OccupiedNamespace { namespace, processes }).collect();
        Ok(Self { name: state.plan.name.clone(), occupied })
    }
}

/// Lists all labs that have a state, complete or not, in alphabetic order.
pub fn list() -> Result<Vec<LabSummary>, LabError> {
    let mut labs = Vec::new();
    for name in State::names()? {
        let summary = match State::load(&name) {
            // Removed in the meantime.
            Ok(None) => continue,
            Ok(Some(state)) => summary_of(name, &state),
            Err(e) => LabSummary { problem: Some(e.to_string()), ..LabSummary::unknown(name) },
        };
        labs.push(summary);
    }
    Ok(labs)
}

impl LabSummary {
    fn unknown(name: String) -> Self {
        Self { name, hosts: 0, links: 0, alive: false, temporary: false, creator_alive: false, problem: None }
    }
}

fn summary_of(name: String, state: &State) -> LabSummary {
    let present = make::all_present(state);
    LabSummary {
        hosts: state.plan.hosts.len(),
        links: state.plan.links.len(),
        alive: state.complete && *present.as_ref().unwrap_or(&false),
        temporary: state.temporary,
        creator_alive: state.creator.is_alive(),
        problem: present.err().map(|e| e.to_string()),
        ..LabSummary::unknown(name)
    }
}

pub(crate) fn require_root() -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot) }
}
