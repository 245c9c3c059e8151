//! What is asked for of datagrams.

use super::options::{FrameArgs, Listen};
use crate::exit::usage;
use crate::verbs::inputs::span;
use clap::builder::PossibleValuesParser;
use linerate_device::frames::Memory;
use linerate_port::spec::parse_size;
use linerate_receive::datagrams::{Config, Datagrams, Field, Form, Unit, WhenFull};
use linerate_receive::tcp::Local;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Options of how datagrams are received.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "UDP")]
pub(super) struct UdpArgs {
    /// Where datagrams say where they belong: at=0,width=8 (big-endian, counting bytes; order=le, counts=packets,size=BYTES, data=OFFSET,
    /// shift=N, bits=N, batch=OFFSET:WIDTH:BYTES); or spead,heap=BYTES[,step=N]; or vita49,size=BYTES [default: at=0,width=8, as send --udp]
    #[arg(long, value_name = "WHERE")]
    sequence: Option<Sequence>,
    /// How many frames of a stream are filled at a time [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    open_frames: Option<u16>,
    /// Finish a frame to which nothing came for so many seconds; a stream to which nothing came is over [default: 1]
    #[arg(long, value_name = "S")]
    frame_timeout: Option<f64>,
    /// What is dropped while no frame is free: newest (what comes), or oldest (a finished frame that waits) [default: newest]
    #[arg(long, value_name = "WHICH", value_parser = PossibleValuesParser::new(["newest", "oldest"]))]
    drop: Option<String>,
}

/// Where datagrams say where they belong, and how users have written that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    form: Form,
    text: String,
}

/// As `send --udp` does: the byte offset in front.
const USUAL: Form = Form::Fixed { sequence: Field::big(0, 8), unit: Unit::Bytes, batch: None, data: 8 };
const USUAL_TEXT: &str = "at=0,width=8";
/// How many frames of a stream are filled at a time.
const OPEN_FRAMES: u16 = 2;
/// A sender may leave out so much at a time, and go on.
const REACH: u64 = 1 << 32;
/// For how long a frame waits for what is missing.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The most streams at a time.
const STREAMS: usize = 4096;

impl FromStr for Sequence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = read(text).map_err(|what| format!("{text}: {what}"))?;
        Ok(Sequence { form, text: text.to_owned() })
    }
}

/// What is said by key and value; each once.
struct Said<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Said<'a> {
    fn of(text: &'a str) -> Result<Self, String> {
        let mut all = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part} has no value: write {part}=..."))?;
            if all.iter().any(|(known, _)| *known == key) {
                return Err(format!("{key} is said twice"));
            }
            all.push((key, value));
        }
        Ok(Said(all))
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.swap_remove(at).1)
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, String> {
        self.take(key).map(|text| number(key, text)).transpose()
    }

    fn end(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |(key, _)| Err(format!("{key} means nothing here")))
    }
}

fn number(key: &str, text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{key}={text} is no number (as in 8, 64KiB)"))
}

fn read(text: &str) -> Result<Form, String> {
    let (name, rest) = text.split_once(',').unwrap_or((text, ""));
    let form = match name {
        "spead" => {
            let mut said = Said::of(rest)?;
            let heap = said.number("heap")?.filter(|heap| *heap > 0).ok_or("say heap=BYTES, the bytes of a heap")?;
            let step = said.number("step")?.unwrap_or(1).max(1);
            said.end()?;
            Form::Spead { heap, step }
        }
        "vita49" => {
            let mut said = Said::of(rest)?;
            let data = said.number("size")?.filter(|size| *size > 0).ok_or("say size=BYTES, the data of a packet")?;
            said.end()?;
            Form::Vita49 { data: data as usize }
        }
        _ => fixed(Said::of(text)?)?,
    };
    Ok(form)
}

