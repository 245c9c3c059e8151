//! TLS hellos: version, server name, ALPN protocols.

use crate::read::{part, take, u16_at};
use crate::text::{Text, put};

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// Sizes of record header, message header, version and random bytes.
const RANDOM_END: usize = 5 + 4 + 2 + 32;

const NAME: u16 = 0;
const PROTOCOLS: u16 = 16;
const VERSIONS: u16 = 43;
/// Maximum bytes of a name and of each protocol; maximum number of protocols.
const LONGEST: usize = 255;
const MOST: usize = 8;

/// Values of extensions.
#[derive(Default)]
struct HelloExtensions<'a> {
    version: Option<u16>,
    name: Option<&'a [u8]>,
    protocols: Option<&'a [u8]>,
}

/// Writes the hello at the start of a segment; returns false without one.
pub(crate) fn write(text: &mut Text<'_>, payload: &[u8]) -> bool {
    let Some([HANDSHAKE, 3, _, _, _, kind @ (CLIENT_HELLO | SERVER_HELLO), _, _, _, 3, minor]) = part::<11>(payload, 0)
    else {
        return false;
    };
    let is_client = kind == CLIENT_HELLO;
    let mut said = HelloExtensions::default();
    extensions(payload, is_client, &mut said);
    text.str(": ");
    match said.version.unwrap_or(0x300 | u16::from(minor)) {
        0x300 => text.str("SSL 3.0"),
        version @ 0x301..=0x304 => put!(text, "TLS 1.{}", version - 0x301),
        version => put!(text, "TLS {version:#x}"),
    }
    text.str(if is_client { " client hello" } else { " server hello" });
    if let Some(name) = said.name {
        text.str(", sni ");
        text.wire(name, LONGEST);
    }
    if let Some(mut list) = said.protocols {
        let mut separator = ", alpn ";
        for _ in 0..MOST {
            let Some([length]) = take(&mut list, 1) else { break };
            let Some(name) = take(&mut list, usize::from(*length)) else { break };
            text.str(separator);
            text.wire(name, LONGEST);
            separator = ",";
        }
    }
    true
}

/// Parses the extensions, possibly truncated.
fn extensions<'a>(payload: &'a [u8], is_client: bool, said: &mut HelloExtensions<'a>) -> Option<()> {
    let mut rest = payload.get(RANDOM_END..)?;
    skip(&mut rest, 1)?; // the session
    if is_client {
        skip(&mut rest, 2)?; // cipher suites
        skip(&mut rest, 1)?; // compressions
    } else {
        take(&mut rest, 3)?;
    }
    let length = u16_at(rest, 0)?;
    take(&mut rest, 2)?;
    rest = rest.get(..usize::from(length)).unwrap_or(rest);
    while !rest.is_empty() {
        let (kind, length) = (u16_at(rest, 0)?, u16_at(rest, 2)?);
        take(&mut rest, 4)?;
        let body = take(&mut rest, usize::from(length))?;
        match kind {
            // A list of one name: list length, name type, name length.
            NAME if is_client => said.name = body.get(5..),
            PROTOCOLS => said.protocols = body.get(2..),
            VERSIONS if is_client => {
                let versions = body.get(1..).unwrap_or_default().as_chunks::<2>().0;
                said.version = versions
                    .iter()
                    .map(|version| u16::from_be_bytes(*version))
                    .filter(|version| version >> 8 == 3)
                    .max();
            }
            VERSIONS => said.version = u16_at(body, 0),
            _ => {}
        }
    }
    Some(())
}

/// Skips a list with a length prefix of `bytes` bytes.
fn skip(rest: &mut &[u8], bytes: usize) -> Option<()> {
    let length = take(rest, bytes)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    take(rest, length).map(drop)
}
