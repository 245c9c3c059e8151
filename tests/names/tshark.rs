//! Captures and the names that tshark finds in them.

use super::{NamedValue, sorted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Captures with names, by folder of the corpus.
pub(super) const CAPTURES: &[(&str, &[&str])] = &[
    (
        "flowtest/pcap",
        &[
            "http2_switch.pcap",
            "http_400.pcap",
            "http_401.pcap",
            "http_404.pcap",
            "http_500.pcap",
            "http_crlf_in_header.pcap",
            "http_delete.pcap",
            "http_get.pcap",
            "http_invalid_method.pcap",
            "http_post.pcap",
            "http_put.pcap",
            "ipv6-routing-header.pcap",
            "tls12_alpn.pcap",
            "tls13_0rtt.pcap",
            "vxlan.pcap",
        ],
    ),
    (
        "ndpi",
        &[
            "443-git.pcap",
            "6in4tunnel.pcap",
            "WebattackSQLinj.pcap",
            "alexa-app.pcapng",
            "anyconnect-vpn.pcap",
            "bt-http.pcapng",
            "chrome.pcap",
            "cloudflare-warp.pcap",
            "custom_categories.pcapng",
            "discord.pcap",
            "dns-google-nsid.pcapng",
            "dns_doh.pcap",
            "dnscrypt-v2-doh.pcap",
            "dotenv.pcap",
            "dropbox.pcap",
            "emotet.pcap",
            "false_positives.pcapng",
            "firefox.pcap",
            "haproxy.pcap",
            "hls.pcapng",
            "http-lines-split.pcap",
            "http.pcapng",
            "http_auth.pcap",
            "http_connect.pcap",
            "http_on_sip_port.pcap",
            "http_starting_with_reply.pcapng",
            "http_ua_splitted_in_two_pkts.pcapng",
            "imaps.pcap",
            "instagram.pcap",
            "iphone.pcap",
            "jsonrpc.pcap",
            "log4j-webapp-exploit.pcap",
            "malware.pcap",
            "mpeg.pcap",
            "netease_games.pcapng",
            "netflix.pcap",
            "nintendo.pcap",
            "ookla.pcap",
            "ossfuzz_seed_fake_traces_3.pcapng",
            "pluralsight.pcap",
            "pop3_stls.pcap",
            "punycode-idn.pcap",
            "quic-23.pcap",
            "quic-27.pcap",
            "quic-forcing-vn-with-data.pcapng",
            "quic-mvfst-27.pcapng",
            "quic-mvfst-exp.pcap",
            "quic-v2.pcapng",
            "quic_0RTT.pcap",
            "quic_frags_different_dcid.pcapng",
            "quic_interop_V.pcapng",
            "quic_t50.pcap",
            "reddit.pcap",
            "roblox.pcapng",
            "safari.pcap",
            "selfsigned.pcap",
            "signal.pcap",
            "smtp-starttls.pcap",
            "snapchat.pcap",
            "soap.pcap",
            "sql_injection.pcap",
            "ssl-cert-name-mismatch.pcap",
            "starcraft_battle.pcap",
            "telegram.pcap",
            "tls_2_reasms_b.pcapng",
            "tls_certificate_too_long.pcap",
            "tls_ech.pcapng",
            "tls_esni_sni_both.pcap",
            "tls_heur__shadowsocks-tcp.pcapng",
            "tls_heur__vmess-websocket.pcapng",
            "trickbot.pcap",
            "tunnelbear.pcap",
            "ultrasurf.pcap",
            "vk.pcapng",
            "vxlan.pcap",
            "waze.pcap",
            "webdav.pcap",
            "wechat.pcap",
            "weibo.pcap",
            "whatsapp_login_call.pcap",
            "whatsappfiles.pcap",
            "xiaomi.pcap",
            "xss.pcap",
            "youtubeupload.pcap",
            "zattoo.pcap",
        ],
    ),
];

/// Fields printed per frame, all occurrences separated by commas.
const FIELDS: [&str; 18] = [
    "tcp.stream",
    "udp.stream",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "tls.handshake.extensions_server_name",
    "tls.handshake.extensions_alpn_str",
    "dns.qry.name",
    "http.host",
    "http.request.method",
    "http.response.code",
    "ssh.protocol",
    "dns.id",
    "dns.qry.type",
    "dns.a",
    "dns.aaaa",
    "frame.number",
];

/// First value of each field per conversation; for SSH the first of each side.
pub(super) fn names(capture: &Path) -> BTreeSet<NamedValue> {
    let filter = "tls.handshake.type || dns || http || ssh.protocol";
    let mut words = vec!["-n", "-r", capture.to_str().unwrap(), "-Y", filter, "-T", "fields", "-E", "occurrence=a"];
    words.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
    let (mut all, mut seen, mut first_ids) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    // tshark fails at the end of a truncated capture, so the status is not checked.
    let output = Command::new("tshark").args(words).output().unwrap();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let first = |place: usize| cells[place].split(',').next().unwrap_or_default();
        let (stream, ports) = if first(2).is_empty() { (1, [4, 5]) } else { (0, [2, 3]) };
        let ports: Option<Vec<u64>> = ports.iter().map(|place| first(*place).parse().ok()).collect();
        let Some([one, other]) = ports.as_deref() else { continue };
        let is_dns = ports.iter().flatten().any(|port| *port == 53);
        // Only the answer to the first question counts.
        let is_first =
            *first_ids.entry((stream, first(stream).to_owned())).or_insert_with(|| first(13).to_owned()) == first(13);
        let is_for_addresses = is_dns && is_first && ["1", "28"].contains(&first(14));
        let addresses = if is_for_addresses { sorted(&[cells[15], cells[16]].join(",")) } else { String::new() };
        for (name, value) in [
            ("sni", first(6)),
            ("alpn", cells[7]),
            ("query", if is_dns { first(8) } else { "" }),
            ("addresses", &addresses),
            ("host", first(9)),
            ("method", first(10)),
            ("status", first(11)),
            ("ssh", first(12)),
        ] {
            let is_new = name == "ssh" || !value.is_empty() && seen.insert((stream, first(stream).to_owned(), name));
            if !value.is_empty() && is_new {
                // RFC 1035 writes the root as a dot.
                let value = if value == "<Root>" { "." } else { value };
                all.insert((*one.min(other), *one.max(other), name, value.to_owned()));
            }
        }
    }
    all
}