/// A number in a fixed place.
fn fixed(mut said: Said<'_>) -> Result<Form, String> {
    let little_endian = match said.take("order") {
        None | Some("be") => false,
        Some("le") => true,
        Some(other) => return Err(format!("order={other}: it is be or le")),
    };
    let field = |offset: u64, width: u64| match (1..=8).contains(&width) && offset <= 65_527 {
        true => Ok(Field { little_endian, ..Field::big(offset as usize, width as usize) }),
        false => Err(format!("{width} bytes at {offset}: a number has 1 to 8, within a datagram")),
    };
    let (at, width) = (said.number("at")?.unwrap_or(0), said.number("width")?.unwrap_or(8));
    let mut sequence = field(at, width)?;
    sequence.shift = said.number("shift")?.unwrap_or(0).min(63) as u32;
    let most = u64::from(sequence.bits.saturating_sub(sequence.shift));
    sequence.bits = said.number("bits")?.unwrap_or(most).min(most) as u32;
    if sequence.bits == 0 {
        return Err("no bits of the number are left".to_owned());
    }
    let size = said.number("size")?;
    let unit = match (said.take("counts"), size) {
        (None | Some("bytes"), None) => Unit::Bytes,
        (Some("packets"), Some(size @ 1..=65_527)) => Unit::Packets(size as usize),
        (Some("packets"), _) => return Err("say size=BYTES, the data of each packet".to_owned()),
        (None | Some("bytes"), Some(_)) => return Err("size= goes with counts=packets".to_owned()),
        (Some(other), _) => return Err(format!("counts={other}: it is bytes or packets")),
    };
    let batch = match said.take("batch") {
        None => None,
        Some(text) => {
            let wrong = || format!("batch={text}: write OFFSET:WIDTH:BYTES, as in 0:4:8MiB");
            let parts: Vec<u64> = text.split(':').filter_map(parse_size).collect();
            let [offset, width, bytes] = parts[..] else { return Err(wrong()) };
            if bytes == 0 {
                return Err(wrong());
            }
            Some((field(offset, width)?, bytes))
        }
    };
    let data = said.number("data")?.unwrap_or(at + width) as usize;
    said.end()?;
    Ok(Form::Fixed { sequence, unit, batch, data })
}

impl UdpArgs {
    /// What is asked for, by name.
    pub(super) fn asked(&self) -> Vec<(&'static str, String)> {
        vec![
            ("sequence", self.sequence.as_ref().map_or(USUAL_TEXT, |sequence| &sequence.text).to_owned()),
            ("open_frames", self.open_frames.unwrap_or(OPEN_FRAMES).to_string()),
            ("frame_timeout", self.frame_timeout.unwrap_or(TIMEOUT.as_secs_f64()).to_string()),
            ("drop", self.drop.clone().unwrap_or_else(|| "newest".to_owned())),
        ]
    }

    /// Whether finished frames give way to newer ones.
    pub(super) fn drops_oldest(&self) -> bool {
        self.drop.as_deref() == Some("oldest")
    }

    fn form(&self) -> Form {
        self.sequence.as_ref().map_or(USUAL, |sequence| sequence.form)
    }

    /// What receives datagrams, and how bytes come to frames, for people.
    pub(super) fn datagrams(
        &self,
        frames: &FrameArgs,
        datagram: u32,
        memory: Option<Memory>,
    ) -> anyhow::Result<(Datagrams, String)> {
        let timeout = self.frame_timeout.map(|s| span("--frame-timeout", s)).transpose()?;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(usage("--frame-timeout 0: no datagram comes so soon behind another"));
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
            Some(Memory::Beyond(beyond)) => Datagrams::beyond(config, beyond),
            None => Datagrams::new(config),
        };
        let mut datagrams = made.map_err(usage)?;
        let began = Instant::now();
        let measured = datagrams.calibrate(datagram as usize, &|| began.elapsed().as_nanos() as u64);
        Ok((datagrams, super::options::told(&measured)))
    }
}

/// Where datagrams are to go to.
pub(super) fn locals(listen: &[Listen]) -> Vec<Local> {
    listen.iter().map(|listen| Local { ip: listen.ip, ports: listen.ports.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_sequences_is_read() {
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
    fn what_cannot_be_meant_is_refused_with_the_reason() {
        for (text, reason) in [
            ("at=0,width=9", "1 to 8"),
            ("at=0,at=1", "said twice"),
            ("width", "has no value"),
            ("counts=packets", "say size=BYTES"),
            ("size=8", "goes with counts=packets"),
            ("counts=words", "bytes or packets"),
            ("order=middle", "be or le"),
            ("batch=1:2", "OFFSET:WIDTH:BYTES"),
            ("width=2,shift=16", "no bits"),
            ("spead", "say heap=BYTES"),
            ("vita49,size=0", "say size=BYTES"),
            ("at=0,colour=3", "means nothing"),
        ] {
            let said = text.parse::<Sequence>().unwrap_err();
            assert!(said.starts_with(text) && said.contains(reason), "{text}: {said}");
        }
    }
}
