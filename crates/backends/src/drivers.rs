//! Facts on drivers of network cards that the kernel does not report, or reports only from Linux 6.3 on
//! (`NETDEV_CMD_DEV_GET`). Other drivers are tried when a port is opened.

use crate::xdp_features::too_old;
use linerate_port::InterfaceInfo;

/// A driver. `name` is that of `ethtool -i`.
struct Driver {
    name: &'static str,
    /// First kernel in which it runs XDP programs itself; `None` if it never does.
    native: Option<(u32, u32)>,
    /// True if it sends redirected frames only while some program is attached: it allocates the queues with it
    /// (`xdp_features_set_redirect_target`).
    sends_with_program: bool,
    /// True if a receive buffer of the card is a multiple of 1 KiB (`SRRCTL.BSIZEPKT`), rounded down: with zero copy a
    /// chunk of 2,048 bytes would receive 1,024 per descriptor, and the driver shows each as a frame.
    rounds_buffers: bool,
    /// First kernel that does not damage frames which a program generates.
    intact: Option<(u32, u32)>,
}

const OTHER: Driver = Driver { name: "", native: None, sends_with_program: false, rounds_buffers: false, intact: None };

/// Sources: `.ndo_bpf` and `.ndo_xdp_xmit` of each driver in drivers/net of the kernel, up to Linux 6.18.
const DRIVERS: [Driver; 15] = [
    Driver { name: "bnxt_en", native: Some((4, 11)), sends_with_program: true, ..OTHER },
    Driver { name: "e1000", ..OTHER },
    Driver { name: "e1000e", ..OTHER },
    Driver { name: "ena", native: Some((5, 6)), sends_with_program: true, ..OTHER },
    Driver { name: "gve", native: Some((6, 4)), sends_with_program: true, ..OTHER },
    Driver { name: "i40e", native: Some((4, 13)), sends_with_program: true, ..OTHER },
    Driver { name: "ice", native: Some((5, 5)), sends_with_program: true, ..OTHER },
    // intel/igb/igb_main.c: igb_setup_srrctl.
    Driver { name: "igb", native: Some((5, 10)), sends_with_program: true, rounds_buffers: true, ..OTHER },
    // intel/igc/igc_main.c: igc_configure_rx_ring.
    Driver { name: "igc", native: Some((5, 13)), sends_with_program: true, rounds_buffers: true, ..OTHER },
    Driver { name: "ixgbe", native: Some((4, 12)), sends_with_program: true, ..OTHER },
    Driver { name: "mlx5_core", native: Some((4, 9)), sends_with_program: true, ..OTHER },
    Driver { name: "r8169", ..OTHER },
    Driver { name: "tg3", ..OTHER },
    // It moves the head of a frame for its own header. Until commit "bpf, test_run: fix crashes due to XDP frame
    // overwriting/corruption" (Linux 6.9) a recycled frame kept that change.
    Driver { name: "virtio_net", native: Some((4, 10)), sends_with_program: true, intact: Some((6, 9)), ..OTHER },
    Driver { name: "vmxnet3", native: Some((6, 6)), ..OTHER },
];

fn driver(found: &InterfaceInfo) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.name == found.driver)
}

/// Explains why the driver runs no XDP program on this kernel, if known.
pub(crate) fn lacks_programs(found: &InterfaceInfo) -> Option<String> {
    let Some(native) = driver(found)?.native else {
        return Some(format!("the driver {} does not support XDP programs", found.driver));
    };
    Some(format!("the driver {} {}", found.driver, too_old(native)?))
}

/// Returns whether the driver sends redirected frames only while some program is attached.
pub(crate) fn sends_with_program(found: &InterfaceInfo) -> bool {
    driver(found).is_some_and(|driver| driver.sends_with_program)
}

/// Returns whether zero copy needs chunks of 4,096 bytes.
pub(crate) fn rounds_buffers(found: &InterfaceInfo) -> bool {
    driver(found).is_some_and(|driver| driver.rounds_buffers)
}

/// Explains that this kernel damages frames which a program generates for this driver, if it does.
pub(crate) fn damages(found: &InterfaceInfo) -> Option<String> {
    let reason = too_old(driver(found)?.intact?)?;
    Some(format!("older kernels damage generated frames with the driver {}: {reason}", found.driver))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(driver: &str) -> InterfaceInfo {
        InterfaceInfo { driver: driver.to_owned(), ..InterfaceInfo::default() }
    }

    #[test]
    fn drivers_are_found_by_name() {
        assert!(DRIVERS.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted, each once");
        assert_eq!(lacks_programs(&found("e1000e")).unwrap(), "the driver e1000e does not support XDP programs");
        assert!(lacks_programs(&found("i40e")).is_none() && lacks_programs(&found("unknown")).is_none());
        assert!(sends_with_program(&found("igb")) && !sends_with_program(&found("veth")));
        assert!(rounds_buffers(&found("igc")) && !rounds_buffers(&found("")));
    }
}
