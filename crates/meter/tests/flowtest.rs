//! Expectations of the validation tests of CESNET's FlowTest of a flow probe, field by field (`LINERATE_CORPUS`, folder
//! `flowtest`).
//!
//! An annotation covers two directions: forward is from its `src_ip`, and `@rev` the other. Its flow is found by the
//! fields of its key. Some of the application fields are not exported by us: [`OF_APPLICATIONS`].

use crate::support::captures::load;
use crate::support::{Sent, metered, metered_frames};
use linerate_meter::{Config, Flow, Level, MPLS_LABELS, Protocols};
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Fields that are not compared: contents of application records, headers, certificates and sessions.
const OF_APPLICATIONS: [&str; 22] = [
    "dns_flags",
    "dns_id",
    "dns_req_query_class",
    "dns_resp_rr.class",
    "dns_resp_rr.data",
    "dns_resp_rr.flowmon_data",
    "dns_resp_rr.name",
    "dns_resp_rr.ttl",
    "dns_resp_rr.type",
    "http_content_type",
    "http_method_id",
    "http_referer",
    "ovpn_conf_level",
    "tls_issuer_cn",
    "tls_ja3",
    "tls_public_key_alg",
    "tls_subject_cn",
    "tls_validity_not_after",
    "tls_validity_not_before",
    "wg_conf_level",
    "wg_dst_peer",
    "wg_src_peer",
];

/// Annotations that divide a conversation by application data are compared by the sums of their packets and bytes.
/// `wireguard` has a flow for each handshake (frames 1, 90 and 163, where the receiver index changes); `tshark -z
/// conv,udp` has one conversation of 204 and 238 packets, with gaps of at most 8.02 s.
const PARTED_BY_APPLICATION: [&str; 1] = ["wireguard"];

/// Known differences: the file, the field, and our value. The status of an upgrade is 101, and the one after it is of
/// HTTP/2; a version in an alert record is not a server's choice; 0xeaea is GREASE; hellos of SSL 2 are not read.
const OTHERWISE: [(&str, &str, &str); 7] = [
    ("http2_switch", "http_status_code", "101"),
    ("tls_cipher_error", "tls_server_version", ""),
    ("tls_invalid_cert", "tls_client_version", "772"),
    ("tls_ssl20", "tls_cipher_suite", ""),
    ("tls_ssl20", "tls_client_version", ""),
    ("tls_ssl20", "tls_server_version", ""),
    ("tls_version_error", "tls_server_version", ""),
];

/// A field of an annotation with all accepted values; numbers are decimal.
struct Expected {
    name: String,
    values: Vec<String>,
}

struct Annotation {
    file: String,
    capture: PathBuf,
    key: Vec<String>,
    flows: Vec<Vec<Expected>>,
}

fn annotations() -> Vec<Annotation> {
    let Some(root) = std::env::var_os("LINERATE_CORPUS") else {
        eprintln!("SKIPPED: LINERATE_CORPUS is not set, no annotation was compared");
        return Vec::new();
    };
    let folder = Path::new(&root).join("flowtest");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder.join("expect")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yml"));
    files.sort();
    files.iter().map(|path| annotation(path, &folder)).collect()
}

fn annotation(path: &Path, folder: &Path) -> Annotation {
    let text = std::fs::read_to_string(path).unwrap();
    let documents = Yaml::load_from_str(&text).unwrap();
    let document = &documents[0];
    let key = match document.as_mapping_get("key") {
        Some(names) => values(names),
        None => ["src_ip", "dst_ip", "protocol", "src_port", "dst_port"].map(str::to_owned).to_vec(),
    };
    let file = path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut flows: Vec<Vec<Expected>> = document["flows"].as_vec().unwrap().iter().map(fields).collect();
    if PARTED_BY_APPLICATION.contains(&file.as_str()) {
        flows = vec![summed(flows)];
    }
    Annotation { file, capture: folder.join("pcap").join(document["pcap"].as_str().unwrap()), key, flows }
}

/// Merges flows of one key.
fn summed(flows: Vec<Vec<Expected>>) -> Vec<Expected> {
    let mut flows = flows.into_iter();
    let mut sum = flows.next().unwrap();
    for field in flows.flatten().filter(|field| field.name.starts_with("bytes") || field.name.starts_with("packets")) {
        let same = sum.iter_mut().find(|other| other.name == field.name).unwrap();
        let [one, other] = [&same.values, &field.values].map(|values| values[0].parse::<u64>().unwrap());
        same.values = vec![(one + other).to_string()];
    }
    sum
}

