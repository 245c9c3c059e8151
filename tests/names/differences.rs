//! Where we differ from tshark 4.0, and why.

/// A capture, or several, in which one of both says more than the other.
pub(super) struct Row {
    files: &'static [&'static str],
    /// Who says more of it, and of what.
    who: &'static str,
    fields: &'static [&'static str],
    #[allow(dead_code, reason = "for who reads it")]
    why: &'static str,
}

impl Row {
    /// Each of its captures.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, &'static str, &'static str)> {
        let each = |file: &'static &str| self.fields.iter().map(|field| ((*file).to_owned(), self.who, *field));
        self.files.iter().flat_map(each)
    }
}

/// All there are.
pub(super) const DIFFERENCES: &[Row] = &[
    Row {
        files: &["http_400.pcap", "http_invalid_method.pcap"],
        who: "linerate",
        fields: &["method", "host"],
        why: "methods that nobody has registered are methods",
    },
    Row {
        files: &["soap.pcap"],
        who: "linerate",
        fields: &["method", "host"],
        why: "tshark tells of the request once all its body is there",
    },
    Row {
        files: &["emotet.pcap", "instagram.pcap", "netflix.pcap", "starcraft_battle.pcap", "weibo.pcap"],
        who: "linerate",
        fields: &["status"],
        why: "tshark tells of the answer once all its body is there",
    },
    Row { files: &["custom_categories.pcapng"], who: "linerate", fields: &["ssh"], why: "SSH 1" },
    Row {
        files: &["http_on_sip_port.pcap"],
        who: "linerate",
        fields: &["host", "method", "status"],
        why: "tshark goes by the port",
    },
    Row { files: &["ookla.pcap"], who: "linerate", fields: &["alpn", "sni"], why: "tshark goes by the port" },
    Row {
        files: &["vxlan.pcap"],
        who: "linerate",
        fields: &["addresses", "query"],
        why: "tshark names the ports of the tunnel first",
    },
    Row {
        files: &["6in4tunnel.pcap", "dropbox.pcap", "wechat.pcap"],
        who: "linerate",
        fields: &["addresses"],
        why: "tshark lists those of name servers, in the additional section, as well",
    },
    Row {
        files: &["6in4tunnel.pcap", "dropbox.pcap", "wechat.pcap"],
        who: "tshark",
        fields: &["addresses"],
        why: "the same",
    },
    Row {
        files: &["tls_heur__shadowsocks-tcp.pcapng", "tls_heur__vmess-websocket.pcapng"],
        who: "linerate",
        fields: &["addresses"],
        why: "tshark lists those of the next message of the segment as well",
    },
    Row {
        files: &["tls_heur__shadowsocks-tcp.pcapng", "tls_heur__vmess-websocket.pcapng"],
        who: "tshark",
        fields: &["addresses"],
        why: "the same",
    },
    Row {
        files: &["quic-forcing-vn-with-data.pcapng"],
        who: "linerate",
        fields: &["alpn"],
        why: "tshark does not put its CRYPTO frames together",
    },
    Row { files: &["haproxy.pcap"], who: "tshark", fields: &["sni"], why: "behind a line of the PROXY protocol" },
    Row {
        files: &["http_connect.pcap", "tls_heur__shadowsocks-tcp.pcapng", "tls_heur__vmess-websocket.pcapng"],
        who: "tshark",
        fields: &["alpn", "sni"],
        why: "TLS inside of a proxy's connection",
    },
    Row {
        files: &["pop3_stls.pcap", "smtp-starttls.pcap"],
        who: "tshark",
        fields: &["sni"],
        why: "STARTTLS: TLS behind the beginning of the stream",
    },
    Row {
        files: &["quic-mvfst-27.pcapng", "quic-mvfst-exp.pcap", "quic_t50.pcap", "quic_interop_V.pcapng"],
        who: "tshark",
        fields: &["alpn", "sni"],
        why: "versions of QUIC that are none of the RFCs and late drafts",
    },
];
