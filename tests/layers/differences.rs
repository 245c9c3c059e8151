//! Where tshark and we differ, and why. Each row must be met by some frame of the corpus.

/// One kind of difference.
pub(super) struct Row {
    /// How the paths of the captures in the corpus begin.
    pub captures: &'static str,
    /// What we say at the first place where we differ: a layer, or why there is none.
    pub ours: &'static str,
    /// What tshark says there.
    pub theirs: &'static str,
    /// Why, and who is right.
    pub why: &'static str,
}

/// All of them, by capture.
pub(super) const ROWS: &[Row] = &[
    Row {
        captures: "",
        ours: "decoded to the payload",
        theirs: "esp",
        why: "ESP behind port 4500, which it shares with the key exchange (RFC 3948): the port alone tells too \
              little, so it is payload to us.",
    },
    Row {
        captures: "tcpdump/wb-oobr.pcap",
        ours: "decoded to the payload",
        theirs: "ip",
        why: "Bytes behind MPLS labels that begin with 4 are IP only if checksum and length fit, since an Ethernet address \
              may begin so (RFC 8469 section 1). Here neither does.",
    },
    Row {
        captures: "tcpdump/mpls-over-udp.pcap",
        ours: "decoded to the payload",
        theirs: "mpls",
        why: "MPLS behind port 6635 (RFC 7510): a label has nothing by which other data to that port could be \
              told, so it is payload to us.",
    },
    Row {
        captures: "ndpi/alexa-app.pcapng",
        ours: "llc access point 0x00 unknown, stopped here",
        theirs: "basicxid",
        why: "What an XID command of LLC says is payload to us and an item of its own to tshark; neither is a \
              header of the frame.",
    },
    Row {
        captures: "ndpi/gtp_false_positive.pcapng",
        ours: "decoded to the payload",
        theirs: "gtp",
        why: "Other data between ports of GTP-U, as the file's name says: it is no whole GTP-U header, so we \
              take it as payload, where tshark shows a malformed one.",
    },
    Row {
        captures: "tcpdump/DTP.pcap",
        ours: "ethernet",
        theirs: "isl",
        why: "Cisco's ISL has a header in front of the Ethernet header and is known by a destination address \
              alone; we do not know it, tshark does.",
    },
    Row {
        captures: "tcpdump/LINKTYPE_IPV6_invalid.pcap",
        ours: "ipv4",
        theirs: "ipv6",
        why: "The link type says IPv6 and the packet is IPv4: we go by the version field, tshark by the link \
              type, which is wrong here.",
    },
    Row {
        captures: "tcpdump/arp-oobr.pcap",
        ours: "arp",
        theirs: "end",
        why: "Hardware type 19 is ATM, whose ARP has other lengths (RFC 2225); tshark finds it malformed. The \
              hardware length is Ethernet's, so the packet reads well as plain ARP (RFC 826), which is what \
              the sender meant.",
    },
    Row {
        captures: "tcpdump/",
        ours: "malformed, ipv4: the version field is wrong",
        theirs: "ipv6",
        why: "EtherType IPv4 with version 6: tshark goes on with IPv6. RFC 791 knows version 4 alone; we \
              refuse it as a receiver would.",
    },
    Row {
        captures: "tcpdump/",
        ours: "ip version 3 unknown, stopped here",
        theirs: "ipv6",
        why: "The link type says IPv6 and the version field 3: tshark does not look at the version, we stop.",
    },
    Row {
        captures: "tcpdump/bigtcp-ipv4-geneve-",
        ours: "geneve",
        theirs: "end",
        why: "A UDP length of 0 behind an IPv4 length of 0, as segmentation offload leaves them: to us the \
              payload is all there is, tshark does not go on.",
    },
    Row { captures: "tcpdump/bigtcp-ipv4-vxlan-", ours: "vxlan", theirs: "end", why: "The same with VXLAN inside." },
    Row {
        captures: "tcpdump/esp_truncated.pcap",
        ours: "decoded to the payload",
        theirs: "vxlan",
        why: "Port 8472 with 4 bytes behind the UDP header: not a whole VXLAN header, so we take it as \
              payload; tshark shows a short one.",
    },
    Row {
        captures: "tcpdump/getname_2_read4_asan.pcap",
        ours: "ethertype 0x8035 unknown, stopped here",
        theirs: "arp",
        why: "Reverse ARP (RFC 903) has the form of ARP; to us its EtherType is unknown.",
    },
    Row {
        captures: "tcpdump/",
        ours: "ip protocol 62 unknown, stopped here",
        theirs: "mipv6",
        why: "Drafts of Mobile IPv6 used protocol number 62; it is 135 (RFC 6275), and 62 is another protocol's.",
    },
    Row {
        captures: "tcpdump/ipv6_missing_jumbo_payload_option.pcap",
        ours: "hop_by_hop",
        theirs: "_ws.malformed",
        why: "A payload length of 0 in front of hop-by-hop options without a jumbo payload option: tshark \
              refuses it (RFC 2675 section 3), we take all there is.",
    },
    Row {
        captures: "tcpdump/",
        ours: "ppp",
        theirs: "end",
        why: "EtherType 0x880b in Ethernet: IANA's number of PPP; tshark knows it in GRE alone.",
    },
    Row {
        captures: "tcpdump/ppp_",
        ours: "ppp of 1 bytes",
        theirs: "ppp of 4 bytes",
        why: "Damaged: 0xff and another control byte than 0x03. To tshark the two are address and control all \
              the same, to us (RFC 1661) 0xff is a protocol compressed to a byte.",
    },
    Row {
        captures: "tcpdump/wccp_redirect_gre.pcap",
        ours: "gre of 4 bytes",
        theirs: "gre of 8 bytes",
        why: "The redirect header of WCCP is part of GRE to tshark, and an EtherType that we do not know to us.",
    },
];
