//! VLANs of a port, and the tags of frames there (IEEE 802.1Q).

use std::fmt;

/// VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlans {
    /// VLAN of untagged frames.
    native: Option<u16>,
    /// Tagged VLANs, a bit each; VLAN 0 is that of untagged frames without a native VLAN.
    trunk: Option<Box<[u64; 64]>>,
}

impl Default for PortVlans {
    /// All VLANs, tagged; untagged frames are in VLAN 0.
    fn default() -> Self {
        PortVlans { native: None, trunk: Some(Box::new([u64::MAX; 64])) }
    }
}

impl PortVlans {
    /// Returns a port in no VLAN: `normal`, `flood` and `all` skip it, only `output` sends frames there.
    pub fn none() -> Self {
        PortVlans { native: None, trunk: Some(Box::new([0; 64])) }
    }

    /// Returns whether it is in no VLAN.
    pub fn is_none(&self) -> bool {
        *self == PortVlans::none()
    }

    /// Parses `access=10`, `trunk=10,20-30`, or `trunk=10,20-30,native=5`; the last has its native VLAN untagged.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut native, mut access, mut trunk) = (None, None, None::<Box<[u64; 64]>>);
        let mut list: Option<&mut Box<[u64; 64]>> = None;
        for part in text.split(',') {
            let (key, value) = part.split_once('=').map_or((None, part), |(key, value)| (Some(key), value));
            match key {
                Some("access") => access = Some(one(value)?),
                Some("native") => native = Some(one(value)?),
                Some("trunk") => {
                    let set = trunk.insert(Box::new([0; 64]));
                    add(set, value)?;
                    list = Some(set);
                    continue;
                }
                Some(key) => {
                    return Err(format!("{key}: unknown option; expected access=VLAN, trunk=VLANS or native=VLAN"));
                }
                None => {
                    let Some(set) = list.as_deref_mut() else {
                        return Err(format!(
                            "{part:?}: unknown option; expected access=VLAN, trunk=VLANS or native=VLAN"
                        ));
                    };
                    add(set, value)?;
                    continue;
                }
            }
            list = None;
        }
        match (access, native, trunk) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
                Err("access cannot be combined with trunk or native".to_owned())
            }
            (Some(access), None, None) => Ok(PortVlans { native: Some(access), trunk: None }),
            (None, native, trunk) => Ok(PortVlans { native, trunk: trunk.or(PortVlans::default().trunk) }),
        }
    }

    /// Returns the VLAN of a received frame with this tag's VLAN (0: untagged, or only a priority); `None` if it is not
    /// of this port.
    #[inline]
    pub(crate) fn of_frame(&self, vlan: u16) -> Option<u16> {
        match (self.native, vlan) {
            (Some(native), 0) => Some(native),
            // A trunk accepts its native VLAN with a tag too.
            (Some(native), vlan) if native == vlan && self.trunk.is_some() => Some(vlan),
            _ => self.has_tagged(vlan).then_some(vlan),
        }
    }

    /// Returns whether the port is a member of a VLAN.
    #[inline]
    pub(crate) fn has(&self, vlan: u16) -> bool {
        self.native == Some(vlan) || self.has_tagged(vlan)
    }

    /// Returns the tag's VLAN of a sent frame; 0 for no tag.
    #[inline]
    pub(crate) fn tag_of(&self, vlan: u16) -> u16 {
        if self.native == Some(vlan) { 0 } else { vlan }
    }

    fn has_tagged(&self, vlan: u16) -> bool {
        let (word, bit) = (usize::from(vlan >> 6) & 63, vlan & 63);
        // A native VLAN replaces VLAN 0.
        self.trunk.as_ref().is_some_and(|trunk| trunk[word] >> bit & 1 == 1) && (vlan > 0 || self.native.is_none())
    }
}

impl fmt::Display for PortVlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(trunk) = &self.trunk else { return write!(f, "access={}", self.native.unwrap_or_default()) };
        if self.is_none() {
            return f.write_str("no VLAN");
        }
        let all = trunk.iter().all(|word| *word == u64::MAX);
        match self.native {
            None if all => f.write_str("all VLANs"),
            Some(native) if all => write!(f, "native={native}"),
            native => {
                let has = |vlan: &u16| trunk[usize::from(vlan >> 6)] >> (vlan & 63) & 1 == 1;
                f.write_str("trunk=")?;
                let (mut vlan, mut comma) = (0, "");
                while let Some(first) = (vlan..4096).find(has) {
                    let end = (first..4096).find(|vlan| !has(vlan)).unwrap_or(4096);
                    let last = end - 1;
                    if first == last {
                        write!(f, "{comma}{first}")?
                    } else {
                        write!(f, "{comma}{first}-{last}")?
                    }
                    (vlan, comma) = (end, ",");
                }
                native.map_or(Ok(()), |native| write!(f, ",native={native}"))
            }
        }
    }
}

fn one(text: &str) -> Result<u16, String> {
    let vlan = text.parse().ok().filter(|vlan| (1..4095).contains(vlan));
    vlan.ok_or_else(|| format!("invalid VLAN {text:?}; expected 1 to 4094"))
}

/// Adds `10` or `20-30`.
fn add(set: &mut [u64; 64], text: &str) -> Result<(), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| if text == "0" { Ok(0) } else { one(text) };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("{text}: invalid range; expected the lower VLAN first"));
    }
    (first..=last).for_each(|vlan| set[usize::from(vlan >> 6)] |= 1 << (vlan & 63));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parsed_and_formatted() {
        for text in ["access=10", "trunk=10", "trunk=0,10,20-30,native=5", "native=7", "trunk=4000-4094"] {
            assert_eq!(PortVlans::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(PortVlans::parse("native=5,trunk=10").unwrap().to_string(), "trunk=10,native=5");
        assert_eq!(PortVlans::default().to_string(), "all VLANs");
        assert_eq!(PortVlans::none().to_string(), "no VLAN");
        for wrong in [
            "",
            "10",
            "access=0",
            "access=4095",
            "trunk=30-20",
            "access=1,trunk=2",
            "access=1,native=2",
            "tag=3",
            "trunk=x",
        ] {
            assert!(PortVlans::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn frames_are_assigned_to_vlans_by_tags() {
        let access = PortVlans::parse("access=10").unwrap();
        assert_eq!([access.of_frame(0), access.of_frame(10), access.of_frame(11)], [Some(10), None, None]);
        assert_eq!((access.has(10), access.has(11), access.tag_of(10)), (true, false, 0));
        let trunk = PortVlans::parse("trunk=10-11,native=5").unwrap();
        assert_eq!([trunk.of_frame(0), trunk.of_frame(10), trunk.of_frame(12)], [Some(5), Some(10), None]);
        assert_eq!(trunk.of_frame(5), Some(5));
        assert_eq!([trunk.tag_of(5), trunk.tag_of(11)], [0, 11]);
        assert_eq!(PortVlans::default().of_frame(0), Some(0));
        assert_eq!(
            PortVlans::parse("trunk=10").unwrap().of_frame(0),
            None,
            "a trunk of VLAN 10 has no untagged frames"
        );
    }
}
