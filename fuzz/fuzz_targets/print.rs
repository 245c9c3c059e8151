//! Any bytes are printed as one line of visible ASCII of limited length, for any link type and options; hex lines start
//! with a tab, and their number is proportional to the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_headers::Link;
use linerate_print::{Bytes, Frame, MAX_LINE, Options, Printer};
use std::cell::RefCell;

thread_local! {
    // Connections are kept from one input to the next.
    static PRINTERS: RefCell<[Printer; 4]> = RefCell::new(FORMS.map(Printer::new));
}

const PLAIN: Options = Options {
    link: false,
    verbose: false,
    unverified: false,
    brief: false,
    absolute: false,
    nanos: false,
    time: linerate_print::Time::Clock,
    bytes: Bytes { hex: false, ascii: false, link: false },
};
const FORMS: [Options; 4] = [
    PLAIN,
    Options { link: true, verbose: true, ..PLAIN },
    Options { brief: true, bytes: Bytes { hex: true, ascii: true, link: true }, ..PLAIN },
    Options { verbose: true, absolute: true, bytes: Bytes { hex: false, ascii: true, link: false }, ..PLAIN },
];

fuzz_target!(|bytes: &[u8]| {
    PRINTERS.with_borrow_mut(|printers| {
        for (printer, options) in printers.iter_mut().zip(FORMS) {
            for link in Link::ALL {
                let mut out = Vec::new();
                let frame = Frame { time: 1, interface: "", link: link.linktype(), bytes, wire: bytes.len() as u32 };
                printer.line(&frame, &mut out);
                check(&out, bytes.len(), options);
            }
        }
    });
});

fn check(out: &[u8], bytes: usize, options: Options) {
    let mut lines = out.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().expect("a line");
    assert!(first.len() <= MAX_LINE && first.ends_with(b"\n") && first[0] != b'\t');
    assert!(first[..first.len() - 1].iter().all(|byte| (b' '..=b'~').contains(byte)));
    assert!(out.len() <= MAX_LINE + 8 * bytes + 2);
    for line in lines {
        assert!(options.bytes.hex || options.bytes.ascii);
        assert!(line[0] == b'\t' && line[1..line.len() - 1].iter().all(|byte| (b' '..=b'~').contains(byte)));
    }
}
