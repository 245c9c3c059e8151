//! Which VLANs a port is in, and how frames of them look there (IEEE 802.1Q).

use std::fmt;

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlans {
    /// The VLAN of frames without a tag.
    native: Option<u16>,
    /// VLANs with tags, a bit each; VLAN 0 is that of frames without a tag where there is no native one.
    trunk: Option<Box<[u64; 64]>>,
}

impl Default for PortVlans {
    /// All of them, with tags; frames without a tag are in VLAN 0.
    fn default() -> Self {
        PortVlans { native: None, trunk: Some(Box::new([u64::MAX; 64])) }
    }
}

impl PortVlans {
    /// In no VLAN: `normal`, `flood` and `all` leave the port out, frames leave by it alone that are sent there by name.
    pub fn none() -> Self {
        PortVlans { native: None, trunk: Some(Box::new([0; 64])) }
    }

    /// Whether it is in none.
    pub fn is_none(&self) -> bool {
        *self == PortVlans::none()
    }

    /// Reads `access=10`, `trunk=10,20-30`, or `trunk=10,20-30,native=5`; the last has its native VLAN without a tag.
    ///
    /// # Errors
    /// What is wrong.
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
                Some(key) => return Err(format!("{key}: a port has access=VLAN, trunk=VLANS, native=VLAN")),
                None => {
                    let Some(set) = list.as_deref_mut() else {
                        return Err(format!("{part:?}: a port has access=VLAN, trunk=VLANS, native=VLAN"));
                    };
                    add(set, value)?;
                    continue;
                }
            }
            list = None;
        }
        match (access, native, trunk) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
                Err("a port is an access port or a trunk, not both: access=VLAN stands alone".to_owned())
            }
            (Some(access), None, None) => Ok(PortVlans { native: Some(access), trunk: None }),
            (None, native, trunk) => Ok(PortVlans { native, trunk: trunk.or(PortVlans::default().trunk) }),
        }
    }

    /// The VLAN of a frame that comes with this tag's VLAN (0: no tag, or one of priority alone); none if it is not of this port.
    #[inline]
    pub(crate) fn of_frame(&self, vlan: u16) -> Option<u16> {
        match (self.native, vlan) {
            (Some(native), 0) => Some(native),
            // A trunk takes its native VLAN with a tag too.
            (Some(native), vlan) if native == vlan && self.trunk.is_some() => Some(vlan),
            _ => self.has_tagged(vlan).then_some(vlan),
        }
    }

    /// Whether frames of a VLAN leave there.
    #[inline]
    pub(crate) fn has(&self, vlan: u16) -> bool {
        self.native == Some(vlan) || self.has_tagged(vlan)
    }

    /// Which VLAN the tag names with which a frame leaves; 0: none.
    #[inline]
    pub(crate) fn tag_of(&self, vlan: u16) -> u16 {
        if self.native == Some(vlan) { 0 } else { vlan }
    }

    fn has_tagged(&self, vlan: u16) -> bool {
        let (word, bit) = (usize::from(vlan >> 6) & 63, vlan & 63);
        // A native VLAN takes the place of frames without a tag.
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
    vlan.ok_or_else(|| format!("{text:?} is no VLAN: there are 1 to 4094"))
}

/// Adds `10` or `20-30`.
fn add(set: &mut [u64; 64], text: &str) -> Result<(), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| if text == "0" { Ok(0) } else { one(text) };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("{text}: the first VLAN is the lower one"));
    }
    (first..=last).for_each(|vlan| set[usize::from(vlan >> 6)] |= 1 << (vlan & 63));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_ports_come_back() {
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
    fn frames_get_in_and_out_by_their_tags() {
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
            "a trunk of VLAN 10 has no frames without a tag"
        );
    }
}
