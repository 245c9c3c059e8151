//! The verbs: up, open, exec, down, list.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;

use crate::error::LabError;
use crate::make::{self, Condition};
use crate::plan::Plan;
use crate::program;
use crate::state::{State, Store};
use crate::temporary;

/// A lab that is up. Dropping it changes nothing: see [`crate::TemporaryLab`] for one that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lab {
    plan: Plan,
    /// In the order of the plan's hosts.
    namespaces: Vec<String>,
    outcome: Outcome,
}

/// What [`Lab::up`] or [`Lab::open`] had to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// There was none, it was made.
    Made,
    /// It was there as planned, nothing was changed.
    Unchanged,
    /// Interfaces were down or lacked addresses, which was mended; nothing was taken away.
    Mended,
    /// A part was missing; what was left was taken down and all of it made anew.
    Remade,
}

/// What [`Lab::down`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// The lab.
    pub name: String,
    /// Namespaces in which processes still run. Their names and links are gone; the namespaces
    /// themselves go when these processes end.
    pub occupied: Vec<Occupied>,
}

/// A namespace that outlives its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupied {
    /// The name it had.
    pub namespace: String,
    /// The processes that have a thread in it.
    pub processes: BTreeSet<u32>,
}

/// One line of [`list`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The lab's name.
    pub name: String,
    /// How many hosts it has.
    pub hosts: usize,
    /// How many links it has.
    pub links: usize,
    /// Was it made to the end, and are all its namespaces there?
    pub alive: bool,
    /// Does it go when its creator has ended?
    pub temporary: bool,
    /// Does the process that made it still run?
    pub creator_alive: bool,
    /// Why its state cannot be read; the other fields are then empty.
    pub problem: Option<String>,
}

impl Lab {
    /// Makes the lab, or mends it; [`Lab::outcome`] tells which. Needs root and `ip`.
    ///
    /// A lab of that name with another plan is an error, as is a namespace that it would need and did not
    /// make. If a step fails, what was made by then is removed.
    pub fn up(plan: &Plan) -> Result<Self, LabError> {
        Self::raise(plan, false)
    }

    /// Finds a lab that is up.
    pub fn open(name: &str) -> Result<Self, LabError> {
        let missing = || LabError::NoSuchLab { name: name.to_owned() };
        let state = State::load(name)?.filter(|state| state.complete).ok_or_else(missing)?;
        if !make::all_present(&state)? {
            return Err(missing());
        }
        Ok(Self::of(&state.plan, Outcome::Unchanged))
    }

    /// Takes a lab down, whatever a crash has left of it. Needs root and `ip`.
    ///
    /// Removes only namespaces that the lab made. Processes in them are not ended, they are told.
    pub fn down(name: &str) -> Result<Down, LabError> {
        require_root()?;
        let store = Store::lock()?;
        let state = State::load(name)?.ok_or_else(|| LabError::NoSuchLab { name: name.to_owned() })?;
        Down::of(&store, &state)
    }

    /// What it was made from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// What had to be done to have it.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The namespace of a host.
    pub fn host(&self, host: &str) -> Result<&str, LabError> {
        let at = self.plan.hosts.iter().position(|h| h.name == host);
        at.and_then(|at| self.namespaces.get(at)).map(String::as_str).ok_or_else(|| {
            let hosts: Vec<&str> = self.plan.hosts.iter().map(|host| host.name.as_str()).collect();
            LabError::NoSuchHost { lab: self.plan.name.clone(), host: host.to_owned(), hosts: hosts.join(", ") }
        })
    }

    /// A command that runs `program` in a host: `ip netns exec NAMESPACE PROGRAM`, which gives it that
    /// host's `/sys` too. Add arguments and start it.
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
            // What cannot be removed is no reason not to make another; `list` and `sweep` tell of it.
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
                Condition::Unsettled => make::settle(&store, plan).map(|()| Outcome::Mended)?,
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

impl Down {
    /// Takes the lab of `state` down.
    pub(crate) fn of(store: &Store, state: &State) -> Result<Self, LabError> {
        let occupied = make::take_down(store, state)?.into_iter();
        let occupied = occupied.map(|(namespace, processes)| Occupied { namespace, processes }).collect();
        Ok(Self { name: state.plan.name.clone(), occupied })
    }
}

/// All labs that have a state, whole or not, in alphabetic order.
pub fn list() -> Result<Vec<Summary>, LabError> {
    let mut labs = Vec::new();
    for name in State::names()? {
        let summary = match State::load(&name) {
            // Taken down while we looked.
            Ok(None) => continue,
            Ok(Some(state)) => summary_of(name, &state),
            Err(e) => Summary { problem: Some(e.to_string()), ..Summary::unknown(name) },
        };
        labs.push(summary);
    }
    Ok(labs)
}

impl Summary {
    fn unknown(name: String) -> Self {
        Self { name, hosts: 0, links: 0, alive: false, temporary: false, creator_alive: false, problem: None }
    }
}

fn summary_of(name: String, state: &State) -> Summary {
    let present = make::all_present(state);
    Summary {
        hosts: state.plan.hosts.len(),
        links: state.plan.links.len(),
        alive: state.complete && *present.as_ref().unwrap_or(&false),
        temporary: state.temporary,
        creator_alive: state.creator.is_alive(),
        problem: present.err().map(|e| e.to_string()),
        ..Summary::unknown(name)
    }
}

pub(crate) fn require_root() -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot) }
}
