//! The machine's libpcap, loaded on first use: compiles filter text to classic BPF.
//!
//! This is the crate's only file with unsafe code. It calls eight functions of libpcap, declared below as in
//! pcap(3PCAP), and reads the program that one of them returns. libpcap is loaded instead of linked so that the program
//! starts, and does everything that needs no filter, on machines without it.
//!
//! libpcap compiles some texts differently for a device than for a file (`inbound`; IPv6 after the loopback header,
//! whose number each BSD chose for itself). So it gets a file: a header, in memory, without frames. That also leaves
//! the translation of file link types to libpcap.
#![allow(unsafe_code)]

use crate::{FilterError, Insn};
use libc::FILE;
use libloading::Library;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Names of the library: upstream and Fedora, Debian, and a development package.
const NAMES: &[&str] = &["libpcap.so.1", "libpcap.so.0.8", "libpcap.so"];
/// Maximum frame length (`MAXIMUM_SNAPLEN` of libpcap): the result of programs for a frame that passes.
const SNAP_LEN: u32 = 262_144;
/// The network mask that `tcpdump -r` uses.
const NET_MASK: c_uint = 0;

/// Compiles filter text for frames of a link type, given as `LINKTYPE_*`.
pub(crate) fn compile(text: &str, link: u16) -> Result<Vec<Insn>, FilterError> {
    let c_text =
        CString::new(text).map_err(|error| FilterError::Nul { filter: text.into(), offset: error.nul_position() })?;
    libpcap()?.compile(&c_text, link).map_err(|message| FilterError::Refused { filter: text.into(), message })
}

/// Returns the instructions as text, one line each, as `tcpdump -d` prints them.
pub(crate) fn listing(insns: &[Insn]) -> Result<Vec<String>, FilterError> {
    let libpcap = libpcap()?;
    // bpf_image writes into memory of its own.
    let _guard = libpcap.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
    let line = |(at, insn): (usize, &Insn)| {
        // SAFETY: the instruction is there while bpf_image reads it, and has the layout of `struct bpf_insn`.
        let line = unsafe { (libpcap.image)(insn, at as c_int) };
        // SAFETY: bpf_image returns its own array, which ends in NUL and stays as it is while the lock is held.
        unsafe { CStr::from_ptr(line) }.to_string_lossy().into_owned()
    };
    Ok(insns.iter().enumerate().map(line).collect())
}

/// Returns libpcap's name and description of a link type, such as `EN10MB` and `Ethernet`.
pub(crate) fn link_name(link: u16) -> Option<(String, String)> {
    let libpcap = libpcap().ok()?;
    let text = |of: unsafe extern "C" fn(c_int) -> *const c_char| {
        // SAFETY: the function takes any number.
        let text = unsafe { of(c_int::from(link)) };
        // SAFETY: a pointer other than null leads to a constant of libpcap.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    text(libpcap.link_name).zip(text(libpcap.link_description))
}

/// Returns the library, loaded on first use.
fn libpcap() -> Result<&'static Libpcap, FilterError> {
    static LIBPCAP: OnceLock<Result<Libpcap, String>> = OnceLock::new();
    let libpcap = LIBPCAP.get_or_init(|| Libpcap::load(NAMES)).as_ref();
    libpcap.map_err(|detail| FilterError::NoLibpcap { detail: detail.clone() })
}

/// Buffer size for libpcap's error messages (`PCAP_ERRBUF_SIZE`).
const ERROR_BYTES: usize = 256;

/// `struct bpf_program` of pcap/bpf.h; its `struct bpf_insn` has the layout of [`Insn`].
#[repr(C)]
struct BpfProgram {
    len: c_uint,
    insns: *mut Insn,
}

/// `pcap_t`, used only through pointers.
type Pcap = c_void;

