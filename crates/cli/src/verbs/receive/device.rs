//! `--to device`: frames in memory of a GPU, and their options.

use super::options::DestinationArgs;
use crate::exit::usage;
use linerate_device::cpu::{Cpu, CpuConfig};
use linerate_device::frames::{DeviceDestination, Memory, Options, open};
use linerate_device::routes::{RouteRate, choose, measure};
use linerate_device::{Device, DeviceError, Form, Route};
use linerate_transport::frames::Config;
use std::fmt;
use std::str::FromStr;
use std::time::Instant;

/// Options of `--to`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Receive into memory of a GPU: device (the first one), device:1, or device:cpu (emulated by a thread)
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["write", "share"])]
    to: Option<DeviceChoice>,
    /// Transfer to the device: copy (whole frames), place (blocks that the device puts in place), gather (the device
    /// reads host memory), or auto (fastest in a short measurement) [default: auto]
    #[arg(long, value_name = "ROUTE")]
    route: Option<RouteOption>,
    /// Convert signed samples to f32 on the device: int8, int16 (little-endian) or int16-be
    #[arg(long, value_name = "SAMPLES")]
    convert: Option<Samples>,
}

/// A device as an option value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Emulation by a thread of this process.
    Cpu,
    /// GPU number.
    Cuda(u32),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: invalid device; expected device, device:N (GPU number) or device:cpu");
        let which = match text.strip_prefix("device") {
            // Aliases: cpu, and cuda or cuda:N as in other programs.
            None if text == "cpu" => ":cpu",
            None => text.strip_prefix("cuda").filter(|rest| *rest != ":cpu").ok_or_else(wrong)?,
            Some(which) => which,
        };
        match which {
            "" => Ok(DeviceChoice::Cuda(0)),
            ":cpu" => Ok(DeviceChoice::Cpu),
            number => number
                .strip_prefix(':')
                .and_then(|number| number.parse().ok())
                .map(DeviceChoice::Cuda)
                .ok_or_else(wrong),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Cpu => f.write_str("device:cpu"),
            DeviceChoice::Cuda(number) => write!(f, "device:{number}"),
        }
    }
}

impl DeviceChoice {
    /// Opens the device.
    pub fn device(self) -> Result<Box<dyn Device>, DeviceError> {
        match self {
            DeviceChoice::Cpu => Ok(Box::new(Cpu::open(CpuConfig::default()))),
            #[cfg(feature = "cuda")]
            DeviceChoice::Cuda(number) => Ok(Box::new(linerate_device::cuda::Cuda::open(number)?)),
            #[cfg(not(feature = "cuda"))]
            DeviceChoice::Cuda(_) => {
                Err(DeviceError::NoDriver("this program was built without the feature cuda".to_owned()))
            }
        }
    }
}

/// A route; `None` for auto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RouteOption(Option<Route>);

impl FromStr for RouteOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Route::named(text) {
            None if text != "auto" => Err(format!("{text}: invalid route; expected copy, place, gather or auto")),
            route => Ok(RouteOption(route)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Samples(Form);

impl FromStr for Samples {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = Form::named(text).filter(|form| *form != Form::Raw);
        form.map(Samples).ok_or_else(|| format!("{text}: invalid sample type; expected int8, int16 or int16-be"))
    }
}

/// Bytes of a block.
const BLOCK: usize = 2 << 20;
/// Number of blocks: two in transfer, one being filled, one spare.
const BLOCKS: usize = 4;

/// Frames on a device, before the run.
pub struct DeviceFrames {
    /// Memory that is filled.
    pub memory: Memory,
    /// Destination.
    pub destination: DeviceDestination,
    /// Transfer route.
    pub route: Route,
    /// Note for the user.
    pub note: String,
}

impl DeviceArgs {
    /// Returns whether frames are on a GPU, whose driver needs its own system calls.
    pub fn is_gpu(&self) -> bool {
        matches!(self.to, Some(DeviceChoice::Cuda(_)))
    }

    /// Returns the name of the device.
    pub fn name(&self) -> Option<String> {
        self.to.map(|which| which.to_string())
    }

    /// Allocates frames on the device, if requested, for segments of this size; `is_straight` if the port can read directly to their
    /// place.
    pub fn open(
        &self,
        frames: Config,
        go: &DestinationArgs,
        segment: u32,
        is_straight: bool,
    ) -> anyhow::Result<Option<DeviceFrames>> {
        let Some(which) = self.to else { return Ok(None) };
        let form = self.convert.map_or(Form::Raw, |samples| samples.0);
        let (route, rates) = self.choose(which, frames.size, form, (segment, is_straight))?;
        let device = which.device()?;
        let facts = device.facts().clone();
        let options = Options { frames, form, route, block: BLOCK, blocks: BLOCKS, pattern: go.pattern() };
        let (memory, destination) = open(device, options).map_err(|error| match error {
            DeviceError::Shape(_) | DeviceError::Cannot(_) => usage(error),
            other => other.into(),
        })?;
        let note = format!("frames on {} ({}), by {route}{rates}", facts.name, facts.model);
        Ok(Some(DeviceFrames { memory, destination, route, note }))
    }

    /// Returns the route, and the measured rates as text.
    fn choose(
        &self,
        which: DeviceChoice,
        frame: usize,
        form: Form,
        (segment, is_straight): (u32, bool),
    ) -> anyhow::Result<(Route, String)> {
        if let Some(RouteOption(Some(route))) = self.route {
            return Ok((route, String::new()));
        }
        let began = Instant::now();
        let clock = || began.elapsed().as_nanos() as u64;
        let mut rates = measure(which.device()?.as_mut(), frame, segment as usize, is_straight, &clock)?;
        if form != Form::Raw {
            rates.retain(|one| one.route != Route::Copy);
            return Ok((rates.first().map_or(Route::Place, |one| one.route), rates_text(&rates)));
        }
        Ok((choose(&rates), rates_text(&rates)))
    }

    /// Returns the settings by name.
    pub fn asked(&self) -> Vec<(&'static str, String)> {
        let route = self.route.and_then(|route| route.0).map_or("auto", Route::name);
        vec![
            ("to", self.name().unwrap_or_default()),
            ("route", if self.to.is_some() { route } else { "" }.to_owned()),
            ("convert", self.convert.map_or("", |samples| samples.0.name()).to_owned()),
        ]
    }
}

fn rates_text(rates: &[RouteRate]) -> String {
    let all: Vec<String> = rates.iter().map(|one| format!("{} {:.1}", one.route, one.rate as f64 / 1e9)).collect();
    format!(": {} GB/s", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed_and_printed() {
        assert_eq!("device".parse(), Ok(DeviceChoice::Cuda(0)));
        for text in ["device:0", "device:7", "device:cpu"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!(
            ["cpu", "cuda", "cuda:3"].map(str::parse),
            [Ok(DeviceChoice::Cpu), Ok(DeviceChoice::Cuda(0)), Ok(DeviceChoice::Cuda(3))]
        );
        for text in ["", "cpu:", "device:", "device:gpu", "device:-1", "devices", "cuda:", "cuda:cpu"] {
            assert!(text.parse::<DeviceChoice>().unwrap_err().contains("device:cpu"), "{text}");
        }
        assert!("int16".parse::<Samples>().is_ok() && "no".parse::<Samples>().is_err());
        assert!("auto".parse::<RouteOption>().is_ok() && "fast".parse::<RouteOption>().is_err());
    }
}
