//! Tests on files, pipes and memory: they need no network.

mod built;
mod check;
mod columns;
mod convert;
mod corpus;
mod count;
mod find;
mod flows;
mod follow;
mod generate;
mod golden;
mod install;
mod layers;
mod links;
mod names;
mod packets;
mod printing;
mod program;
mod query;
mod replay;
