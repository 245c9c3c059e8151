//! What the kernel and a driver say about an interface, by ioctl (netdevice(7), linux/ethtool.h).
//!
//! Unsafe because requests and answers go to the kernel as raw memory. Reading needs no privilege.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GSET: u32 = 0x01;
const GDRVINFO: u32 = 0x03;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const GCHANNELS: u32 = 0x3c;
const SS_STATS: u32 = 1;
const SS_FEATURES: u32 = 4;
const STRING: usize = 32;
/// More counters or features than any driver has. Every answer gets room for so many: kernels before 6.19 write as
/// many as the driver has at that moment, whatever number was announced (linux/ethtool.h, `n_stats`).
const MAX_STRINGS: usize = 65_536;

/// Asks about interfaces through any socket of their network namespace.
#[derive(Clone, Copy)]
pub struct Ethtool<'a> {
    socket: BorrowedFd<'a>,
    name: [u8; libc::IFNAMSIZ],
}

impl<'a> Ethtool<'a> {
    /// Asks about `interface`.
    pub fn new(socket: BorrowedFd<'a>, interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        let bytes = interface.as_bytes();
        if bytes.len() >= name.len() || bytes.contains(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        name[..bytes.len()].copy_from_slice(bytes);
        Ok(Ethtool { socket, name })
    }

    /// The interface's number.
    pub fn index(&self) -> io::Result<u32> {
        // SAFETY: SIOCGIFINDEX leaves a number in the union.
        let index = unsafe { self.read(libc::SIOCGIFINDEX)?.ifr_ifru.ifru_ifindex };
        u32::try_from(index).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Longest network packet, in bytes.
    pub fn mtu(&self) -> io::Result<u32> {
        // SAFETY: SIOCGIFMTU leaves a number in the union.
        let mtu = unsafe { self.read(libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
        u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// `IFF_*` flags (linux/if.h).
    pub fn flags(&self) -> io::Result<u32> {
        // SAFETY: SIOCGIFFLAGS leaves 16 bits in the union.
        Ok(u32::from(unsafe { self.read(libc::SIOCGIFFLAGS)?.ifr_ifru.ifru_flags } as u16))
    }

    /// `ARPHRD_*` number and MAC address.
    pub fn hardware(&self) -> io::Result<(u32, [u8; 6])> {
        // SAFETY: SIOCGIFHWADDR leaves a sockaddr in the union.
        let address = unsafe { self.read(libc::SIOCGIFHWADDR)?.ifr_ifru.ifru_hwaddr };
        let bytes = std::array::from_fn(|index| address.sa_data[index] as u8);
        Ok((address.sa_family.into(), bytes))
    }

    /// Its first IPv4 address, if it has one.
    pub fn ipv4(&self) -> io::Result<std::net::Ipv4Addr> {
        // SAFETY: SIOCGIFADDR leaves a sockaddr in the union; of family AF_INET, as the socket is.
        let address = unsafe { self.read(libc::SIOCGIFADDR)?.ifr_ifru.ifru_addr };
        // struct sockaddr_in: port, then address.
        let bytes: [u8; 4] = std::array::from_fn(|index| address.sa_data[2 + index] as u8);
        Ok(bytes.into())
    }

    /// The driver's name.
    pub fn driver(&self) -> io::Result<String> {
        // struct ethtool_drvinfo: cmd, driver[32], ... 196 bytes in all.
        let mut info = [0u32; 49];
        info[0] = GDRVINFO;
        self.ask(&mut info)?;
        Ok(text(&bytes_of(&info)[4..4 + STRING]))
    }

    /// The speed of the link in Mb/s; `None` where the driver does not know it.
    pub fn speed(&self) -> io::Result<Option<u64>> {
        // struct ethtool_cmd: 44 bytes, with the lower half of the speed at 12 and the upper one at 28; all ones: unknown.
        let mut settings = [0u32; 11];
        settings[0] = GSET;
        self.ask(&mut settings)?;
        let bytes = bytes_of(&settings);
        let half = |at: usize| u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        let speed = half(12) | half(28) << 16;
        Ok(Some(speed.into()).filter(|speed| ![0, 0xffff, 0xffff_ffff].contains(speed)))
    }

    /// Receive and send queues in use: those of their own kind and those that are combined.
    pub fn queues(&self) -> io::Result<(u32, u32)> {
        // struct ethtool_channels: cmd, max_rx, max_tx, max_other, max_combined, rx, tx, other, combined.
        let mut channels = [0u32; 9];
        channels[0] = GCHANNELS;
        self.ask(&mut channels)?;
        Ok((channels[5].saturating_add(channels[8]), channels[6].saturating_add(channels[8])))
    }

    /// The driver's own counters, by name.
    pub fn statistics(&self) -> io::Result<Vec<(String, u64)>> {
        let names = self.strings(SS_STATS)?;
        // struct ethtool_stats: cmd, n_stats, u64 data[n]; the data begins 8 bytes in.
        let mut answer = vec![0u32; 2 + 2 * MAX_STRINGS];
        answer[0] = GSTATS;
        answer[1] = names.len() as u32;
        self.ask(&mut answer)?;
        let values = answer[2..].chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32);
        Ok(names.into_iter().zip(values).collect())
    }

    /// The offloads that are on.
    pub fn features(&self) -> io::Result<Vec<String>> {
        let names = self.strings(SS_FEATURES)?;
        // struct ethtool_gfeatures: cmd, size, then blocks { available, requested, active, never_changed }.
        let blocks = names.len().div_ceil(32);
        let mut answer = vec![0u32; 2 + 4 * MAX_STRINGS / 32];
        answer[0] = GFEATURES;
        answer[1] = blocks as u32;
        self.ask(&mut answer)?;
        let active = |index: usize| answer[2 + 4 * (index / 32) + 2] >> (index % 32) & 1 != 0;
        Ok(names.into_iter().enumerate().filter(|(index, _)| active(*index)).map(|(_, name)| name).collect())
    }

    fn strings(&self, set: u32) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: cmd, reserved, u64 mask, u32 counts[1].
        let mut info = [GSSET_INFO, 0, 1 << set, 0, 0];
        self.ask(&mut info)?;
        let count = if info[2] == 0 { 0 } else { info[4] as usize };
        if count > MAX_STRINGS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more names than any driver has"));
        }
        // struct ethtool_gstrings: cmd, string_set, len, then `len` names of 32 bytes.
        let mut answer = vec![0u32; 3 + MAX_STRINGS * STRING / 4];
        answer[0] = GSTRINGS;
        answer[1] = set;
        answer[2] = count as u32;
        self.ask(&mut answer)?;
        Ok(bytes_of(&answer[3..3 + count * STRING / 4]).chunks_exact(STRING).map(text).collect())
    }

    fn read(&self, request: libc::Ioctl) -> io::Result<libc::ifreq> {
        let mut ifreq = self.request();
        // SAFETY: the SIOCGIF* requests used here read the name from and write into the ifreq alone.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), request, &raw mut ifreq) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(ifreq) }
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all-zero is a valid ifreq.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in ifreq.ifr_name.iter_mut().zip(self.name) {
            *to = from as libc::c_char;
        }
        ifreq
    }

    /// One ioctl: the first word of `request` is the command, and the answer takes its place.
    fn ask(&self, request: &mut [u32]) -> io::Result<()> {
        let mut ifreq = self.request();
        ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: `request` is live and writable, and as large as its command's structure with room for
        // MAX_STRINGS elements where the number of elements is the driver's to say.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut ifreq) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