/// The functions in use. The library is kept loaded because they are part of it.
struct Libpcap {
    fopen_offline: unsafe extern "C" fn(*mut FILE, *mut c_char) -> *mut Pcap,
    compile: unsafe extern "C" fn(*mut Pcap, *mut BpfProgram, *const c_char, c_int, c_uint) -> c_int,
    geterr: unsafe extern "C" fn(*mut Pcap) -> *mut c_char,
    freecode: unsafe extern "C" fn(*mut BpfProgram),
    close: unsafe extern "C" fn(*mut Pcap),
    image: unsafe extern "C" fn(*const Insn, c_int) -> *const c_char,
    link_name: unsafe extern "C" fn(c_int) -> *const c_char,
    link_description: unsafe extern "C" fn(c_int) -> *const c_char,
    /// The compiler kept its state in global variables before libpcap 1.8.
    one_at_a_time: Mutex<()>,
    _library: Library,
}

impl Libpcap {
    /// Loads the first available library of `names`.
    ///
    /// # Errors
    /// The attempts made.
    fn load(names: &[&str]) -> Result<Libpcap, String> {
        let mut tried = Vec::new();
        for name in names {
            // SAFETY: libpcap's initialisers only set up its own variables, and it is never unloaded.
            match unsafe { Library::new(*name) } {
                Ok(library) => return Libpcap::bind(library).map_err(|error| format!("{name}: {}", words(&error))),
                Err(error) => tried.push(words(&error)),
            }
        }
        Err(tried.join("; "))
    }

    fn bind(library: Library) -> Result<Libpcap, libloading::Error> {
        // SAFETY: each field's type is the function's declaration in pcap/pcap.h, unchanged since libpcap 1.0.
        unsafe {
            Ok(Libpcap {
                fopen_offline: *library.get(c"pcap_fopen_offline")?,
                compile: *library.get(c"pcap_compile")?,
                geterr: *library.get(c"pcap_geterr")?,
                freecode: *library.get(c"pcap_freecode")?,
                close: *library.get(c"pcap_close")?,
                image: *library.get(c"bpf_image")?,
                link_name: *library.get(c"pcap_datalink_val_to_name")?,
                link_description: *library.get(c"pcap_datalink_val_to_description")?,
                one_at_a_time: Mutex::new(()),
                _library: library,
            })
        }
    }

    /// Compiles `text`.
    ///
    /// # Errors
    /// libpcap's message.
    fn compile(&self, text: &CStr, link: u16) -> Result<Vec<Insn>, String> {
        // The lock guards no data of ours, so a panic while holding it leaves nothing half done.
        let _guard = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = Handle::open(self, link)?;
        let mut program = BpfProgram { len: 0, insns: std::ptr::null_mut() };
        // SAFETY: the handle is open, the text ends in NUL, and the program is ours to fill in.
        let status = unsafe { (self.compile)(handle.pcap.as_ptr(), &mut program, text.as_ptr(), 1, NET_MASK) };
        if status != 0 {
            return Err(handle.error());
        }
        let insns = if program.insns.is_null() {
            Vec::new()
        } else {
            // SAFETY: libpcap stored `len` instructions there, which stay unchanged until freecode.
            unsafe { std::slice::from_raw_parts(program.insns, program.len as usize) }.to_vec()
        };
        // SAFETY: compile filled in the program, and it is not used again.
        unsafe { (self.freecode)(&mut program) };
        Ok(insns)
    }
}

/// Returns the dynamic linker's message, which libloading wraps in its own.
fn words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |linker| linker.to_string())
}

/// An open capture file without frames.
struct Handle<'a> {
    libpcap: &'a Libpcap,
    pcap: NonNull<Pcap>,
    /// The file, which must stay until `pcap` is closed.
    _header: Box<[u8; 24]>,
}

