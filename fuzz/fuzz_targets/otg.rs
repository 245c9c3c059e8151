//! Any JSON is read as a configuration of the Open Traffic Generator: into flows with frames equal to those of the
//! model, or into errors. Its updates are read too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_generate::stream::{Order, StreamSet};
use linerate_generate::trailer::Key;
use linerate_otg::config::Text;
use linerate_otg::flow::Setup;
use linerate_otg::{Config, control};

#[path = "../src/model.rs"]
mod model;

/// Max flows: each may use up to 64 MiB for frames of different sizes.
const MOST_FLOWS: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = serde_json::from_slice(bytes) else { return };
    let _ = control::State::read(&document);
    let _ = control::Metrics::read(&document);
    let _ = control::capture(&document);
    for change in [control::update, control::append, control::delete] {
        let _ = change(&document, &document);
    }
    if bytes.windows(5).filter(|window| window == b"tx_rx").count() > MOST_FLOWS {
        return;
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        // A duplicate name counts once, with its last value, in flows as elsewhere.
        let text = Text::parse(text).expect("valid JSON");
        let is_right = Config::read_text(&text, &Setup::default()).is_ok();
        assert_eq!(is_right, Config::read(&document, &Setup::default()).is_ok());
    }
    match Config::read(&document, &Setup::default()) {
        Ok(config) => {
            for (id, flow) in config.flows.into_iter().enumerate() {
                let mut stream = flow.stream;
                stream.id = id as u32 + 1;
                model::compare(&StreamSet {
                    streams: vec![stream],
                    order: Order::Interleaved,
                    rate: None,
                    key: Key::default(),
                });
            }
        }
        Err(faults) => assert!(!faults.is_empty()),
    }
});
