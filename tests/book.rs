//! The commands of the pages for people, `docs/` and the front page: they do what they show.

mod compare;
mod console;