impl<'a> Handle<'a> {
    fn open(libpcap: &'a Libpcap, link: u16) -> Result<Handle<'a>, String> {
        let mut header = Box::new(file_header(link));
        // SAFETY: the memory has the given length, is only read in this mode, and stays until pcap_close.
        let file = unsafe { libc::fmemopen(header.as_mut_ptr().cast(), header.len(), c"rb".as_ptr()) };
        if file.is_null() {
            return Err(format!("no memory for a file: {}", std::io::Error::last_os_error()));
        }
        let mut error = [0; ERROR_BYTES];
        // SAFETY: the file is open, and there is room for the error that libpcap may write.
        let pcap = unsafe { (libpcap.fopen_offline)(file, error.as_mut_ptr()) };
        let Some(pcap) = NonNull::new(pcap) else {
            // SAFETY: libpcap leaves a file that it cannot use open, and it is not used elsewhere.
            unsafe { libc::fclose(file) };
            // SAFETY: the array was zeroed, and libpcap ends its text in NUL within it.
            return Err(unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy().into_owned());
        };
        Ok(Handle { libpcap, pcap, _header: header })
    }

    /// Returns libpcap's message about the last failure.
    fn error(&self) -> String {
        // SAFETY: the handle is open; the text lives in it, ends in NUL, and is copied before the next call on the
        // handle.
        unsafe { CStr::from_ptr((self.libpcap.geterr)(self.pcap.as_ptr())) }.to_string_lossy().into_owned()
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and this is its last use.
        unsafe { (self.libpcap.close)(self.pcap.as_ptr()) };
    }
}

/// The header of a pcap file (draft-ietf-opsawg-pcap, section 4), in this machine's byte order.
fn file_header(link: u16) -> [u8; 24] {
    let mut header = [0; 24];
    header[0..4].copy_from_slice(&0xa1b2_c3d4_u32.to_ne_bytes());
    header[4..6].copy_from_slice(&2_u16.to_ne_bytes());
    header[6..8].copy_from_slice(&4_u16.to_ne_bytes());
    header[16..20].copy_from_slice(&SNAP_LEN.to_ne_bytes());
    header[20..24].copy_from_slice(&u32::from(link).to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    /// Returns whether this machine has libpcap; prints a note if not.
    fn present() -> bool {
        let loaded = Libpcap::load(NAMES);
        if let Err(detail) = &loaded {
            eprintln!("SKIPPED: no libpcap ({detail})");
        }
        loaded.is_ok()
    }

    #[test]
    fn a_missing_library_is_named() {
        let detail = Libpcap::load(&["libpcap-that-is-not.so.1", "libpcap-nor-this.so"]).err().expect("no library");
        assert!(detail.contains("libpcap-that-is-not.so.1") && detail.contains("libpcap-nor-this.so"), "{detail}");
        let other = Libpcap::load(&["libc.so.6"]).err().expect("libc has no pcap_fopen_offline");
        assert!(other.contains("libc.so.6") && other.contains("pcap_fopen_offline"), "{other}");
    }

    #[test]
    fn errors_contain_the_message_of_libpcap() {
        if !present() {
            return;
        }
        let error = compile("tcp prt 80", 1).expect_err("not pcap-filter").to_string();
        assert!(error.contains("tcp prt 80") && error.contains("syntax error"), "{error}");
        let error = compile("ether host 1:2:3:4:5:6", 101).expect_err("raw IP has no addresses").to_string();
        assert!(error.contains("ethernet"), "{error}");
    }

    #[test]
    fn threads_compile_at_once() {
        if !present() {
            return;
        }
        let threads: Vec<_> = (1..9)
            .map(|port: u16| {
                std::thread::spawn(move || {
                    let mut frame = [0_u8; 60];
                    (frame[12], frame[14], frame[23], frame[37]) = (8, 0x45, 17, port as u8);
                    for _ in 0..50 {
                        let insns = compile(&format!("udp dst port {port}"), 1).expect("it compiles");
                        let program = Program::new(insns).expect("libpcap's programs are valid");
                        assert_eq!(program.run(&frame, 60), SNAP_LEN);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    }
}
