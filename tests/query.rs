//! Queries of flow records: filters, groups and sums compared with a plain loop over flows, damaged files, and the
//! program compared with DuckDB.

mod filters;
mod groups;
mod hostile;
mod program;
mod samples;
