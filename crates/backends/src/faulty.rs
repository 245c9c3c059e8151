//! `faulty:PORT?drop=0.1%&seed=7`: any port behind a wire with planned losses and damage.
//!
//! Options of [`Faults`] are its own, all others are the wrapped port's; `port.NAME=` always passes an option to the
//! wrapped port. In the order of the data path: `plan` decides from seed, queue and number only, `damage` changes
//! bytes, `delay_line` reorders frames, `pace` sets their departure times, `fifo` keeps them until then; `receive` and `send`
//! put the line after or before a queue.
//!
//! - **Time.** The time of a delayed frame is moved accordingly, as if it had arrived later: so a merge orders frames
//!   as the bad wire would have. Times of other frames are unchanged. On receiving, a delay starts at the frame's
//!   timestamp, so it includes the wait for the wrapped port; on sending, at the flush that follows.
//! - **Counts.** Requested faults are *refused*, not lost. Copies count as received, and again by name.
//! - **Memory.** Every frame is copied once. Waiting frames take at most 64 MiB per queue; above that the wrapped port
//!   waits, or the sender, and counts frames for which its ring is full.

mod checksum;
mod damage;
mod delay_line;
mod faults;
mod fifo;
mod pace;
mod plan;
mod probability;
mod receive;
mod send;

pub use self::faults::{Corruption, Faults, NAMES};
pub use self::plan::{FrameFaults, Plan};
pub use self::probability::Chance;

use self::receive::FaultyRx;
use self::send::FaultyTx;
use linerate_port::spec::UNKNOWN_OPTION;
use linerate_port::{
    Backend, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort, TxQueue,
};

/// In front of options that are the wrapped port's in any case.
const FOR_PORT: &str = "port.";

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "faulty",
    placeholder: "port",
    sentence: "any port behind a wire that drops, repeats, reorders, damages and delays frames, from a seed",
    target: Target::Port(|spec| split(spec).map(|(_, inner)| inner)),
    rx_options: &[],
    tx_options: &[],
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Opens the wrapped port to receive from.
fn open_rx(spec: &Spec, options: &RxOptions, registry: &Registry) -> Result<RxPort, PortError> {
    let (faults, inner) = split(spec)?;
    // The faults come before the filter and the snap length, as on a wire.
    let options = RxOptions { snap: 0, filter: String::new(), tally: false, scatter: false, ..options.clone() };
    Ok(receive_through(registry.open_rx(&inner, &options).map_err(explain)?, &faults, spec.to_string()))
}

/// Opens the wrapped port to send to.
fn open_tx(spec: &Spec, options: &TxOptions, registry: &Registry) -> Result<TxPort, PortError> {
    let (faults, inner) = split(spec)?;
    Ok(send_through(registry.open_tx(&inner, options).map_err(explain)?, &faults, spec.to_string()))
}

/// In front of the names of faults in an error.
const FAULTS: &str = "; faults: ";

/// Adds the names of the faults to an error about an unknown option: it may be one of them, misspelled.
fn explain(error: PortError) -> PortError {
    match error {
        PortError::Wrong { port, reason } if reason.starts_with(UNKNOWN_OPTION) && !reason.contains(FAULTS) => {
            PortError::wrong(port, format!("{reason}{FAULTS}{}", NAMES.join(", ")))
        }
        error => error,
    }
}

/// Puts a line with these faults after an open port, under a new name.
pub fn receive_through(port: RxPort, faults: &Faults, name: String) -> RxPort {
    let wrap =
        |(number, queue)| Box::new(FaultyRx::new(queue, Plan::new(faults.clone(), number as u64))) as Box<dyn RxQueue>;
    let queues = port.queues.into_iter().enumerate().map(wrap).collect();
    RxPort { name, queues, filter: String::new(), ..port }
}

/// Puts a line with these faults before an open port, under a new name.
pub fn send_through(port: TxPort, faults: &Faults, name: String) -> TxPort {
    let wrap =
        |(number, queue)| Box::new(FaultyTx::new(queue, Plan::new(faults.clone(), number as u64))) as Box<dyn TxQueue>;
    let queues = port.queues.into_iter().enumerate().map(wrap).collect();
    TxPort { name, queues, ..port }
}

/// Splits a port into the faults and the wrapped port.
fn split(spec: &Spec) -> Result<(Faults, Spec), PortError> {
    let mut faults = Faults::default();
    let mut rest = Vec::new();
    for (key, value) in &spec.options {
        match key.strip_prefix(FOR_PORT) {
            Some(key) => rest.push((key.to_owned(), value.clone())),
            None if faults.set(key, value).map_err(|reason| PortError::wrong(spec.to_string(), reason))? => {}
            None => rest.push((key.clone(), value.clone())),
        }
    }
    let inner = spec.wrapped(rest);
    if inner.target.is_empty() {
        return Err(PortError::wrong(
            spec.to_string(),
            "missing port; expected a form such as faulty:packet:eth0?drop=1%",
        ));
    }
    Ok((faults, inner))
}
