//! Known differences from tshark and their reasons. Each row must match a frame of the corpus.

/// A kind of difference.
pub(super) struct Row {
    /// Prefix of the capture paths in the corpus.
    pub captures: &'static str,
    /// linerate's description of the first difference: a layer, or the reason for the end.
    pub ours: &'static str,
    /// tshark's description.
    pub theirs: &'static str,
    /// Reason for the difference, and the correct side.
    pub why: &'static str,
}

/// All known differences, by capture.
pub(super) const ROWS: &[Row] = &[
    Row {
        captures: "",
        ours: "decoded to the payload",
        theirs: "esp",
        why: "ESP over UDP port 4500, which it shares with the key exchange (RFC 3948): the port is not sufficient, \
              so linerate treats it as payload.",
    },
    Row {
        captures: "tcpdump/wb-oobr.pcap",
        ours: "decoded to the payload",
        theirs: "ip",
        why: "Bytes after MPLS labels that begin with 4 are IP only if checksum and length fit, since an Ethernet \
              address may begin with 4 (RFC 8469 section 1). Here neither fits.",
    },
    Row {
        captures: "tcpdump/mpls-over-udp.pcap",
        ours: "decoded to the payload",
        theirs: "mpls",
        why: "MPLS over UDP port 6635 (RFC 7510): a label cannot be distinguished from other data to that port, \
              so linerate treats it as payload.",
    },
    Row {
        captures: "ndpi/alexa-app.pcapng",
        ours: "llc access point 0x00 unknown, stopped here",
        theirs: "basicxid",
        why: "The data of an LLC XID command is payload in linerate and a separate item in tshark; neither is a \
              header of the frame.",
    },
    Row {
        captures: "ndpi/gtp_false_positive.pcapng",
        ours: "decoded to the payload",
        theirs: "gtp",
        why: "Other data between GTP-U ports, as the file name indicates: it is not a complete GTP-U header, so \
              linerate treats it as payload, and tshark shows a malformed header.",
    },
    Row {
        captures: "tcpdump/DTP.pcap",
        ours: "ethernet",
        theirs: "isl",
        why: "Cisco ISL has a header before the Ethernet header and is identified only by a destination address; \
              linerate does not dissect it.",
    },
    Row {
        captures: "tcpdump/LINKTYPE_IPV6_invalid.pcap",
        ours: "ipv4",
        theirs: "ipv6",
        why: "The link type is IPv6 and the packet is IPv4: linerate uses the version field, tshark the link \
              type, which is wrong here.",
    },
    Row {
        captures: "tcpdump/arp-oobr.pcap",
        ours: "arp",
        theirs: "end",
        why: "Hardware type 19 is ATM, whose ARP has other lengths (RFC 2225); tshark finds it malformed. The \
              hardware length is that of Ethernet, so the packet is valid as plain ARP (RFC 826), which the \
              sender intended.",
    },
    Row {
        captures: "tcpdump/",
        ours: "malformed, ipv4: the version field is wrong",
        theirs: "ipv6",
        why: "EtherType IPv4 with version 6: tshark continues with IPv6. RFC 791 defines only version 4; linerate \
              rejects it as a receiver would.",
    },
    Row {
        captures: "tcpdump/",
        ours: "ip version 3 unknown, stopped here",
        theirs: "ipv6",
        why: "The link type is IPv6 and the version field is 3: tshark ignores the version, linerate stops.",
    },
    Row {
        captures: "tcpdump/bigtcp-ipv4-geneve-",
        ours: "geneve",
        theirs: "end",
        why: "A UDP length of 0 after an IPv4 length of 0, left by segmentation offload: linerate takes all \
              remaining bytes as payload, tshark stops.",
    },
    Row { captures: "tcpdump/bigtcp-ipv4-vxlan-", ours: "vxlan", theirs: "end", why: "The same with VXLAN inside." },
    Row {
        captures: "tcpdump/esp_truncated.pcap",
        ours: "decoded to the payload",
        theirs: "vxlan",
        why: "Port 8472 with 4 bytes after the UDP header, not a complete VXLAN header: linerate treats it as \
              payload, tshark shows a short header.",
    },
    Row {
        captures: "tcpdump/getname_2_read4_asan.pcap",
        ours: "ethertype 0x8035 unknown, stopped here",
        theirs: "arp",
        why: "Reverse ARP (RFC 903) has the format of ARP; its EtherType is unknown to linerate.",
    },
    Row {
        captures: "tcpdump/",
        ours: "ip protocol 62 unknown, stopped here",
        theirs: "mipv6",
        why: "Drafts of Mobile IPv6 used protocol number 62, now another protocol; RFC 6275 assigns 135.",
    },
    Row {
        captures: "tcpdump/ipv6_missing_jumbo_payload_option.pcap",
        ours: "hop_by_hop",
        theirs: "_ws.malformed",
        why: "A payload length of 0 before hop-by-hop options without a jumbo payload option: tshark rejects it \
              (RFC 2675 section 3), linerate takes all remaining bytes.",
    },
    Row {
        captures: "tcpdump/",
        ours: "ppp",
        theirs: "end",
        why: "EtherType 0x880b, assigned to PPP by IANA, in Ethernet; tshark knows it only in GRE.",
    },
    Row {
        captures: "tcpdump/ppp_",
        ours: "ppp of 1 bytes",
        theirs: "ppp of 4 bytes",
        why: "Damaged: 0xff with a control byte other than 0x03. tshark still reads address and control; \
              linerate (RFC 1661) reads 0xff as a compressed protocol field.",
    },
    Row {
        captures: "tcpdump/wccp_redirect_gre.pcap",
        ours: "gre of 4 bytes",
        theirs: "gre of 8 bytes",
        why: "tshark counts the WCCP redirect header as part of GRE; to linerate its EtherType is unknown.",
    },
];
