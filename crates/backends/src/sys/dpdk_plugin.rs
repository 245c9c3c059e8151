//! The plugin for DPDK: its interface with this program (`c/linerate_dpdk.h`), and loading it.
//!
//! Unsafe because it is C. It is loaded at run time and never unloaded: DPDK has threads.
#![allow(unsafe_code)]

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use linerate_burst::Desc;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr::NonNull;

/// From `c/linerate_dpdk.h`.
const ABI: u32 = 3;
const WHY: usize = 512;
pub(super) const NAME: usize = 64;

#[repr(C)]
pub(super) struct StartArgs {
    memory_mib: u32,
    huge: u32,
    prefix: *const c_char,
}

#[repr(C)]
pub(super) struct OpenArgs {
    pub device: *const c_char,
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub depth: u32,
    pub mtu: u32,
    pub promiscuous: u32,
    pub fifo: u32,
    pub stamps: u32,
}

/// Properties of the opened device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Info {
    pub rx_queues: u16,
    pub tx_queues: u16,
    /// Longest frame that is sent.
    pub longest: u32,
    pub stamps: u32,
    pub promiscuous: u32,
    pub node: i32,
    pub driver: [u8; NAME],
}

/// Source of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamps {
    Poll = 0,
    Driver = 1,
    ByCard = 2,
}

impl Info {
    pub(crate) fn driver(&self) -> String {
        name(&self.driver)
    }

    pub(crate) fn stamps(&self) -> Stamps {
        match self.stamps {
            1 => Stamps::Driver,
            2 => Stamps::ByCard,
            _ => Stamps::Poll,
        }
    }
}

#[repr(C)]
pub(super) struct TakeArgs {
    pub room: *mut u8,
    pub descs: *mut Desc,
    pub bytes: u32,
    pub most: u32,
    pub snap: u32,
    pub now: u64,
    pub frames: u32,
    pub waiting: u32,
    pub base: *const u8,
    pub joined: u64,
    pub tagged: u64,
    pub unstamped: u64,
}

#[repr(C)]
pub(super) struct PutArgs {
    pub base: *const u8,
    pub descs: *const Desc,
    pub frames: u32,
    pub done: u32,
    pub sent: u32,
    pub bytes: u64,
    pub too_long: u64,
    pub too_short: u64,
}

/// Counters of a driver.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Stats {
    pub received: u64,
    pub missed: u64,
    pub errors: u64,
    pub no_buffer: u64,
    pub sent: u64,
    pub send_errors: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Counter {
    pub name: [u8; NAME],
    pub value: u64,
}

#[repr(C)]
pub(super) struct ClassicArgs {
    pub ports: *const NonNull<Port>,
    pub count: u32,
    pub frames: u64,
    pub base: *mut u8,
    pub bytes: usize,
    pub descs: *mut Desc,
    pub most: u32,
    pub threads: u32,
    pub cpu_ns: [u64; 3],
}

const SIZES: [usize; 9] = [
    size_of::<Desc>(),
    size_of::<StartArgs>(),
    size_of::<OpenArgs>(),
    size_of::<Info>(),
    size_of::<TakeArgs>(),
    size_of::<PutArgs>(),
    size_of::<Stats>(),
    size_of::<Counter>(),
    size_of::<ClassicArgs>(),
];

/// A port of the plugin, used only by pointer.
pub(super) enum Port {}

#[repr(C)]
struct Table {
    abi: u32,
    size: u32,
    sizes: [u32; 9],
    reserved: u32,
    version: *const c_char,
    start: Option<unsafe extern "C" fn(*const StartArgs, *mut c_char) -> c_int>,
    open: Option<unsafe extern "C" fn(*const OpenArgs, *mut *mut Port, *mut Info, *mut c_char) -> c_int>,
    take: Option<unsafe extern "C" fn(*mut Port, u16, *mut TakeArgs)>,
    detach: Option<unsafe extern "C" fn(*mut Port, u16)>,
    attach: Option<unsafe extern "C" fn(*mut Port, u16)>,
    put: Option<unsafe extern "C" fn(*mut Port, u16, *mut PutArgs)>,
    stats: Option<unsafe extern "C" fn(*mut Port, *mut Stats)>,
    counters: Option<unsafe extern "C" fn(*mut Port, *mut Counter, u32) -> u32>,
    close: Option<unsafe extern "C" fn(*mut Port)>,
    classic: Option<unsafe extern "C" fn(*mut ClassicArgs) -> u64>,
}

