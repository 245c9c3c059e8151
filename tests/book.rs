//! The pages for people, `docs/` and the front page: they are one book, their links lead somewhere, their commands do what they
//! show.

mod compare;
mod console;
mod links;
mod pages;
