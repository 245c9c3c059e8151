//! Frames of flows, compared with a naive implementation of the model.

use linerate_generate::trailer::Key;
use linerate_otg::config::Text;
use linerate_otg::control::Metrics;
use linerate_otg::flow::Setup;
use linerate_otg::headers::HEADERS;
use linerate_otg::pattern::Kind;
use linerate_otg::{Config, Flow};
use proptest::prelude::*;
use serde_json::{Value, json};

fn config(packet: &Value, size: u64) -> Value {
    json!({
        "ports": [{"name": "p1"}, {"name": "p2"}],
        "flows": [{
            "name": "f1", "tx_rx": {"choice": "port", "port": {"tx_name": "p1", "rx_names": ["p2"]}},
            "packet": packet, "size": {"choice": "fixed", "fixed": size}
        }]
    })
}

fn flow(packet: &Value, size: u64) -> Flow {
    let config = Config::read(&config(packet, size), &Setup::default());
    config.unwrap_or_else(|faults| panic!("{faults:?}: {packet}")).flows.remove(0)
}

fn faults(packet: &Value) -> Vec<String> {
    Config::read(&config(packet, 128), &Setup::default()).unwrap_err().list
}

fn frame(flow: &Flow, n: u64) -> Vec<u8> {
    flow.stream.frame(n, 0, &Key::default())
}

/// Returns a packet with the headers that another header needs before it.
fn around(name: &str, header: Value) -> Value {
    let below: &[&str] = match name {
        "ethernet" => &[],
        "vlan" | "mpls" | "ipv4" | "ipv6" | "arp" => &["ethernet"],
        "icmpv6" => &["ethernet", "ipv6"],
        "vxlan" | "gtpv1" => &["ethernet", "ipv4", "udp"],
        _ => &["ethernet", "ipv4"],
    };
    let mut all: Vec<Value> = below.iter().map(|name| json!({"choice": name, *name: {}})).collect();
    all.push(json!({"choice": name, name: header}));
    Value::Array(all)
}

/// Returns a value of a field in JSON.
fn written(kind: Kind, value: u64) -> Value {
    match kind {
        Kind::Bits(_) => value.into(),
        Kind::Mac => format!("00:00:00:00:{:02x}:{:02x}", value >> 8, value & 0xff).into(),
        Kind::Ipv4 => format!("0.0.{}.{}", value >> 8, value & 0xff).into(),
        Kind::Ipv6 => format!("::{value:x}").into(),
    }
}

#[test]
fn unapplied_link_settings_warn_and_unknown_columns_fail() {
    let layer = json!({"port_names": ["p1"], "mtu": 9000, "media": "fiber", "promiscuous": false, "name": "ly"});
    let config =
        json!({"ports": [{"name": "p1"}], "layer1": [layer, {"port_names": ["p1"], "mtu": 1500, "promiscuous": true}]});
    let warnings = Config::read(&config, &Setup::default()).unwrap().warnings;
    let of = |name: &str| warnings.iter().filter(|warning| warning.starts_with(&format!("layer1[0].{name}: "))).count();
    assert_eq!((warnings.len(), of("mtu"), of("media"), of("promiscuous")), (3, 1, 1, 1), "{warnings:?}");
    for (choice, names, there) in [("port", "column_names", "frames_tx"), ("flow", "metric_names", "loss")] {
        let read = |column: &str| Metrics::read(&json!({"choice": choice, choice: {names: [there, column]}}));
        assert!(read(there).is_ok());
        let faults = read("hits").unwrap_err().list;
        assert!(faults.len() == 1 && faults[0].starts_with(&format!("{choice}.{names}[1]: ")), "{faults:?}");
    }
    let slice = json!({"port_name": "p1", "packets": {"slice": {"initial": {"start": 0, "count": 5}}}});
    let faults = linerate_otg::control::capture(&slice).unwrap_err().list;
    assert_eq!(faults, ["packets.slice: not supported"]);
}