/// Functions of the plugin, all present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub start: unsafe extern "C" fn(*const StartArgs, *mut c_char) -> c_int,
    pub open: unsafe extern "C" fn(*const OpenArgs, *mut *mut Port, *mut Info, *mut c_char) -> c_int,
    pub take: unsafe extern "C" fn(*mut Port, u16, *mut TakeArgs),
    pub detach: unsafe extern "C" fn(*mut Port, u16),
    pub attach: unsafe extern "C" fn(*mut Port, u16),
    pub put: unsafe extern "C" fn(*mut Port, u16, *mut PutArgs),
    pub stats: unsafe extern "C" fn(*mut Port, *mut Stats),
    pub counters: unsafe extern "C" fn(*mut Port, *mut Counter, u32) -> u32,
    pub close: unsafe extern "C" fn(*mut Port),
    pub classic: unsafe extern "C" fn(*mut ClassicArgs) -> u64,
}

#[derive(Debug)]
pub(crate) struct Plugin {
    pub(super) functions: Functions,
    /// Version of DPDK, as text.
    pub version: String,
}

impl Plugin {
    /// Loads the plugin; an error explains a file that is not a plugin, or has another version.
    pub(crate) fn load(path: &Path) -> Result<Plugin, String> {
        // SAFETY: loading runs the initialisers of DPDK's libraries, which register its parts.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| words(&error))?;
        // SAFETY: the type is that of the declaration, which is the same in every version.
        let entry = unsafe { library.get::<unsafe extern "C" fn() -> *const Table>(c"linerate_dpdk_plugin") };
        let entry = *entry.map_err(|_| "no symbol linerate_dpdk_plugin: not a plugin for DPDK".to_owned())?;
        // A rejected plugin stays loaded without effect: DPDK was not started.
        std::mem::forget(library);
        // SAFETY: as for the type.
        let table = unsafe { entry() };
        if table.is_null() {
            return Err("no table of functions".to_owned());
        }
        // SAFETY: the first two numbers of the table have the same offsets in every version.
        let (abi, size) = unsafe { ((&raw const (*table).abi).read(), (&raw const (*table).size).read()) };
        if abi != ABI {
            return Err(format!(
                "built for version {abi} of the interface, this program needs {ABI}; rebuild it (make dpdk)"
            ));
        }
        if size as usize != size_of::<Table>() {
            let own = size_of::<Table>();
            return Err(format!("its table has {size} bytes, not {own}; rebuild it (make dpdk)"));
        }
        // SAFETY: with this version and size it is such a table, which never changes.
        let table = unsafe { &*table };
        if let Some(at) = (0..SIZES.len()).find(|at| table.sizes[*at] as usize != SIZES[*at]) {
            let (its, own) = (table.sizes[at], SIZES[at]);
            return Err(format!("its structure {at} has {its} bytes, not {own}; rebuild it (make dpdk)"));
        }
        let functions = functions(table).ok_or("a function is missing in its table; rebuild it (make dpdk)")?;
        Ok(Plugin { functions, version: text(table.version) })
    }

    /// Starts DPDK, which is possible once per process.
    pub(crate) fn start(&self, memory_mib: u32, huge: bool, prefix: &str) -> Result<(), String> {
        let prefix = CString::new(prefix).map_err(|error| error.to_string())?;
        let start = StartArgs { memory_mib, huge: huge.into(), prefix: prefix.as_ptr() };
        // SAFETY: memory that it reads lives until it returns, and the buffer has room for a reason.
        said(|why| unsafe { (self.functions.start)(&raw const start, why) })
    }
}

fn functions(table: &Table) -> Option<Functions> {
    Some(Functions {
        start: table.start?,
        open: table.open?,
        take: table.take?,
        detach: table.detach?,
        attach: table.attach?,
        put: table.put?,
        stats: table.stats?,
        counters: table.counters?,
        close: table.close?,
        classic: table.classic?,
    })
}

/// Returns whether this process has rights of its file that its user may lack: then its environment must not be
/// trusted.
pub(crate) fn is_secure() -> bool {
    // SAFETY: reads a number that the kernel provided for this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Calls a function that returns 0, or writes a reason.
pub(super) fn said(call: impl FnOnce(*mut c_char) -> c_int) -> Result<(), String> {
    let mut why = [0_u8; WHY];
    if call(why.as_mut_ptr().cast()) == 0 { Ok(()) } else { Err(name(&why)) }
}

/// Reads text in a field, up to its NUL.
pub(super) fn name(field: &[u8]) -> String {
    String::from_utf8_lossy(field.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the table has a NUL-terminated text there that never changes.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the message of the dynamic linker, which libloading wraps.
fn words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |linker| linker.to_string())
}
