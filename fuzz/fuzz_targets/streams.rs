//! Any text is read as a file of streams: into a valid set, with frames equal to those of the model and unique names
//! and IDs; or into an error with file, line and column.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_generate::file::{Setup, streams};
use std::collections::BTreeSet;

#[path = "../src/model.rs"]
mod model;

/// Max streams: each may use up to 64 MiB for frames of different sizes.
const MOST_STREAMS: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if text.matches("packet").count() > MOST_STREAMS {
        return;
    }
    let line = (bytes.len() % 2 == 0).then_some(1e10);
    match streams("fuzz.toml", text, &Setup { line, ..Setup::default() }) {
        Ok(set) => {
            let names: BTreeSet<&str> = set.streams.iter().map(|stream| stream.name.as_str()).collect();
            let ids: BTreeSet<u32> = set.streams.iter().map(|stream| stream.id).collect();
            assert!(names.len() == set.streams.len() && ids.len() == set.streams.len());
            model::compare(&set);
        }
        Err(wrong) => {
            let line = text.split('\n').nth(wrong.line - 1).expect("a line of the text");
            assert!((1..=line.chars().count() + 1).contains(&wrong.column), "{wrong}");
            assert!(wrong.to_string().starts_with(&format!("fuzz.toml:{}:{}: ", wrong.line, wrong.column)));
        }
    }
});
