//! Names of the numbers in DNS messages.

use std::borrow::Cow;

/// Returns the name of a type, such as `AAAA`, or `TYPE65280` (RFC 3597, 5).
pub fn type_name(kind: u16) -> Cow<'static, str> {
    let known = TYPES.iter().find(|(number, _)| *number == kind);
    known.map_or_else(|| Cow::Owned(format!("TYPE{kind}")), |(_, name)| Cow::Borrowed(*name))
}

/// Returns the name of a response code, such as `NXDOMAIN`, or `RCODE12`.
pub fn rcode_name(rcode: u8) -> Cow<'static, str> {
    let known = RCODES.get(usize::from(rcode));
    known.map_or_else(|| Cow::Owned(format!("RCODE{rcode}")), |name| Cow::Borrowed(*name))
}

/// IANA, "DNS RCODEs".
const RCODES: [&str; 12] = [
    "NOERROR",
    "FORMERR",
    "SERVFAIL",
    "NXDOMAIN",
    "NOTIMP",
    "REFUSED",
    "YXDOMAIN",
    "YXRRSET",
    "NXRRSET",
    "NOTAUTH",
    "NOTZONE",
    "DSOTYPENI",
];

/// IANA, "Resource Record (RR) TYPEs": those in use.
const TYPES: [(u16, &str); 40] = [
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (10, "NULL"),
    (12, "PTR"),
    (13, "HINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (24, "SIG"),
    (25, "KEY"),
    (28, "AAAA"),
    (29, "LOC"),
    (33, "SRV"),
    (35, "NAPTR"),
    (37, "CERT"),
    (39, "DNAME"),
    (41, "OPT"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (53, "SMIMEA"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (61, "OPENPGPKEY"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (99, "SPF"),
    (249, "TKEY"),
    (252, "AXFR"),
    (255, "ANY"),
    (257, "CAA"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_in_order_and_named() {
        assert!(TYPES.is_sorted() && type_name(28) == "AAAA" && type_name(65280) == "TYPE65280");
        assert_eq!((rcode_name(3), rcode_name(15)), ("NXDOMAIN".into(), "RCODE15".into()));
    }
}
