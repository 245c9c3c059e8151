//! Properties of an interface reported by the kernel and a driver, by ioctl (netdevice(7), linux/ethtool.h).
//!
//! Unsafe because requests and answers go to the kernel as raw memory. Reading needs no privilege.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;
/// `HWTSTAMP_FILTER_ALL`, as a receive filter and as the bit of one.
pub(crate) const STAMP_ALL: u32 = 1;
const GSET: u32 = 0x01;
const GDRVINFO: u32 = 0x03;
const GRINGPARAM: u32 = 0x10;
const SRINGPARAM: u32 = 0x11;
const GPAUSEPARAM: u32 = 0x12;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GRXFH: u32 = 0x29;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GCHANNELS: u32 = 0x3c;
const GET_TS_INFO: u32 = 0x41;
const GRSSH: u32 = 0x46;
const SS_STATS: u32 = 1;
const SS_FEATURES: u32 = 4;
/// `SOF_TIMESTAMPING_RX_HARDWARE` and `SOF_TIMESTAMPING_RAW_HARDWARE` (linux/net_tstamp.h).
pub(crate) const STAMPS_HARDWARE: u32 = 1 << 2;
/// As above.
pub(crate) const STAMPS_RAW: u32 = 1 << 6;
const STRING: usize = 32;
/// Words of a block of features: changeable, active.
const AVAILABLE: usize = 0;
const ACTIVE: usize = 2;
/// Upper bound of counters or features of any driver. Every answer has room for this number: kernels before 6.19 write the
/// driver's number at that moment, whatever number was announced (linux/ethtool.h, `n_stats`).
const MAX_STRINGS: usize = 65_536;

/// Queries interfaces through any socket of their network namespace.
#[derive(Clone, Copy)]
pub(crate) struct Ethtool<'a> {
    socket: BorrowedFd<'a>,
    name: [u8; libc::IFNAMSIZ],
}

