//! Conditions that frames must meet to pass a filter, found by following its program.
//!
//! libpcap compiles filter text into a program that loads fields from fixed positions of a frame and compares them.
//! Followed here without a frame, every path through it that accepts is a chain of such comparisons, and a frame that
//! passes meets all of one chain. If an index has a set for a position (`link`), a comparison becomes a [`Query`]; any
//! other may go either way. A part can be skipped if on each chain there is a query that it answers with no.
//!
//! So everything that libpcap understands works here, including names of hosts and services, and unsupported
//! comparisons mean "maybe": `ether host`, `len`, fields after MPLS, any unexpected comparison.

mod state;

use crate::entry::{Entry, Query};
use crate::link::Link;
use linerate_filter::interpret::{Jump, Op};
use linerate_filter::{Filter, FilterError, Program};
use state::{State, Value};
use std::collections::HashMap;

/// Maximum number of nodes (positions in a program with known values) that are followed; a program with more may pass
/// anything.
const MOST_NODES: usize = 20_000;

/// Conditions on the frames of one link type.
#[derive(Clone, Debug)]
enum LinkConditions {
    /// Anything may pass.
    Anything,
    /// No frame passes: the text does not fit the link type.
    Nothing(FilterError),
    /// Chains of queries; the first node is the start.
    Chains(Vec<Node>),
}

/// A position in a program that branches on a field of the frame.
#[derive(Clone, Debug, Default)]
struct Node {
    passes: bool,
    ways: Vec<(Option<usize>, usize)>,
}

/// Conditions that frames must meet to pass a filter, for each link type.
pub struct Plan {
    text: String,
    links: HashMap<u16, LinkConditions>,
    /// Link types in examined parts that the text does not fit, with the error, since the last [`Plan::take_unfit`].
    unfit: Vec<(u16, FilterError)>,
    queries: Vec<Query>,
    numbers: HashMap<Query, usize>,
    /// Answers of the current entry.
    answers: Vec<Option<bool>>,
    reached: Vec<bool>,
    waiting: Vec<usize>,
}

