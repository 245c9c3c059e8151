//! Records as files: what is written is what was metered, other programs read it, and no failure costs more than it must.

mod back;
mod crash;
mod forms;
mod named;
mod places;
mod queries;
mod rows;