#[test]
fn every_field_of_the_table_can_be_set_counted_and_listed() {
    for header in HEADERS {
        for field in header.fields.iter().filter(|field| !field.name.is_empty() && field.name != "tpid") {
            let wrap = |value: Value| match header.otg {
                "icmp" | "icmpv6" => around(header.otg, json!({"choice": "echo", "echo": {field.otg: value}})),
                _ => around(header.otg, json!({field.otg: value})),
            };
            let one = written(field.kind, 1);
            flow(&wrap(json!({"choice": "value", "value": one})), 128);
            if !["version", "header_length", "message_type"].contains(&field.otg) {
                let both = json!([written(field.kind, 0), one]);
                let flow = flow(&wrap(json!({"choice": "values", "values": both})), 128);
                assert_ne!(frame(&flow, 0), frame(&flow, 1), "{}.{}", header.otg, field.otg);
            }
            let wrong = wrap(json!({"choice": "value", "value": {}}));
            assert!(faults(&wrong)[0].contains(field.otg), "{}.{}", header.otg, field.otg);
        }
    }
}

#[test]
fn all_unsupported_parts_are_reported_with_their_paths() {
    let document = json!({
        "ports": [{"name": "p1", "speed": 1}], "lags": [{}], "devices": [{"name": "d1", "bgp": {}}], "stateful_flows": {"a": 1},
        "flows": [{
            "name": "f1", "tx_rx": {"choice": "lag", "lag": {}}, "egress_packet": [{}],
            "packet": [
                {"choice": "ethernet", "ethernet": {"dst": {"choice": "value", "value": "x", "metric_tags": [{}]}}},
                {"choice": "ipv4", "ipv4": {"options": [{}], "src": {"choice": "auto"}}},
                {"choice": "snmpv2c", "snmpv2c": {}}
            ],
            "rate": {"choice": "percentage", "percentage": 10}, "duration": {"choice": "continuous", "continuous": {"gap": 13}},
            "metrics": {"enable": true, "predefined_metric_tags": {"rx_name": true}}
        }]
    });
    let errors = Config::read(&document, &Setup::default()).unwrap_err().list.join("\n");
    for path in [
        "ports[0].speed",
        "lags",
        "devices[0].bgp",
        "stateful_flows",
        "flows[0].tx_rx.choice",
        "flows[0].egress_packet",
        "flows[0].packet[0].ethernet.dst.value",
        "flows[0].packet[0].ethernet.dst.metric_tags",
        "flows[0].packet[1].ipv4.options",
        "flows[0].packet[1].ipv4.src",
        "flows[0].packet[2].choice",
        "flows[0].rate.percentage",
        "flows[0].duration.continuous.gap",
        "flows[0].metrics.predefined_metric_tags",
    ] {
        assert!(errors.contains(&format!("{path}: ")), "{path} is not in\n{errors}");
    }
}

/// A text is parsed like its tree of values, flows one by one.
#[test]
fn a_text_is_parsed_like_its_values() {
    let good = config(&json!([{"choice": "ethernet", "ethernet": {}}]), 64);
    let wrong = json!({"flows": [{"name": 1}, 7], "ports": 3, "x": []});
    for document in [good, wrong, json!({"flows": {}}), json!({"flows": null}), json!([1]), json!({})] {
        let text = document.to_string();
        let read = Config::read_text(&Text::parse(&text).unwrap(), &Setup::default());
        assert_eq!(format!("{read:?}"), format!("{:?}", Config::read(&document, &Setup::default())), "{text}");
    }
    let deep = format!("{{\"flows\": [{}{}]}}", "[".repeat(100_000), "]".repeat(100_000));
    let errors = Config::read_text(&Text::parse(&deep).unwrap(), &Setup::default()).unwrap_err().list;
    assert!(errors[0].starts_with("flows[0]: recursion limit"), "{errors:?}");
    for text in ["", "{", "{\"flows\": [}", "[1", "\u{0}"] {
        assert!(Text::parse(text).is_err(), "{text}");
    }
}

#[test]
fn default_values_match_the_model() {
    let document = json!({"ports": [{"name": "p1"}], "flows": [{"name": "f1", "tx_rx": {"port": {"tx_name": "p1"}}}]});
    let config = Config::read(&document, &Setup::default()).unwrap();
    let flow = &config.flows[0];
    assert_eq!(
        (frame(flow, 0).len(), flow.stream.rate, flow.stream.count),
        (60, linerate_generate::Rate::Frames(1000.0), None)
    );
    assert_eq!((flow.is_counted, &config.ports[0].location), (false, &"p1".to_owned()));
}

