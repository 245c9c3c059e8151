//! Flow records in files: they match the metered flows, other programs read them, and failures lose little.

mod back;
mod crash;
mod forms;
mod named;
mod places;
mod queries;
mod rows;
