//! Text seeds.

use linerate_generate::file::keys::{BURST, SET, STREAM};
use linerate_generate::packet::express;
use linerate_headers::Link;
use linerate_headers::named::Kind;
use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// Page with stream files.
const PAGE: &str = include_str!("../../docs/streams.md");
/// Page with configurations of the Open Traffic Generator.
const OTG: &str = include_str!("../../docs/otg.md");
/// Page with filters of records.
const ASK: &str = include_str!("../../docs/guide/ask.md");
/// Rewrite rules, sizes, rates, shifts.
const OTHERS: [&str; 9] = [
    "ip=10.0.0.0/8:192.168.0.0/16",
    "src-ip=2001:db8::/32:fd00::/16",
    "dst-mac=02:00:00:00:00:01:02-00-00-00-00-02",
    "port=1000-1999:5000-5999",
    "vlan=push:7:3",
    "ttl=floor:64",
    "random(64..1518)",
    "1.5gbpsl1",
    "256/16",
];
/// Max length: longer texts are slow to fuzz.
const LONGEST: usize = 400;

pub fn write(folder: &Path, frames: &[Vec<u8>]) -> io::Result<()> {
    let mut texts: BTreeSet<String> = frames.iter().map(|frame| express(Link::Ethernet, frame)).collect();
    texts.extend(PAGE.split('`').skip(1).step_by(2).chain(OTHERS).map(str::to_owned));
    texts.retain(|text| text.len() <= LONGEST);
    put(&folder.join("texts"), texts.iter().map(String::as_str))?;
    let streams = PAGE.split("```toml\n").skip(1).filter_map(|part| part.split("```").next());
    put(&folder.join("streams"), streams)?;
    let otg = OTG.split("```json\n").skip(1).filter_map(|part| part.split("```").next());
    put(&folder.join("otg"), otg)?;
    put(&folder.join("queries"), ASK.split('`').skip(1).step_by(2).filter(|text| text.len() <= LONGEST))?;
    let fields = Kind::all().flat_map(|kind| kind.fields.iter().map(|field| field.name));
    let parts = Kind::all().flat_map(|kind| kind.parts.iter().map(|part| part.name));
    let keys = [SET, STREAM, BURST].into_iter().flatten().map(|key| key.name);
    let words: BTreeSet<&str> = Kind::all().map(Kind::name).chain(fields).chain(parts).chain(keys).collect();
    let words: String = words.iter().map(|word| format!("\"{word}\"\n")).collect();
    fs::write(folder.join("words"), words)
}

fn put<'a>(folder: &Path, texts: impl Iterator<Item = &'a str>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    texts.enumerate().try_for_each(|(number, text)| fs::write(folder.join(number.to_string()), text))
}