fn udp(source: Value) -> Value {
    json!([{"choice": "ethernet", "ethernet": {}}, {"choice": "ipv4", "ipv4": {}}, {"choice": "udp", "udp": {"src_port": source}}])
}

proptest! {
    #[test]
    fn counters_follow_the_model(up: bool, start: u16, step: u16, count in 1u64..300, n in 0u64..2000) {
        let (name, step) = (if up { "increment" } else { "decrement" }, u64::from(step));
        let flow = flow(&udp(json!({"choice": name, name: {"start": start, "step": step, "count": count}})), 128);
        let change = step.wrapping_mul(n % count) as u16;
        let wanted = if up { start.wrapping_add(change) } else { start.wrapping_sub(change) };
        prop_assert_eq!(&frame(&flow, n)[34..36], &wanted.to_be_bytes());
    }

    #[test]
    fn random_values_have_the_given_count_and_range(a: u16, b: u16, count in 1usize..40, seed: u32) {
        let (least, most) = (a.min(b), a.max(b));
        let random = json!({"choice": "random", "random": {"min": least, "max": most, "count": count, "seed": seed}});
        let flow = flow(&udp(random), 128);
        let port = |n| { let frame = frame(&flow, n); u16::from_be_bytes([frame[34], frame[35]]) };
        for n in 0..count as u64 {
            prop_assert!((least..=most).contains(&port(n)) && port(n) == port(n + count as u64));
        }
    }

    #[test]
    fn checksums_are_valid_or_invalid_as_requested(bad_ip: bool, bad_udp: bool, varies: bool, size in 64u64..300, n in 0u64..50) {
        let generated = |bad| json!({"choice": "generated", "generated": if bad { "bad" } else { "good" }});
        let source = match varies {
            true => json!({"choice": "increment", "increment": {"start": 1, "count": 40}}),
            false => json!({"choice": "value", "value": 7}),
        };
        let packet = json!([
            {"choice": "ethernet", "ethernet": {}},
            {"choice": "ipv4", "ipv4": {"header_checksum": generated(bad_ip)}},
            {"choice": "udp", "udp": {"src_port": source, "checksum": generated(bad_udp)}}
        ]);
        let frame = frame(&flow(&packet, size), n);
        let pseudo = [&frame[26..34], &[0, 17], &frame[38..40], &frame[34..]].concat();
        prop_assert_eq!(sum(&frame[14..34]) != 0xffff, bad_ip);
        prop_assert_eq!(sum(&pseudo) != 0xffff, bad_udp);
    }

    #[test]
    fn no_document_causes_a_panic(document in document()) {
        let text = document.to_string();
        let (read, text) = (Config::read(&document, &Setup::default()), Text::parse(&text).unwrap());
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", Config::read_text(&text, &Setup::default())));
        let _ = linerate_otg::control::State::read(&document);
        let _ = Metrics::read(&document);
        let _ = linerate_otg::control::update(&document, &document);
        let _ = linerate_otg::control::append(&document, &document);
        let _ = linerate_otg::control::delete(&document, &document);
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    words.fold(0, |sum, word| ((sum + word) & 0xffff) + ((sum + word) >> 16))
}

/// Generates documents of words of the API.
fn document() -> impl Strategy<Value = Value> {
    let words = [
        "ports",
        "name",
        "location",
        "flows",
        "tx_rx",
        "port",
        "tx_name",
        "rx_names",
        "packet",
        "choice",
        "ethernet",
        "ipv4",
        "ipv6",
        "tcp",
        "udp",
        "vxlan",
        "gre",
        "gtpv1",
        "mpls",
        "vlan",
        "arp",
        "icmp",
        "echo",
        "custom",
        "bytes",
        "src",
        "dst",
        "value",
        "values",
        "increment",
        "decrement",
        "random",
        "start",
        "step",
        "count",
        "min",
        "max",
        "seed",
        "size",
        "fixed",
        "weight_pairs",
        "rate",
        "pps",
        "percentage",
        "duration",
        "fixed_packets",
        "packets",
        "burst",
        "metrics",
        "enable",
        "latency",
        "captures",
        "layer1",
        "speed",
        "property_names",
        "state",
        "traffic",
        "flow_transmit",
        "checksum",
        "p1",
        "f1",
    ];
    let word = prop::sample::select(words.to_vec());
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[0-9a-f:.]{0,12}".prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(9, 200, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(word.clone(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())),
        ]
    })
}
