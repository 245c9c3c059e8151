//! A minimal pcap reader, and the location of the captures.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Frames of one link type.
pub(crate) struct Capture {
    pub link: u16,
    /// Captured bytes and length on the wire.
    pub frames: Vec<(Vec<u8>, u32)>,
}

/// Returns the folder of captures; prints a note if it is missing.
pub(crate) fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("LINERATE_CORPUS").map(PathBuf::from).filter(|folder| folder.is_dir());
    if folder.is_none() {
        eprintln!("SKIPPED: LINERATE_CORPUS does not name a folder of captures");
    }
    folder
}

/// Returns the output of `tcpdump -r file -w - filter`, or its error message if it wrote nothing.
pub(crate) fn tcpdump(file: &Path, filter: &str) -> Result<Capture, String> {
    let output = Command::new("tcpdump").arg("-r").arg(file).args(["-w", "-", filter]).output();
    let output = output.map_err(|error| error.to_string())?;
    parse(&output.stdout).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Reads a pcap file up to the first truncated frame; `None` for another format.
pub(crate) fn parse(file: &[u8]) -> Option<Capture> {
    let magic: [u8; 4] = *file.first_chunk()?;
    let number: fn([u8; 4]) -> u32 = match u32::from_le_bytes(magic) {
        0xa1b2_c3d4 | 0xa1b2_3c4d => u32::from_le_bytes,
        0xd4c3_b2a1 | 0x4d3c_b2a1 => u32::from_be_bytes,
        _ => return None,
    };
    let link = number(*file.get(20..)?.first_chunk()?) as u16;
    let mut rest = file.get(24..)?;
    let mut frames = Vec::new();
    while let Some((head, body)) = rest.split_first_chunk::<16>() {
        let captured = number([head[8], head[9], head[10], head[11]]) as usize;
        let wire = number([head[12], head[13], head[14], head[15]]);
        let Some((frame, next)) = body.split_at_checked(captured) else { break };
        frames.push((frame.to_vec(), wire));
        rest = next;
    }
    Some(Capture { link, frames })
}
