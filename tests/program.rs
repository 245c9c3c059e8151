//! The program as its user runs it, without a network: files, pipes, errors, JSON, exit statuses.

#[path = "program/bench.rs"]
mod bench;
#[path = "program/doctor.rs"]
mod doctor;
#[path = "program/endings.rs"]
mod endings;
#[path = "program/failures.rs"]
mod failures;
#[path = "program/files.rs"]
mod files;
#[path = "program/filters.rs"]
mod filters;
#[path = "program/flows.rs"]
mod flows;
#[path = "program/hangup.rs"]
mod hangup;
#[path = "program/metrics.rs"]
mod metrics;
#[path = "program/odd.rs"]
mod odd;
#[path = "program/pairs.rs"]
mod pairs;
#[path = "program/printed.rs"]
mod printed;
#[path = "program/rights.rs"]
mod rights;
#[path = "program/selection.rs"]
mod selection;
#[path = "program/several.rs"]
mod several;
#[path = "program/terminals.rs"]
mod terminals;
#[path = "program/usage.rs"]
mod usage;
#[path = "program/verbs.rs"]
mod verbs;
