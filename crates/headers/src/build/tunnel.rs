//! Headers that carry another packet or frame.

use super::{Header, PayloadInfo, Problem};
use crate::{EmitError, Number, Protocol, Pseudo, erspan, geneve, gre, gtp_u, teredo, vxlan};

impl Header for gre::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::Gre
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let header = match *self {
            gre::Header::Routing(routing) => {
                let protocol = behind.ether_type(routing.protocol)?;
                if behind.protocol == Some(Protocol::Erspan) && protocol == erspan::TYPE_2 && routing.sequence.is_none()
                {
                    return Err(EmitError::Field("GRE has a sequence number in front of ERSPAN type II").into());
                }
                gre::Header::Routing(gre::Routing { protocol, ..routing })
            }
            gre::Header::Pptp(_) => {
                behind.only(&[Protocol::Ppp])?;
                *self
            }
        };
        Ok(header.emit(behind.length, out)?)
    }

    fn complete(&self, message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        match self {
            gre::Header::Routing(gre::Routing { checksum: true, .. }) => Ok(gre::fill_checksum(message)?),
            _ => Ok(()),
        }
    }
}

impl Header for erspan::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Erspan
    }

    fn numbers(&self) -> &'static [Number] {
        match self {
            erspan::Header::Type2 { .. } => &[Number::EtherType(erspan::TYPE_2)],
            erspan::Header::Type3 { .. } => &[Number::EtherType(erspan::TYPE_3)],
        }
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(match self.frame_type() {
            erspan::ETHERNET => &[Protocol::Ethernet],
            erspan::IP => &[Protocol::Ipv4, Protocol::Ipv6],
            _ => &[],
        })?;
        Ok(self.emit(out)?)
    }
}

impl Header for vxlan::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Vxlan
    }

    /// The generic extension has its own port.
    fn numbers(&self) -> &'static [Number] {
        match self.flags & vxlan::FLAG_PROTOCOL {
            0 => &[Number::UdpPort(vxlan::PORT), Number::UdpPort(vxlan::OLD_PORT)],
            _ => &[Number::UdpPort(vxlan::GPE_PORT)],
        }
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let mut header = *self;
        if self.flags & vxlan::FLAG_PROTOCOL == 0 {
            behind.only(&[Protocol::Ethernet])?;
        } else if let Some(next) = behind.protocol {
            let [.., number] = &mut header.extension;
            *number = generic_protocol(next).ok_or(Problem::CannotCarry(next))?;
        }
        Ok(header.emit(out)?)
    }
}

impl Header for geneve::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::Geneve
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { protocol: behind.ether_type(self.protocol)?, ..*self }.emit(out)?)
    }
}

impl Header for gtp_u::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::GtpU
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(if self.message == gtp_u::USER_DATA { &[Protocol::Ipv4, Protocol::Ipv6] } else { &[] })?;
        Ok(self.emit(behind.length, out)?)
    }
}

impl Header for teredo::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::Teredo
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[Protocol::Ipv6])?;
        Ok(self.emit(out)?)
    }
}

/// Returns the number of a protocol in the generic extension of VXLAN (draft-ietf-nvo3-vxlan-gpe).
fn generic_protocol(next: Protocol) -> Option<u8> {
    match next {
        Protocol::Ipv4 => Some(1),
        Protocol::Ipv6 => Some(2),
        Protocol::Ethernet => Some(3),
        Protocol::Mpls => Some(5),
        _ => None,
    }
}
