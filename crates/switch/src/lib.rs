//! A switch: rules, classifier, actions, MAC learning and VLANs.
//!
//! Input is a burst of frames from one port; output is copies of them, each for a port, or the reason for a drop.
//! Nothing here reads a clock, opens a port or allocates per frame. One [`Switch`] belongs to one thread.
//!
//! In the order of data flow:
//!
//! - [`key`]: the fields of a frame that rules can match, parsed once;
//! - `cache`: earlier lookups for equal keys, exact, of one generation of the rules;
//! - `classify`: the rule for a frame, by tuples of masks;
//! - [`action`], `execution`, `frame`: the actions of the rule, in order, each on the frame as changed by those before;
//!   checksums follow the bytes they cover; after an `inspect` the rest is applied when the frame comes back;
//! - `learn`, [`vlan`]: state of `normal`: the port of each MAC, and the VLANs of each port;
//! - [`switch`]: the whole switch;
//! - [`rule`], [`text`]: rules, and their text: the syntax of `ovs-ofctl add-flow`, with one table.
//!
//! A rule has the same effect as in Open vSwitch with the same text and frame, byte for byte; the tests of this
//! repository compare both. It differs on purpose: a field without its prerequisite (`tp_dst` without `tcp`) is an
//! error, not ignored, and so are actions on headers that the rule does not match; of two rules with the same priority
//! the older one wins, where Open vSwitch is undefined; `normal` withholds only 01:80:c2:00:00:00 to 0f, and not the
//! addresses of vendors.
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
mod execution;
mod frame;
mod hash;
pub mod key;
mod learn;
pub mod rule;
pub mod switch;
pub mod text;
mod tuple;
pub mod vlan;

pub use action::{Action, PortNo, Reason, RingNo};
pub use learn::{LearnCounts, LearnOptions, Station};
pub use rule::{Inspect, InspectOutcome, InstalledRule, Match, RemainingActions, Rule};
pub use switch::{Options, Outputs, Switch, is_within};
pub use vlan::PortVlans;