impl<'a> Ethtool<'a> {
    /// Selects an interface.
    pub(crate) fn new(socket: BorrowedFd<'a>, interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        let bytes = interface.as_bytes();
        if bytes.len() >= name.len() || bytes.contains(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        name[..bytes.len()].copy_from_slice(bytes);
        Ok(Ethtool { socket, name })
    }

    /// Returns the interface's number.
    pub(crate) fn index(&self) -> io::Result<u32> {
        // SAFETY: SIOCGIFINDEX leaves a number in the union.
        let index = unsafe { self.read(libc::SIOCGIFINDEX)?.ifr_ifru.ifru_ifindex };
        u32::try_from(index).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Returns the MTU, in bytes.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        // SAFETY: SIOCGIFMTU leaves a number in the union.
        let mtu = unsafe { self.read(libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
        u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Returns the `IFF_*` flags (linux/if.h).
    pub(crate) fn flags(&self) -> io::Result<u32> {
        // SAFETY: SIOCGIFFLAGS leaves 16 bits in the union.
        Ok(u32::from(unsafe { self.read(libc::SIOCGIFFLAGS)?.ifr_ifru.ifru_flags } as u16))
    }

    /// Returns the `ARPHRD_*` number and the MAC address.
    pub(crate) fn hardware(&self) -> io::Result<(u32, [u8; 6])> {
        // SAFETY: SIOCGIFHWADDR leaves a sockaddr in the union.
        let address = unsafe { self.read(libc::SIOCGIFHWADDR)?.ifr_ifru.ifru_hwaddr };
        let bytes = std::array::from_fn(|index| address.sa_data[index] as u8);
        Ok((address.sa_family.into(), bytes))
    }

    /// Returns its first IPv4 address, if it has one.
    pub(crate) fn ipv4(&self) -> io::Result<std::net::Ipv4Addr> {
        // SAFETY: SIOCGIFADDR leaves a sockaddr in the union; of family AF_INET, as the socket is.
        let address = unsafe { self.read(libc::SIOCGIFADDR)?.ifr_ifru.ifru_addr };
        // struct sockaddr_in: port, then address.
        let bytes: [u8; 4] = std::array::from_fn(|index| address.sa_data[2 + index] as u8);
        Ok(bytes.into())
    }

    /// Returns the driver's name.
    pub(crate) fn driver(&self) -> io::Result<String> {
        Ok(self.driver_info()?[0].clone())
    }

    /// Returns the names of the driver, of its firmware's version, and of the bus address.
    pub(crate) fn driver_info(&self) -> io::Result<[String; 3]> {
        // struct ethtool_drvinfo: cmd, then driver, version, fw_version, bus_info of 32 bytes each, ... 196 bytes in all.
        let mut info = [0u32; 49];
        info[0] = GDRVINFO;
        self.ask(&mut info)?;
        let bytes = bytes_of(&info);
        Ok([0, 2, 3].map(|place| text(&bytes[4 + place * STRING..][..STRING])))
    }

    /// Returns the speed of the link in Mb/s; `None` if the driver does not know it.
    pub(crate) fn speed(&self) -> io::Result<Option<u64>> {
        // struct ethtool_cmd: 44 bytes, with the lower half of the speed at 12 and the upper one at 28; all ones: unknown.
        let mut settings = [0u32; 11];
        settings[0] = GSET;
        self.ask(&mut settings)?;
        let bytes = bytes_of(&settings);
        let half = |at: usize| u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        let speed = half(12) | half(28) << 16;
        Ok(Some(speed.into()).filter(|speed| ![0, 0xffff, 0xffff_ffff].contains(speed)))
    }

    /// Returns the receive and send queues in use: separate and combined ones.
    pub(crate) fn queues(&self) -> io::Result<(u32, u32)> {
        let channels = self.channels()?;
        Ok((channels[4].saturating_add(channels[7]), channels[5].saturating_add(channels[7])))
    }

    /// Returns the channels: maximum for receiving, sending, other, combined; then the current numbers.
    pub(crate) fn channels(&self) -> io::Result<[u32; 8]> {
        // struct ethtool_channels: cmd, max_rx, max_tx, max_other, max_combined, rx, tx, other, combined.
        self.words(GCHANNELS)
    }

    /// Returns the descriptors of a ring: maximum for receiving, mini, jumbo, sending; then the current numbers.
    pub(crate) fn rings(&self) -> io::Result<[u32; 8]> {
        self.words(GRINGPARAM)
    }

    /// Sets the descriptors of the receive rings; the rest is unchanged. Most drivers take the link down for it.
    pub(crate) fn set_rx_ring(&self, descriptors: u32) -> io::Result<()> {
        let mut request = [0; 9];
        request[0] = SRINGPARAM;
        request[1..].copy_from_slice(&self.rings()?);
        request[5] = descriptors;
        self.ask(&mut request)
    }

    /// Returns the state of pause frames: negotiated, honoured, sent.
    pub(crate) fn pause(&self) -> io::Result<[bool; 3]> {
        Ok(self.words(GPAUSEPARAM)?.map(|word: u32| word != 0))
    }

    /// Returns the kinds of timestamps (`SOF_TIMESTAMPING_*`), the number of the clock if it has one, and receive
    /// filters (bits).
    pub(crate) fn stamps(&self) -> io::Result<(u32, Option<u32>, u32)> {
        // struct ethtool_ts_info: cmd, so_timestamping, phc_index, tx_types, reserved[3], rx_filters, reserved[3].
        let info: [u32; 10] = self.words(GET_TS_INFO)?;
        Ok((info[0], u32::try_from(info[1] as i32).ok(), info[6]))
    }

    /// Returns the frames that the card stamps (`HWTSTAMP_FILTER_*`), with flags and the setting for sent frames.
    pub(crate) fn stamping(&self) -> io::Result<[u32; 3]> {
        let mut config = [0; 3];
        self.config(SIOCGHWTSTAMP, &mut config)?;
        Ok(config)
    }

    /// Sets the frames that the card stamps; returns the actual setting, which may include more.
    pub(crate) fn set_stamping(&self, mut config: [u32; 3]) -> io::Result<[u32; 3]> {
        self.config(SIOCSHWTSTAMP, &mut config)?;
        Ok(config)
    }

    fn config(&self, request: libc::Ioctl, config: &mut [u32; 3]) -> io::Result<()> {
        let mut ifreq = self.request();
        ifreq.ifr_ifru.ifru_data = config.as_mut_ptr().cast();
        // SAFETY: `config` is live and writable, and is the three words of struct hwtstamp_config (linux/net_tstamp.h).
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), request, &raw mut ifreq) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the fields that the receive hash covers for a flow type (linux/ethtool.h: `TCP_V4_FLOW`, `RXH_*`).
    pub(crate) fn hash_fields(&self, flow: u32) -> io::Result<u64> {
        // struct ethtool_rxnfc: cmd, flow_type, u64 data, ... 192 bytes in all; u64 begins at 8.
        let mut info = [0u32; 64];
        (info[0], info[1]) = (GRXFH, flow);
        self.ask(&mut info)?;
        Ok(u64::from(info[2]) | u64::from(info[3]) << 32)
    }

    /// Returns the receive-side scaling: the table, the key, the function (a bit), the input transformation
    /// (`RXH_XFRM_*`).
    pub(crate) fn spread(&self) -> io::Result<(Vec<u32>, Vec<u8>, u8, u8)> {
        // struct ethtool_rxfh: cmd, rss_context, indir_size, key_size, hfunc, input_xfrm, 2 bytes, 4 bytes, then the table and the key.
        let mut sizes = [0u32; 6];
        sizes[0] = GRSSH;
        self.ask(&mut sizes)?;
        let (table, key) = (sizes[2] as usize, sizes[3] as usize);
        if table > MAX_STRINGS || key > MAX_STRINGS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a larger table than any driver has"));
        }
        let mut answer = vec![0u32; 6 + 2 * MAX_STRINGS];
        (answer[0], answer[2], answer[3]) = (GRSSH, sizes[2], sizes[3]);
        self.ask(&mut answer)?;
        let [function, change, ..] = answer[4].to_ne_bytes();
        let key = bytes_of(&answer[6 + table..])[..key].to_vec();
        Ok((answer[6..6 + table].to_vec(), key, function, change))
    }

    /// Returns the driver's own counters, by name.
    pub(crate) fn statistics(&self) -> io::Result<Vec<(String, u64)>> {
        let names = self.strings(SS_STATS)?;
        // struct ethtool_stats: cmd, n_stats, u64 data[n]; the data begins 8 bytes in.
        let mut answer = vec![0u32; 2 + 2 * MAX_STRINGS];
        answer[0] = GSTATS;
        answer[1] = names.len() as u32;
        self.ask(&mut answer)?;
        let values = answer[2..].chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32);
        Ok(names.into_iter().zip(values).collect())
    }

    /// Returns the active offloads.
    pub(crate) fn features(&self) -> io::Result<Vec<String>> {
        self.features_in(ACTIVE)
    }

    /// Returns the changeable offloads.
    pub(crate) fn changeable_features(&self) -> io::Result<Vec<String>> {
        self.features_in(AVAILABLE)
    }

    /// Turns an offload on or off. The kernel may accept this without effect; query it afterwards.
    pub(crate) fn set_feature(&self, name: &str, on: bool) -> io::Result<()> {
        let names = self.strings(SS_FEATURES)?;
        let Some(index) = names.iter().position(|one| one == name) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("unknown offload {name}")));
        };
        // struct ethtool_sfeatures: cmd, size, then blocks { valid, requested }.
        let blocks = names.len().div_ceil(32);
        let mut request = vec![0u32; 2 + 2 * blocks];
        (request[0], request[1]) = (SFEATURES, blocks as u32);
        request[2 + 2 * (index / 32)] = 1 << (index % 32);
        request[2 + 2 * (index / 32) + 1] = u32::from(on) << (index % 32);
        self.ask(&mut request)
    }

    /// Returns the features whose bit is set in one word of each block.
    fn features_in(&self, word: usize) -> io::Result<Vec<String>> {
        let names = self.strings(SS_FEATURES)?;
        // struct ethtool_gfeatures: cmd, size, then blocks { available, requested, active, never_changed }.
        let blocks = names.len().div_ceil(32);
        let mut answer = vec![0u32; 2 + 4 * MAX_STRINGS / 32];
        answer[0] = GFEATURES;
        answer[1] = blocks as u32;
        self.ask(&mut answer)?;
        let is_set = |index: usize| answer[2 + 4 * (index / 32) + word] >> (index % 32) & 1 != 0;
        Ok(names.into_iter().enumerate().filter(|(index, _)| is_set(*index)).map(|(_, name)| name).collect())
    }

    /// Returns the words of an answer after the command, for commands with an answer of fixed size.
    fn words<const N: usize>(&self, command: u32) -> io::Result<[u32; N]> {
        let mut answer = [0u32; 64];
        answer[0] = command;
        self.ask(&mut answer)?;
        Ok(std::array::from_fn(|index| answer[1 + index]))
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
        // SAFETY: the SIOCGIF* requests used here read the name from and write into the ifreq only.
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

    /// Runs an ioctl: the first word of `request` is the command, and the answer replaces it.
    fn ask(&self, request: &mut [u32]) -> io::Result<()> {
        let mut ifreq = self.request();
        ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: `request` is live and writable, and as large as its command's structure with room for MAX_STRINGS
        // elements if the driver determines the number of elements.
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
