//! pcap-filter text, compiled by libpcap and run in the kernel or here.
//!
//! [`Filter::compile`] hands the text to the libpcap of the machine, loaded on first use, and gets classic
//! BPF back. [`Filter::matches`] runs it on a frame in this process and gives the answer that
//! `tcpdump -r FILE TEXT` gives. [`Filter::in_kernel`] says whether a packet socket can run it with that
//! same answer, and gives the program to attach.
//!
//! - [`program`]: one instruction, and a program that has been checked;
//! - [`interpret`]: a checked program decoded and run, pure and without panics;
//! - [`kernel`]: what the kernel sees otherwise than a file's reader, and the program that allows for it;
//! - `libpcap`: the one file with unsafe code.
//!
//! libpcap compiles the text, for each link type. It is loaded at run time, so that the program starts without it. The kernel runs
//! the program where it gives exactly the same result as on the frame handed out, else this process does. Frames whose VLAN tag
//! the kernel has taken out are the subtle case: the socket filter sees them without it. So the kernel program begins with a test
//! for a tag and passes all such frames up, and the process decides once the tag is back. [`kernel`] lists what else can differ.
#![deny(unsafe_code)]

pub mod interpret;
pub mod kernel;
mod libpcap;
pub mod program;

pub use kernel::{KernelProgram, REFUSE_TAGGED, Reason};
pub use program::{Insn, Invalid, Program};

use std::sync::{Mutex, PoisonError};

/// What was compiled: the same text means the same hosts for a whole run, and names are looked up while that is allowed.
static KNOWN: Mutex<Vec<(String, u16, Filter)>> = Mutex::new(Vec::new());
const MOST_KNOWN: usize = 64;

/// A filter for frames of one link type.
#[derive(Clone, Debug)]
pub struct Filter {
    /// `None` matches everything.
    program: Option<Program>,
}

impl Filter {
    /// Compiles pcap-filter text (pcap-filter(7)) for frames of link type `link`, a `LINKTYPE_*` number as
    /// capture files hold it (1 is Ethernet). Text that is empty or blank matches everything and needs no
    /// libpcap. Host names and the like are looked up by libpcap now, which can take seconds. The network
    /// mask counts as unknown, so `ip broadcast` means 0.0.0.0 and 255.255.255.255; what only a running
    /// kernel knows (`inbound`, `ifindex`) is refused. Both are as with `tcpdump -r`. Where a link type's
    /// header is in the byte order of the capturing machine (`LINKTYPE_NULL`), that of this machine counts.
    pub fn compile(text: &str, link: u16) -> Result<Filter, FilterError> {
        if text.trim().is_empty() {
            return Ok(Filter { program: None });
        }
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., filter)) = known.iter().find(|(known, of, _)| known == text && *of == link) {
            return Ok(filter.clone());
        }
        let insns = libpcap::compile(text, link)?;
        let program = Program::new(insns).map_err(|fault| FilterError::Program { filter: text.into(), fault })?;
        let filter = Filter { program: Some(program) };
        if known.len() < MOST_KNOWN {
            known.push((text.to_owned(), link, filter.clone()));
        }
        Ok(filter)
    }

    /// Whether a frame passes. `frame` holds the bytes captured, `wire_len` is its length on the wire in
    /// bytes (without FCS), which may be more. A test that reaches beyond the captured bytes refuses it.
    #[inline]
    pub fn matches(&self, frame: &[u8], wire_len: u32) -> bool {
        self.program.as_ref().is_none_or(|program| program.run(frame, wire_len) != 0)
    }

    /// The program that a packet socket (`AF_PACKET`, `SOCK_RAW`) can run in place of [`Filter::matches`],
    /// cutting frames to `snap` bytes (0: not at all); or why the filter must run in this process.
    /// See [`kernel`] for which frames are still to be judged here.
    pub fn in_kernel(&self, snap: u32) -> Result<KernelProgram, Reason> {
        match &self.program {
            Some(program) => KernelProgram::new(program, snap),
            None => Ok(KernelProgram::accepting_all(snap)),
        }
    }

    /// The compiled program; `None` where everything matches.
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }
}

/// Why filter text gave no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no libpcap, or one that lacks a function.
    #[error("filters need libpcap, which could not be loaded ({detail}); on Debian: apt install libpcap0.8")]
    NoLibpcap {
        /// What was tried, and what the dynamic linker said.
        detail: String,
    },
    /// The text holds a NUL byte.
    #[error("filter {filter:?}: a NUL byte at offset {offset} ends it early; remove it")]
    Nul {
        /// The filter text.
        filter: String,
        /// Bytes in front of the NUL.
        offset: usize,
    },
    /// libpcap refused the text.
    #[error("filter {filter:?}: {message}{}", advice(.filter))]
    Refused {
        /// The filter text.
        filter: String,
        /// What libpcap said.
        message: String,
    },
    /// libpcap made a program that does not hold up to checking.
    #[error("filter {filter:?}: libpcap compiled it to an invalid program: {fault}")]
    Program {
        /// The filter text.
        filter: String,
        /// What is wrong with the program.
        fault: Invalid,
    },
}

/// Wireshark's display filters are another language, and many know them better.
fn advice(filter: &str) -> &'static str {
    let is_field = |word: &str| {
        word.split_once('.').is_some_and(|(one, other)| {
            one.starts_with(|c: char| c.is_ascii_lowercase()) && other.starts_with(|c: char| c.is_ascii_lowercase())
        })
    };
    let compares = ["==", "!=", " eq ", " ne ", " contains "].iter().any(|operator| filter.contains(operator));
    if compares && filter.split([' ', '(', '!', '=']).any(is_field) {
        "; that is how Wireshark shows frames: this is pcap-filter text, as in tcp port 443 (man pcap-filter)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_text_matches_everything_without_libpcap() {
        for text in ["", "  ", "\n\t"] {
            let filter = Filter::compile(text, 1).expect("blank text needs nothing");
            assert!(filter.program().is_none());
            assert!(filter.matches(&[], 0) && filter.matches(&[1, 2, 3], 1500));
            assert_eq!(filter.in_kernel(96).expect("runs anywhere").insns(), [Insn::ret(96)]);
        }
    }

    #[test]
    fn errors_name_the_filter_and_the_remedy() {
        let nul = Filter::compile("tcp\0 port 80", 1).expect_err("a NUL").to_string();
        assert!(nul.contains("offset 3"), "{nul}");
        let missing = FilterError::NoLibpcap { detail: "libpcap.so.1: not found".into() }.to_string();
        assert!(missing.contains("libpcap0.8") && missing.contains("libpcap.so.1"), "{missing}");
    }
}
