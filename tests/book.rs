//! The pages for people, `docs/` and the front page: they are one book, their links lead somewhere, their commands do what they
//! show.

#[path = "book/compare.rs"]
mod compare;
#[path = "book/console.rs"]
mod console;
#[path = "book/links.rs"]
mod links;
#[path = "book/pages.rs"]
mod pages;
