//! Any text is parsed as a packet expression: into frames equal to those of the model, that can be described and
//! printed as text of the same frame; or into an error with its position. Sizes, rules, rates and shifts are parsed or
//! rejected with a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_generate::packet::{Setup, Sizes, express, frames, sizes};
use linerate_generate::rate::RequestedRate;
use linerate_generate::rewrite::{Rule, Shift};
use linerate_generate::stream::{Mark, Next, Order, Shape, Stream, StreamSet};
use linerate_generate::trailer::Key;
use linerate_generate::{Rate, TextError, describe};
use linerate_headers::Link;

#[path = "../src/model.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    read_others(text);
    // The length chooses, so that inputs of one length with other bytes take the same path.
    let mark = [Mark::None, Mark::Trailer, Mark::Count][bytes.len() % 3];
    let least = [0, 64, 300][bytes.len() / 3 % 3];
    let made = match frames(text, &Setup { mark, sizes: Sizes::Natural(least), ..Setup::default() }) {
        Ok(made) => made,
        Err(wrong) => return check(text, &wrong),
    };
    let stream = Stream {
        name: "fuzz".to_owned(),
        id: 7,
        link: made.link,
        variants: made.variants,
        size: made.size,
        selectors: made.selectors,
        rate: Rate::Top,
        shape: Shape::Even,
        count: None,
        next: Next::Following,
        span: Default::default(),
        mark,
    };
    for number in [0, 1, u64::MAX] {
        let frame = stream.frame(number, 5, &Key::default());
        // Only Ethernet has a minimum.
        let is_bare = stream.link != Link::Ethernet || text.contains("raw") || text.contains("file");
        assert!(frame.len() + 4 >= least || is_bare);
        assert!(!describe(&stream, number, 5, &Key::default()).is_empty());
        if mark == Mark::None {
            assert_eq!(reparsed(stream.link, &frame), frame, "{}", express(stream.link, &frame));
        }
    }
    model::compare(&StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() });
});

/// Returns the frame of the text printed for a frame.
fn reparsed(link: Link, frame: &[u8]) -> Vec<u8> {
    let text = express(link, frame);
    match frames(&text, &Setup { link, sizes: Sizes::Natural(0), ..Setup::default() }) {
        Ok(mut made) => made.variants.remove(0).frame,
        Err(wrong) => panic!("{text}: {wrong}"),
    }
}

/// Checks that an error has a message and a position in the text.
fn check(text: &str, wrong: &TextError) {
    assert!(!wrong.what.is_empty() && text.get(wrong.at.clone()).is_some(), "{wrong:?}");
}

fn read_others(text: &str) {
    if let Err(wrong) = sizes(text, 1) {
        check(text, &wrong);
    }
    if let Err(wrong) = text.parse::<Rule>() {
        assert!(wrong.rule == text && !wrong.wanted.is_empty());
    }
    if let Err(wrong) = text.parse::<RequestedRate>() {
        assert!(!wrong.to_string().is_empty());
    }
    let _ = text.parse::<Shift>().map_err(|wrong| assert!(!wrong.to_string().is_empty()));
}