/// Returns the fields of a flow; those of a list of records once, with a dot in the name.
fn fields(flow: &Yaml<'_>) -> Vec<Expected> {
    let mut fields = Vec::new();
    for (name, value) in flow.as_mapping().unwrap() {
        let name = name.as_str().unwrap();
        match value {
            Yaml::Mapping(_) => fields.extend(self::fields(value)),
            Yaml::Sequence(records) if records.iter().any(|record| record.as_mapping().is_some()) => {
                let parts: BTreeSet<String> =
                    records.iter().flat_map(self::fields).map(|field| format!("{name}.{}", field.name)).collect();
                fields.extend(parts.into_iter().map(|name| Expected { name, values: Vec::new() }));
            }
            _ => fields.push(Expected { name: name.to_owned(), values: values(value) }),
        }
    }
    fields
}

fn values(value: &Yaml<'_>) -> Vec<String> {
    match value {
        Yaml::Sequence(list) => list.iter().flat_map(values).collect(),
        Yaml::Value(Scalar::Integer(number)) => vec![number.to_string()],
        Yaml::Value(Scalar::String(text)) => {
            vec![text.parse().map_or_else(|_| text.to_string(), |address: IpAddr| address.to_string())]
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the value of a field, one side of the record being forward; `None` for a field that is not exported.
fn value_of(flow: &Flow, all: &[Flow], forward: usize, field: &str) -> Option<String> {
    let (field, side) = match field.strip_suffix("@rev") {
        Some(field) => (field, 1 - forward),
        None => (field, forward),
    };
    let (from, to, counted) = (flow.ends[side], flow.ends[1 - side], &flow.sides[side]);
    let [kind, code] = [icmp_type(flow, side), flow.ends[1].port];
    let macs = flow.macs.map_or_else(Default::default, |macs| macs.map(|mac| mac.to_string()));
    let stats = flow.stats.as_ref().map(|stats| stats.sides[side]);
    Some(match field {
        "src_ip" => from.address.to_string(),
        "dst_ip" => to.address.to_string(),
        "src_port" => from.port.to_string(),
        "dst_port" => to.port.to_string(),
        "ip_version" => if from.address.is_ipv4() { 4 } else { 6 }.to_string(),
        "protocol" => flow.protocol.to_string(),
        "packets" => counted.packets.to_string(),
        "bytes" => counted.packet_bytes.to_string(),
        "bytes_outer" => outer_bytes(flow, all, side).to_string(),
        "tos" => counted.tos.to_string(),
        "ttl" => counted.ttl[0].to_string(),
        "tcp_flags" => counted.tcp_flags.to_string(),
        "tcp_options" => stats.map_or(0, |stats| reversed_octets(stats.tcp_options)).to_string(),
        "tcp_syn_size" => stats.map_or(0, |stats| stats.syn_bytes).to_string(),
        "icmp_type" => kind.to_string(),
        "icmp_code" => code.to_string(),
        "icmp_type_code" => (kind << 8 | code).to_string(),
        "src_mac" => macs[side].clone(),
        "dst_mac" => macs[1 - side].clone(),
        "vlan_id" => flow.vlans[0].to_string(),
        "vlan_id_inner" => flow.vlans[1].to_string(),
        "vxlan_id" => flow.tunnel.map_or(0, |tunnel| tunnel.id).to_string(),
        "mpls_label_1" => stack_entry(flow.mpls[side], 0).to_string(),
        "mpls_label_2" => stack_entry(flow.mpls[side], 1).to_string(),
        name => return said(flow, name),
    })
}

/// Returns the value of a name field; empty where no name was found.
fn said(flow: &Flow, field: &str) -> Option<String> {
    let names = flow.names.as_deref().cloned().unwrap_or_default();
    let (dns, http, tls) =
        (names.dns.unwrap_or_default(), names.http.unwrap_or_default(), names.tls.unwrap_or_default());
    let (request, client, server) = (http.request.unwrap_or_default(), tls.client, tls.server);
    let text = |text: Option<Box<str>>| text.map_or_else(String::new, String::from);
    let number = |number: Option<u16>| number.map_or_else(String::new, |number| number.to_string());
    Some(match field {
        "dns_req_query_name" => text(dns.name),
        "dns_req_query_type" => dns.kind.to_string(),
        "dns_resp_rcode" => number(dns.rcode.map(u16::from)),
        "http_agent" => text(request.user_agent),
        "http_host" => text(request.host),
        "http_method" => request.method.into(),
        "http_status_code" => number(http.status),
        "http_url" => request.target.into(),
        "tls_alpn" => text(server.and_then(|hello| hello.alpn).or(client.and_then(|hello| hello.alpn))),
        "tls_cipher_suite" => number(server.map(|hello| hello.cipher)),
        "tls_client_version" => number(client.map(|hello| hello.version)),
        "tls_server_version" => number(server.map(|hello| hello.version)),
        "tls_sni" => text(client.and_then(|hello| hello.server_name)),
        _ => return None,
    })
}

/// Returns the type of a side's messages: a record has that of requests.
fn icmp_type(flow: &Flow, side: usize) -> u16 {
    match (side, flow.ends[0].port) {
        (0, kind) => kind,
        (_, 8) => 0,
        (_, 135) => 136,
        (_, kind) => kind,
    }
}

/// Formats a label as in annotations, which follow IPFIX (70): label, traffic class (0 in these captures), bottom of
/// the stack.
fn stack_entry(labels: [u32; MPLS_LABELS], index: usize) -> u32 {
    labels[index] << 4 | u32::from(labels.get(index + 1).is_none_or(|label| *label == 0))
}

/// Annotations have the bits of each octet in the order of RFC 5102, from the uppermost one.
fn reversed_octets(options: u64) -> u64 {
    u64::from_le_bytes(options.to_le_bytes().map(u8::reverse_bits))
}

/// Returns the bytes of the outer packets, whose flow is the parent; for a tunnel with a flow per direction (VXLAN)
/// also those of the other.
fn outer_bytes(flow: &Flow, all: &[Flow], side: usize) -> u64 {
    let Some(parent) = all.iter().find(|outer| flow.tunnel.is_some_and(|tunnel| tunnel.parent == outer.id)) else {
        return 0;
    };
    let outer = all.iter().filter(|outer| outer.tunnel.is_none() && outer.protocol == parent.protocol);
    let sides = outer.flat_map(|outer| [0, 1].map(|side| (outer.ends[side].address, outer.sides[side].packet_bytes)));
    sides.filter(|(from, _)| *from == parent.ends[side].address).map(|(_, bytes)| bytes).sum()
}

/// Returns the fields that a side of a record does not match, with its values.
fn mismatches(flow: &Flow, all: &[Flow], forward: usize, fields: &[Expected]) -> Vec<(String, String)> {
    let mut mismatches = Vec::new();
    for field in fields {
        if let Some(value) = value_of(flow, all, forward, &field.name).filter(|value| !field.values.contains(value)) {
            mismatches.push((field.name.clone(), value));
        }
    }
    mismatches
}

/// Returns the differences between the annotated flows of a file and the records of its capture.
fn compare(annotation: &Annotation) -> BTreeSet<(usize, String, String)> {
    let (frames, link) = load(&annotation.capture).unwrap();
    let config =
        Config { max_flows: 1 << 10, macs: true, level: Level::Stats, names: Protocols::ALL, ..Config::default() };
    let (records, _) = metered_frames(&frames, link.unwrap(), &config, &[32]);
    let (mut used, mut differences) = (BTreeSet::new(), BTreeSet::new());
    for (number, fields) in annotation.flows.iter().enumerate() {
        let unmet_of = |(record, forward): (usize, usize)| mismatches(&records[record], &records, forward, fields);
        let is_candidate = |candidate: &(usize, usize)| {
            !used.contains(candidate) && unmet_of(*candidate).iter().all(|(field, _)| !annotation.key.contains(field))
        };
        let sides = (0..records.len()).flat_map(|record| [(record, 0), (record, 1)]);
        match sides.filter(is_candidate).min_by_key(|candidate| unmet_of(*candidate).len()) {
            Some(nearest) => {
                differences.extend(unmet_of(nearest).into_iter().map(|(field, value)| (number, field, value)));
                used.insert(nearest);
            }
            None => {
                differences.insert((number, "key".to_owned(), "no record".to_owned()));
            }
        }
    }
    differences
}

#[test]
fn records_match_flowtest_annotations() {
    let any = metered(&[Sent::udp(1)], &Config::default(), &[1]);
    let is_foreign = |field: &&Expected| value_of(&any[0], &any, 0, &field.name).is_none();
    let (mut foreign, mut partly, mut otherwise) = (BTreeSet::new(), 0, 0);
    let annotations = annotations();
    for annotation in &annotations {
        let is_known = |field: &str, value: &str| OTHERWISE.contains(&(&*annotation.file, field, value));
        let (known, differences): (Vec<_>, Vec<_>) =
            compare(annotation).into_iter().partition(|(_, field, value)| is_known(field, value));
        otherwise += known.len();
        assert!(differences.is_empty(), "{}: flow, field, our value: {differences:?}", annotation.file);
        let fields = annotation.flows.iter().flatten();
        let others: BTreeSet<String> = fields.filter(is_foreign).map(|field| field.name.clone()).collect();
        println!("{}: met, {} fields of applications", annotation.file, others.len());
        partly += usize::from(!others.is_empty());
        foreign.extend(others);
    }
    println!("{} met, {partly} of them but for fields of applications", annotations.len());
    if !annotations.is_empty() {
        assert_eq!((annotations.len(), partly, otherwise), (56, 35, OTHERWISE.len()));
        assert_eq!(foreign, OF_APPLICATIONS.into_iter().map(str::to_owned).collect());
    }
}
