//! Any text is a rule or an error; a parsed rule is printed and parsed as the same. Any frame matches the rule found by
//! a linear search, with and without a cache.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_switch::text::{numbered, parse_rule, show_rule};
use linerate_switch::{Options, Outputs, PortNo, Reason, Switch};

struct Seen(Vec<(usize, PortNo, Vec<u8>)>);

impl Outputs for Seen {
    fn copy(&mut self, index: usize, port: PortNo, bytes: &[u8], _: bool) {
        self.0.push((index, port, bytes.to_vec()));
    }

    fn done(&mut self, _: usize, _: Result<u32, Reason>) {}
}

fuzz_target!(|bytes: &[u8]| {
    // Lines up to an empty one are rules; what follows is a frame.
    let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let (text, frame) = (String::from_utf8_lossy(&bytes[..end]), bytes.get(end + 2..).unwrap_or_default());
    let mut switches = [0, 64].map(|cache| Switch::new(Options { cache, ..Options::new(3) }));
    for line in text.lines().take(16) {
        let Ok(rule) = parse_rule(line, &numbered(3)) else { continue };
        let mut single = Switch::new(Options::new(3));
        single.add(rule.clone(), Nanos(1));
        let shown = show_rule(single.rules()[0], Nanos(1), &[]);
        assert_eq!(parse_rule(&shown, &numbered(3)).as_ref(), Ok(&rule), "{shown}");
        switches.iter_mut().for_each(|switch| switch.add(rule.clone(), Nanos(1)));
    }
    let mut memory = frame.to_vec();
    memory.resize(frame.len() + TAIL, 0);
    let descs = [Desc::new(Nanos(2), 0, frame.len() as u32); 2];
    let burst = Burst::over(&memory, &descs).unwrap();
    let seen = switches.each_mut().map(|switch| {
        let mut seen = Seen(Vec::new());
        switch.burst(Nanos(2), 1, burst, &mut seen);
        seen.0
    });
    assert_eq!(seen[0], seen[1]);
    let number = |rule: Option<&linerate_switch::InstalledRule>| rule.map(|rule| rule.number);
    assert_eq!(number(switches[0].rule_for(1, frame)), number(switches[0].rule_for_naively(1, frame)));
});
