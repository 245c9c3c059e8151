//! Flow records in files: they match the metered flows, other programs read them, and failures lose little.

mod crash;
mod destinations;
mod field_names;
mod file_names;
mod queries;
mod round_trip;
mod rows;
