//! Known differences from tshark 4.0, and their reasons.

/// Captures in which one program finds values that the other does not.
pub(super) struct Row {
    files: &'static [&'static str],
    /// Program with the additional values, and their fields.
    program: &'static str,
    fields: &'static [&'static str],
    #[allow(dead_code, reason = "documentation")]
    why: &'static str,
}

impl Row {
    /// Each capture with each field.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, &'static str, &'static str)> {
        let each = |file: &'static &str| self.fields.iter().map(|field| ((*file).to_owned(), self.program, *field));
        self.files.iter().flat_map(each)
    }
}

/// All known differences.
pub(super) const DIFFERENCES: &[Row] = &[
    Row {
        files: &["http_400.pcap", "http_invalid_method.pcap"],
        program: "linerate",
        fields: &["method", "host"],
        why: "linerate accepts unregistered methods",
    },
    Row {
        files: &["soap.pcap"],
        program: "linerate",
        fields: &["method", "host"],
        why: "tshark reports the request only with its complete body",
    },
    Row {
        files: &["emotet.pcap", "instagram.pcap", "netflix.pcap", "starcraft_battle.pcap", "weibo.pcap"],
        program: "linerate",
        fields: &["status"],
        why: "tshark reports the answer only with its complete body",
    },
    Row { files: &["custom_categories.pcapng"], program: "linerate", fields: &["ssh"], why: "SSH 1" },
    Row {
        files: &["http_on_sip_port.pcap"],
        program: "linerate",
        fields: &["host", "method", "status"],
        why: "tshark selects the protocol by port",
    },
    Row {
        files: &["ookla.pcap"],
        program: "linerate",
        fields: &["alpn", "sni"],
        why: "tshark selects the protocol by port",
    },
    Row {
        files: &["vxlan.pcap"],
        program: "linerate",
        fields: &["addresses", "query"],
        why: "tshark lists the tunnel's ports first",
    },
    Row {
        files: &["6in4tunnel.pcap", "dropbox.pcap", "wechat.pcap"],
        program: "linerate",
        fields: &["addresses"],
        why: "tshark also lists name servers of the additional section",
    },
    Row {
        files: &["6in4tunnel.pcap", "dropbox.pcap", "wechat.pcap"],
        program: "tshark",
        fields: &["addresses"],
        why: "the same",
    },
    Row {
        files: &["tls_heur__shadowsocks-tcp.pcapng", "tls_heur__vmess-websocket.pcapng"],
        program: "linerate",
        fields: &["addresses"],
        why: "tshark also lists addresses of the next message in the segment",
    },
    Row {
        files: &["tls_heur__shadowsocks-tcp.pcapng", "tls_heur__vmess-websocket.pcapng"],
        program: "tshark",
        fields: &["addresses"],
        why: "the same",
    },
    Row {
        files: &["quic-forcing-vn-with-data.pcapng"],
        program: "linerate",
        fields: &["alpn"],
        why: "tshark does not reassemble its CRYPTO frames",
    },
    Row { files: &["haproxy.pcap"], program: "tshark", fields: &["sni"], why: "after a line of the PROXY protocol" },
    Row {
        files: &["http_connect.pcap", "tls_heur__shadowsocks-tcp.pcapng", "tls_heur__vmess-websocket.pcapng"],
        program: "tshark",
        fields: &["alpn", "sni"],
        why: "TLS inside a proxy connection",
    },
    Row {
        files: &["pop3_stls.pcap", "smtp-starttls.pcap"],
        program: "tshark",
        fields: &["sni"],
        why: "STARTTLS: TLS after the beginning of the stream",
    },
    Row {
        files: &["quic-mvfst-27.pcapng", "quic-mvfst-exp.pcap", "quic_t50.pcap", "quic_interop_V.pcapng"],
        program: "tshark",
        fields: &["alpn", "sni"],
        why: "QUIC versions other than the RFCs and late drafts",
    },
];
