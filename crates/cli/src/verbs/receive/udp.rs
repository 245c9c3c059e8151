//! Options of datagrams.

use super::options::{FrameArgs, ListenAddress};
use crate::exit::usage;
use crate::verbs::inputs::span;
use clap::builder::PossibleValuesParser;
use linerate_device::frames::Memory;
use linerate_port::spec::parse_size;
use linerate_transport::datagrams::{Config, Datagrams, Field, Form, Unit, WhenFull};
use linerate_transport::tcp::Local;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Options of UDP datagrams.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "UDP")]
pub(super) struct UdpArgs {
    /// Position of the sequence number: at=OFFSET,width=BYTES (big-endian byte offset; options: order=le,
    /// counts=packets,size=BYTES, data=OFFSET, shift=N, bits=N, batch=OFFSET:WIDTH:BYTES); or spead,heap=BYTES[,step=N]; or
    /// vita49,size=BYTES [default: at=0,width=8, as send --udp]
    #[arg(long, value_name = "WHERE")]
    sequence: Option<Sequence>,
    /// Number of frames per stream that are filled at the same time [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    open_frames: Option<u16>,
    /// Timeout in seconds without data, after which a frame is finished and an idle stream ends [default: 1]
    #[arg(long, value_name = "S")]
    frame_timeout: Option<f64>,
    /// Data to drop while no frame is free: newest (arriving data) or oldest (a finished frame) [default: newest]
    #[arg(long, value_name = "WHICH", value_parser = PossibleValuesParser::new(["newest", "oldest"]))]
    drop: Option<String>,
}

/// Position of the sequence number in datagrams, and its text as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    form: Form,
    text: String,
}

/// Format of `send --udp`: the byte offset first.
const USUAL: Form = Form::Fixed { sequence: Field::big(0, 8), unit: Unit::Bytes, batch: None, data: 8 };
const USUAL_TEXT: &str = "at=0,width=8";
/// Default number of frames per stream that are filled at the same time.
const OPEN_FRAMES: u16 = 2;
/// Maximum gap in bytes that a sender may skip.
const REACH: u64 = 1 << 32;
/// Default time that a frame waits for missing data.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of open streams.
const STREAMS: usize = 4096;

impl FromStr for Sequence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = read(text).map_err(|what| format!("{text}: {what}"))?;
        Ok(Sequence { form, text: text.to_owned() })
    }
}

/// Keys and values, each key once.
struct Settings<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Settings<'a> {
    fn of(text: &'a str) -> Result<Self, String> {
        let mut all = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("{part}: no value; expected {part}=VALUE"))?;
            if all.iter().any(|(known, _)| *known == key) {
                return Err(format!("duplicate key {key}"));
            }
            all.push((key, value));
        }
        Ok(Settings(all))
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.swap_remove(at).1)
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, String> {
        self.take(key).map(|text| number(key, text)).transpose()
    }

    fn end(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |(key, _)| Err(format!("unknown key {key}")))
    }
}

fn number(key: &str, text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{key}={text}: invalid number; expected a value such as 8 or 64KiB"))
}

fn read(text: &str) -> Result<Form, String> {
    let (name, rest) = text.split_once(',').unwrap_or((text, ""));
    let form = match name {
        "spead" => {
            let mut settings = Settings::of(rest)?;
            let heap =
                settings.number("heap")?.filter(|heap| *heap > 0).ok_or("needs heap=BYTES, the size of a heap")?;
            let step = settings.number("step")?.unwrap_or(1).max(1);
            settings.end()?;
            Form::Spead { heap, step }
        }
        "vita49" => {
            let mut settings = Settings::of(rest)?;
            let data =
                settings.number("size")?.filter(|size| *size > 0).ok_or("needs size=BYTES, the data of a packet")?;
            settings.end()?;
            Form::Vita49 { data: data as usize }
        }
        _ => fixed(Settings::of(text)?)?,
    };
    Ok(form)
}

/// Parses a sequence number at a fixed offset.
fn fixed(mut settings: Settings<'_>) -> Result<Form, String> {
    let little_endian = match settings.take("order") {
        None | Some("be") => false,
        Some("le") => true,
        Some(other) => return Err(format!("order={other}: expected be or le")),
    };
    let field = |offset: u64, width: u64| match (1..=8).contains(&width) && offset <= 65_527 {
        true => Ok(Field { little_endian, ..Field::big(offset as usize, width as usize) }),
        false => Err(format!("{width} bytes at {offset}: expected 1 to 8 bytes within a datagram")),
    };
    let (at, width) = (settings.number("at")?.unwrap_or(0), settings.number("width")?.unwrap_or(8));
    let mut sequence = field(at, width)?;
    sequence.shift = settings.number("shift")?.unwrap_or(0).min(63) as u32;
    let most = u64::from(sequence.bits.saturating_sub(sequence.shift));
    sequence.bits = settings.number("bits")?.unwrap_or(most).min(most) as u32;
    if sequence.bits == 0 {
        return Err("shift and bits leave no bits of the number".to_owned());
    }
    let size = settings.number("size")?;
    let unit = match (settings.take("counts"), size) {
        (None | Some("bytes"), None) => Unit::Bytes,
        (Some("packets"), Some(size @ 1..=65_527)) => Unit::Packets(size as usize),
        (Some("packets"), _) => return Err("counts=packets needs size=BYTES, the data of each packet".to_owned()),
        (None | Some("bytes"), Some(_)) => return Err("size= needs counts=packets".to_owned()),
        (Some(other), _) => return Err(format!("counts={other}: expected bytes or packets")),
    };
    let batch = match settings.take("batch") {
        None => None,
        Some(text) => {
            let wrong = || format!("batch={text}: expected OFFSET:WIDTH:BYTES, such as 0:4:8MiB");
            let parts: Vec<u64> = text.split(':').filter_map(parse_size).collect();
            let [offset, width, bytes] = parts[..] else { return Err(wrong()) };
            if bytes == 0 {
                return Err(wrong());
            }
            Some((field(offset, width)?, bytes))
        }
    };
    let data = settings.number("data")?.unwrap_or(at + width) as usize;
    settings.end()?;
    Ok(Form::Fixed { sequence, unit, batch, data })
}

