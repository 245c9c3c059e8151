//! Records that are asked: filters, groups and sums beside plain ones over a list of flows, files whatever is in them, and the program
//! beside DuckDB.

mod filters;
mod groups;
mod hostile;
mod program;
mod some;
