//! pcap-filter text, compiled by libpcap and run in the kernel or here.
//!
//! [`Filter::compile`] passes the text to the libpcap of the machine, loaded on first use, which returns classic BPF.
//! [`Filter::matches`] runs it on a frame in this process and returns the result of `tcpdump -r FILE TEXT`.
//! [`Filter::in_kernel`] returns the program with the same result for a packet socket, if it can run there.
//!
//! - [`program`]: instructions, and checked programs;
//! - [`interpret`]: decodes and runs a checked program, pure and without panics;
//! - [`kernel`]: differences between the kernel and a reader of the file, and programs that allow for them;
//! - `libpcap`: the only file with unsafe code.
//!
//! libpcap compiles the text, for each link type. It is loaded at run time, so that the program starts without it. The
//! kernel runs the filter if its result is exactly that on the frame as captured; otherwise this process does. Frames
//! whose VLAN tag the kernel has removed are the subtle case: the socket filter sees them without it. So the kernel
//! program starts with a test for a tag and passes all such frames, and the process decides once the tag is restored.
//! [`kernel`] lists all other differences.
#![deny(unsafe_code)]

pub mod interpret;
pub mod kernel;
mod libpcap;
pub mod program;

pub use kernel::{KernelProgram, REFUSE_TAGGED, UserspaceReason};
pub use program::{Insn, Program, ProgramFault};

use std::sync::{Mutex, PoisonError};

/// Compiled filters: the same text means the same hosts for a whole run, and name look-ups may not be possible later.
static KNOWN: Mutex<Vec<(String, u16, Filter)>> = Mutex::new(Vec::new());
const MOST_KNOWN: usize = 64;

/// A filter for frames of one link type.
#[derive(Clone, Debug)]
pub struct Filter {
    /// `None` matches everything.
    program: Option<Program>,
}

impl Filter {
    /// Compiles pcap-filter text (pcap-filter(7)) for frames of link type `link`, a `LINKTYPE_*` number as in capture
    /// files (1 is Ethernet). Empty or blank text matches everything and needs no libpcap. libpcap resolves host names
    /// and the like now, which can take seconds. The network mask is treated as unknown, so `ip broadcast` means
    /// 0.0.0.0 and 255.255.255.255; primitives that need a running kernel (`inbound`, `ifindex`) are rejected. Both are
    /// as with `tcpdump -r`. If a link type's header is in the byte order of the capturing machine (`LINKTYPE_NULL`),
    /// that of this machine is assumed.
    ///
    /// # Errors
    /// [`FilterError`].
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

    /// Returns whether a frame passes. `frame` holds the captured bytes, `wire_len` is its length on the wire in bytes
    /// (without FCS), which may be greater. A test that reaches beyond the captured bytes rejects it.
    #[inline]
    pub fn matches(&self, frame: &[u8], wire_len: u32) -> bool {
        self.program.as_ref().is_none_or(|program| program.run(frame, wire_len) != 0)
    }

    /// Returns the program that a packet socket (`AF_PACKET`, `SOCK_RAW`) can run in place of [`Filter::matches`],
    /// truncating frames to `snap` bytes (0: not truncated). See [`kernel`] for the frames that must still be filtered
    /// here.
    ///
    /// # Errors
    /// The reason why the filter must run in this process.
    pub fn in_kernel(&self, snap: u32) -> Result<KernelProgram, UserspaceReason> {
        match &self.program {
            Some(program) => KernelProgram::new(program, snap),
            None => Ok(KernelProgram::accepting_all(snap)),
        }
    }

    /// Returns the instructions as text, one line each, as `tcpdump -d` prints them; without a program, one that accepts
    /// every packet.
    pub fn listing(&self) -> Result<Vec<String>, FilterError> {
        libpcap::listing(&self.insns())
    }

    /// Returns the instructions; without a program, the one that accepts every packet.
    pub fn insns(&self) -> Vec<Insn> {
        let all = || vec![Insn { code: 0x06, jt: 0, jf: 0, k: 0x40000 }];
        self.program.as_ref().map_or_else(all, |program| program.insns().to_vec())
    }

    /// Returns the compiled program; `None` if everything matches.
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }
}

/// Returns libpcap's name and description of a link type, such as `EN10MB` and `Ethernet`.
pub fn link_name(link: u16) -> Option<(String, String)> {
    libpcap::link_name(link)
}

/// The failure to compile a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// libpcap is missing, or lacks a function.
    #[error("filters need libpcap, which could not be loaded ({detail}); on Debian: apt install libpcap0.8")]
    NoLibpcap {
        /// The attempts, and the dynamic linker's messages.
        detail: String,
    },
    /// The text holds a NUL byte.
    #[error("filter {filter:?}: NUL byte at offset {offset}; remove it")]
    Nul {
        /// The filter text.
        filter: String,
        /// Offset of the NUL byte.
        offset: usize,
    },
    /// libpcap rejected the text.
    #[error("filter {filter:?}: {message}{}", advice(.filter))]
    Refused {
        /// The filter text.
        filter: String,
        /// Message of libpcap.
        message: String,
    },
    /// libpcap compiled the text to a program that fails the checks.
    #[error("filter {filter:?}: libpcap compiled it to an invalid program: {fault}")]
    Program {
        /// The filter text.
        filter: String,
        /// The fault of the program.
        fault: ProgramFault,
    },
}

/// Returns a hint for a Wireshark display filter, which is a different language that many users know better.
fn advice(filter: &str) -> &'static str {
    let is_field = |word: &str| {
        word.split_once('.').is_some_and(|(one, other)| {
            one.starts_with(|c: char| c.is_ascii_lowercase()) && other.starts_with(|c: char| c.is_ascii_lowercase())
        })
    };
    let compares = ["==", "!=", " eq ", " ne ", " contains "].iter().any(|operator| filter.contains(operator));
    if compares && filter.split([' ', '(', '!', '=']).any(is_field) {
        "; this looks like a Wireshark display filter: use pcap-filter text, as in tcp port 443 (man pcap-filter)"
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
