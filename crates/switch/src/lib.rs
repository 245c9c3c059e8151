//! A switch: rules, classifier, actions, MAC learning and VLANs.
//!
//! Frames go in a burst at a time, by a port; out come copies of them, each by a port, or the reason why there was none. Nothing here
//! reads a clock, opens a port or allocates for a frame. One [`Switch`] belongs to one thread.
//!
//! In the order data takes:
//!
//! - [`key`]: what of a frame rules can look at, found once;
//! - `cache`: what was found for frames like it, exact, of one generation of the rules;
//! - `classify`: the rule for it, by tuples of masks;
//! - [`action`], `way`, `frame`: what is done with it, in the order of the rule, each action with what those before it have changed;
//!   checksums follow what they cover; behind an `inspect` the rest is done when the frame comes back;
//! - `learn`, [`vlan`]: what `normal` needs: behind which port a MAC is, and which VLANs a port is in;
//! - [`switch`]: the whole;
//! - [`rule`], [`text`]: rules, and how they are written: the syntax of `ovs-ofctl add-flow`, of one table.
//!
//! What a rule does is what Open vSwitch does with the same text and the same frame, byte for byte; the tests of this repository
//! ask it. Where it differs, by intent: a field without what it needs (`tp_dst` without `tcp`) is an error, not left out, and so are
//! actions on headers that the rule does not ask for; of two rules of one priority the older one goes first, where Open vSwitch says
//! nothing; `normal` keeps back 01:80:c2:00:00:00 to 0f alone, and not the addresses of vendors.
//!
//! ```
//! use linerate_switch::{Action, Options, Switch, text};
//! let rule = text::parse_rule("tcp,in_port=1,tp_dst=80,actions=output:2", &text::numbered(2)).unwrap();
//! assert_eq!(rule.actions, [Action::Output { port: 2, most: None }]);
//! let mut switch = Switch::new(Options::new(2));
//! switch.add(rule, linerate_burst::Nanos::ZERO);
//! assert_eq!(switch.count(), 1);
//! ```
#![forbid(unsafe_code)]

pub mod action;
mod cache;
mod classify;
mod frame;
mod hash;
pub mod key;
mod learn;
pub mod rule;
pub mod switch;
pub mod text;
mod tuple;
pub mod vlan;
mod way;

pub use action::{Action, PortNo, Reason, RingNo};
pub use learn::{LearnOptions, Learned, Station};
pub use rule::{Inspect, Inspected, Installed, Match, Rest, Rule};
pub use switch::{Options, Outputs, Switch, is_within};
pub use vlan::PortVlans;
