//! Graph of the headers that can carry each other.

use crate::built::samples::{Sample, can_carry};
use linerate::headers::{Link, Protocol, Role};
use std::collections::{BTreeSet, VecDeque};

/// Headers that each header can carry, by index.
pub(super) struct Graph<'a> {
    samples: &'a [Sample],
    inner: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    /// Tests every pair of headers.
    pub(super) fn of(samples: &'a [Sample]) -> Self {
        let carried = |outer: usize| {
            let able = |inner: &usize| can_carry(samples[outer].0.as_ref(), samples[*inner].0.as_ref());
            (0..samples.len()).filter(able).filter(|inner| !is_odd(samples, outer, *inner)).collect()
        };
        Graph { samples, inner: (0..samples.len()).map(carried).collect() }
    }

    /// Returns a stack for every three headers of which each carries the next, with its link type.
    pub(super) fn stacks(&self) -> Vec<(Link, Vec<usize>)> {
        let mut stacks = Vec::new();
        for outer in 0..self.samples.len() {
            let (link, front) = self.path_to(outer).expect("a path to the header");
            for inner in &self.inner[outer] {
                let here = self.can_end(*inner).then(Vec::new);
                let further = self.inner[*inner].iter().filter_map(|next| self.path_from(*next));
                for rest in here.into_iter().chain(further) {
                    stacks.push((link, front.iter().copied().chain([*inner]).chain(rest).collect()));
                }
            }
        }
        stacks
    }

    /// Returns the shortest stack that ends with a header.
    fn path_to(&self, last: usize) -> Option<(Link, Vec<usize>)> {
        let starts = (0..self.samples.len()).filter(|index| self.samples[*index].1.is_some());
        let stack = self.search(starts.collect(), |index| index == last)?;
        Some((self.samples[stack[0]].1?, stack))
    }

    /// Returns the shortest stack from a header to a transport, or only the header if it can end a frame.
    fn path_from(&self, first: usize) -> Option<Vec<usize>> {
        let is_transport = |index: usize| self.samples[index].0.protocol().role() == Role::Transport;
        self.search(vec![first], |index| self.can_end(index) && (index == first || is_transport(index)))
    }

    /// Returns whether a frame can end with the header; a tunnel header needs an inner one.
    fn can_end(&self, index: usize) -> bool {
        match self.samples[index].0.protocol().role() {
            Role::Transport => true,
            Role::Tunnel => false,
            _ => self.inner[index].is_empty(),
        }
    }

    /// Breadth-first search.
    fn search(&self, starts: Vec<usize>, is_end: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut seen: BTreeSet<usize> = starts.iter().copied().collect();
        let mut queue: VecDeque<Vec<usize>> = starts.into_iter().map(|start| vec![start]).collect();
        while let Some(stack) = queue.pop_front() {
            let last = stack[stack.len() - 1];
            if is_end(last) {
                return Some(stack);
            }
            for next in &self.inner[last] {
                if seen.insert(*next) {
                    queue.push_back(stack.iter().copied().chain([*next]).collect());
                }
            }
        }
        None
    }
}

/// Pairs that can be built but that tshark reads differently.
fn is_odd(samples: &[Sample], outer: usize, inner: usize) -> bool {
    use Protocol::*;
    let framed = samples[inner].1.is_some();
    match (samples[outer].0.protocol(), samples[inner].0.protocol()) {
        // Their next header field is always "none" (RFC 6275 section 6.1.1, RFC 7401 section 5.1).
        (Mobility | Hip, _) => true,
        // Their numbers are EtherTypes that tshark knows only in GRE.
        (outer, Ppp | Erspan) if !matches!(outer, Gre | Pppoe) => true,
        // Framing is for links (RFC 2516 section 4).
        (Pppoe, Ppp) => framed,
        // tshark knows fewer EtherTypes here.
        (Gre, Vlan | Pppoe) | (Chdlc, Vlan | Pppoe | Arp) => true,
        // tshark assumes Ethernet in every mirrored frame.
        (Erspan, Ipv4 | Ipv6) => true,
        _ => false,
    }
}
