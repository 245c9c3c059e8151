//! Tests of the command line without a network: files, pipes, errors, JSON, exit statuses.

mod doctor;
mod endings;
mod failures;
mod files;
mod filters;
mod flows;
mod hangup;
mod metrics;
mod odd;
mod printed;
mod rights;
mod selection;
mod several;
mod terminals;
mod usage;
mod verbs;