impl UdpArgs {
    /// Returns the settings by name.
    pub(super) fn asked(&self) -> Vec<(&'static str, String)> {
        vec![
            ("sequence", self.sequence.as_ref().map_or(USUAL_TEXT, |sequence| &sequence.text).to_owned()),
            ("open_frames", self.open_frames.unwrap_or(OPEN_FRAMES).to_string()),
            ("frame_timeout", self.frame_timeout.unwrap_or(TIMEOUT.as_secs_f64()).to_string()),
            ("drop", self.drop.clone().unwrap_or_else(|| "newest".to_owned())),
        ]
    }

    /// Returns whether newer frames replace finished ones.
    pub(super) fn drops_oldest(&self) -> bool {
        self.drop.as_deref() == Some("oldest")
    }

    fn form(&self) -> Form {
        self.sequence.as_ref().map_or(USUAL, |sequence| sequence.form)
    }

    /// Creates the receiver of datagrams, with a text about its copy rates.
    pub(super) fn datagrams(
        &self,
        frames: &FrameArgs,
        datagram: u32,
        memory: Option<Memory>,
    ) -> anyhow::Result<(Datagrams, String)> {
        let timeout = self.frame_timeout.map(|s| span("--frame-timeout", s)).transpose()?;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(usage("--frame-timeout 0: too short; expected more than 0 s"));
        }
        let config = Config {
            frames: frames.config()?,
            form: self.form(),
            window: self.open_frames.unwrap_or(OPEN_FRAMES).into(),
            reach: REACH,
            timeout: timeout.unwrap_or(TIMEOUT),
            full: if self.drops_oldest() { WhenFull::DropOldest } else { WhenFull::DropNewest },
            streams: STREAMS,
        };
        let made = match memory {
            Some(Memory::Here(pieces)) => Datagrams::over(config, pieces),
            Some(Memory::RemoteMemory(beyond)) => Datagrams::beyond(config, beyond),
            None => Datagrams::new(config),
        };
        let mut datagrams = made.map_err(usage)?;
        let began = Instant::now();
        let measured = datagrams.calibrate(datagram as usize, &|| began.elapsed().as_nanos() as u64);
        Ok((datagrams, super::options::copy_rates_text(&measured)))
    }
}

/// Returns the local addresses and ports.
pub(super) fn locals(listen: &[ListenAddress]) -> Vec<Local> {
    listen.iter().map(|listen| Local { ip: listen.ip, ports: listen.ports.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_parsed() {
        let big = Field::big;
        for (text, form) in [
            (USUAL_TEXT, USUAL),
            (
                "at=4,width=4,order=le,counts=packets,size=8KiB,data=16",
                Form::Fixed { sequence: Field::little(4, 4), unit: Unit::Packets(8192), batch: None, data: 16 },
            ),
            (
                "at=4,width=2,shift=4,batch=0:4:1MiB",
                Form::Fixed {
                    sequence: Field { shift: 4, bits: 12, ..big(4, 2) },
                    unit: Unit::Bytes,
                    batch: Some((big(0, 4), 1 << 20)),
                    data: 6,
                },
            ),
            ("spead,heap=1MiB", Form::Spead { heap: 1 << 20, step: 1 }),
            ("vita49,size=1024", Form::Vita49 { data: 1024 }),
        ] {
            assert_eq!(text.parse::<Sequence>().unwrap().form, form, "{text}");
        }
    }

    #[test]
    fn invalid_sequences_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("at=0,width=9", "1 to 8"),
            ("at=0,at=1", "duplicate key at"),
            ("width", "no value"),
            ("counts=packets", "needs size=BYTES"),
            ("size=8", "needs counts=packets"),
            ("counts=words", "bytes or packets"),
            ("order=middle", "be or le"),
            ("batch=1:2", "OFFSET:WIDTH:BYTES"),
            ("width=2,shift=16", "no bits"),
            ("spead", "needs heap=BYTES"),
            ("vita49,size=0", "needs size=BYTES"),
            ("at=0,colour=3", "unknown key"),
        ] {
            let error = text.parse::<Sequence>().unwrap_err();
            assert!(error.starts_with(text) && error.contains(reason), "{text}: {error}");
        }
    }
}
