//! Tests of the command line without a network: files, pipes, errors, JSON, exit statuses.

mod doctor;
mod failures;
mod files;
mod filters;
mod flows;
mod hostile;
mod metrics;
mod multiple_outputs;
mod permissions;
mod printed;
mod selection;
mod sighup;
mod signals;
mod terminals;
mod usage;
mod verbs;