impl Plan {
    /// Returns the plan for filter text that libpcap accepts for some link type; blank text passes everything.
    pub fn new(text: &str) -> Self {
        Plan {
            text: text.to_owned(),
            links: HashMap::new(),
            unfit: Vec::new(),
            queries: Vec::new(),
            numbers: HashMap::new(),
            answers: Vec::new(),
            reached: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Returns the plan for a program instead of a text, on frames of one link type; those of others may pass.
    pub fn of_program(program: &Program, link: u16) -> Self {
        let mut plan = Plan::new("");
        let needs = Link::of(link).and_then(|of| plan.follow(program.ops(), of));
        plan.links.insert(link, needs.map_or(LinkConditions::Anything, LinkConditions::Chains));
        plan
    }

    /// Returns whether a frame of that part may pass.
    ///
    /// # Errors
    /// If libpcap is missing, or returned an invalid program.
    pub fn may_pass(&mut self, entry: &Entry<'_>) -> Result<bool, FilterError> {
        if entry.frames == 0 {
            return Ok(false);
        }
        let Some(links) = entry.links() else { return Ok(true) };
        for link in links {
            if !self.links.contains_key(&link) {
                let needs = self.needs(link)?;
                self.links.insert(link, needs);
            }
            if let Some(LinkConditions::Nothing(refused)) = self.links.get(&link)
                && !self.unfit.iter().any(|(unfit, _)| *unfit == link)
            {
                self.unfit.push((link, refused.clone()));
            }
        }
        self.answers.clear();
        self.answers.resize(self.queries.len(), None);
        Ok(entry.links().into_iter().flatten().any(|link| self.may_pass_as(link, entry)))
    }

    /// Returns the link types that the text does not fit, with the error, in the parts examined since the last call.
    pub fn take_unfit(&mut self) -> Vec<(u16, FilterError)> {
        std::mem::take(&mut self.unfit)
    }

    fn may_pass_as(&mut self, link: u16, entry: &Entry<'_>) -> bool {
        let Plan { links, queries, answers, reached, waiting, .. } = self;
        let nodes = match links.get(&link) {
            Some(LinkConditions::Chains(nodes)) => nodes,
            Some(LinkConditions::Nothing(_)) => return false,
            Some(LinkConditions::Anything) | None => return true,
        };
        reached.clear();
        reached.resize(nodes.len(), false);
        waiting.clear();
        waiting.push(0);
        while let Some(at) = waiting.pop() {
            if std::mem::replace(&mut reached[at], true) {
                continue;
            }
            if nodes[at].passes {
                return true;
            }
            for (query, to) in &nodes[at].ways {
                let may =
                    query.is_none_or(|query| *answers[query].get_or_insert_with(|| entry.may_have(queries[query])));
                if may && !reached[*to] {
                    waiting.push(*to);
                }
            }
        }
        false
    }

    fn needs(&mut self, link: u16) -> Result<LinkConditions, FilterError> {
        let program = match Filter::compile(&self.text, link) {
            Ok(filter) => filter,
            // The text fits other link types, as checked before: no frame of this one passes.
            Err(refused @ FilterError::Refused { .. }) => return Ok(LinkConditions::Nothing(refused)),
            Err(other) => return Err(other),
        };
        let (Some(program), Some(of)) = (program.program(), Link::of(link)) else {
            return Ok(LinkConditions::Anything);
        };
        Ok(self.follow(program.ops(), of).map_or(LinkConditions::Anything, LinkConditions::Chains))
    }

    /// Follows all paths through a program; `None` if it cannot be followed.
    fn follow(&mut self, ops: &[Op], link: Link) -> Option<Vec<Node>> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut numbers: HashMap<State, usize> = HashMap::new();
        let mut waiting = vec![(State::new(link), 0)];
        numbers.insert(State::new(link), 0);
        nodes.push(Node::default());
        while let Some((mut state, number)) = waiting.pop() {
            let (passes, ways) = match end(&mut state, ops)? {
                End::Returns(passes) => (passes, Vec::new()),
                End::Jumps(jump, op) => (false, state.ways(op, jump)),
            };
            let mut found = Vec::new();
            for (query, next) in ways {
                let query = query.map(|query| self.number(query));
                let to = *numbers.entry(next.clone()).or_insert_with(|| {
                    nodes.push(Node::default());
                    waiting.push((next, nodes.len() - 1));
                    nodes.len() - 1
                });
                found.push((query, to));
            }
            nodes[number] = Node { passes, ways: found };
            if nodes.len() > MOST_NODES {
                return None;
            }
        }
        Some(nodes)
    }

    fn number(&mut self, query: Query) -> usize {
        let next = self.queries.len();
        let number = *self.numbers.entry(query).or_insert(next);
        if number == next {
            self.queries.push(query);
        }
        number
    }
}

/// The end of a stretch of a program without branches.
enum End {
    /// Accepts or rejects the frame.
    Returns(bool),
    /// Branches on a comparison.
    Jumps(Jump, Op),
}

/// Follows a program up to the next branch; `None` if it cannot be followed.
fn end(state: &mut State, ops: &[Op]) -> Option<End> {
    loop {
        let at = usize::from(state.at);
        // Running past the end rejects.
        let Some(op) = ops.get(at) else { return Some(End::Returns(false)) };
        state.at += 1;
        match *op {
            Op::JumpK(_, _, jump) | Op::JumpX(_, jump) => {
                // Jumps go forwards, except in loops over chains of headers.
                let is_forward = usize::from(jump.yes.min(jump.no)) > at;
                return is_forward.then_some(End::Jumps(jump, *op));
            }
            Op::Ja(target) if target as usize > at => state.at = u16::try_from(target).ok()?,
            Op::Ja(_) => return None,
            Op::RetK(keep) => return Some(End::Returns(keep != 0)),
            Op::RetA => return Some(End::Returns(state.a != Value::Known(0))),
            op => state.step(op),
        }
    }
}
