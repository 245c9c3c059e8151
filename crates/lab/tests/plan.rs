//! Plans: parsing, rejection, and equality after writing and reading.

use std::net::IpAddr;

use linerate_lab::{Cidr, Host, Link, LinkEnd, Plan, PlanError};
use proptest::prelude::*;

const PAIR: &str = r#"name = "demo"

[[hosts]]
name = "spare"

[[links]]
ends = [
    { host = "left", interface = "eth0", addresses = ["10.0.0.1/24", "fd00::1/64"] },
    { host = "right", interface = "eth0" },
]
queues = 4
mtu = 22000
offloads = false
"#;

#[test]
fn plan_is_parsed() {
    let plan = Plan::from_toml(PAIR).unwrap();
    let hosts: Vec<&str> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["spare", "left", "right"], "hosts that links name are added");
    let text = "left:eth0=10.0.0.1/24+fd00::1/64,right:eth0,queues=4,mtu=22000,offloads=off";
    assert_eq!(plan.links[0].to_string(), text);
    assert_eq!(text.parse::<Link>().unwrap(), plan.links[0]);
    assert_eq!(plan.namespace("left"), "demo-left");
}

#[test]
fn minimal_link_has_the_defaults() {
    let link = Plan::parse_link("left:eth0,right:eth1").unwrap();
    assert_eq!(link, Link::new(LinkEnd::new("left", "eth0"), LinkEnd::new("right", "eth1")));
    assert_eq!((link.queues, link.mtu, link.offloads), (1, 1500, true));
    let plan = Plan::from_links("demo", vec![link]).unwrap();
    assert_eq!(plan.hosts, [Host { name: "left".into() }, Host { name: "right".into() }]);
}

/// Returns the error for `PAIR` with one text replaced by another.
fn refusal(from: &str, to: &str) -> String {
    assert!(PAIR.contains(from));
    Plan::from_toml(&PAIR.replacen(from, to, 1)).expect_err(to).to_string()
}

#[test]
fn errors_name_line_field_and_valid_values() {
    let cases = [
        ("queues = 4", "queues = 0", vec!["line 11", "queues", "1 to 64"]),
        ("queues = 4", "queues = 65", vec!["line 11", "queues", "1 to 64"]),
        ("mtu = 22000", "mtu = 67", vec!["line 12", "mtu", "68 to 65535"]),
        ("mtu = 22000", "mtu = 65536", vec!["line 12", "mtu", "68 to 65535"]),
        ("mtu = 22000", "mtu = 1279", vec!["links[0].mtu", "IPv6", "1280"]),
        ("mtu = 22000", "mut = 22000", vec!["line 12", "mut", "`mtu`", "`queues`"]),
        ("offloads = false", "offloads = 1", vec!["line 13", "offloads", "boolean"]),
        ("\"demo\"", "\"Demo\"", vec!["line 1", "name", "a-z, 0-9"]),
        ("\"spare\"", "\"a/b\"", vec!["line 4", "name", "a-z, 0-9"]),
        ("\"spare\"", "\"spare\"\nqueues = 1", vec!["line 5", "queues", "`name`"]),
        ("host = \"left\"", "host = \"..\"", vec!["line 8", "a-z, 0-9"]),
        ("interface = \"eth0\"", "interface = \"lo\"", vec!["line 8", "\"lo\""]),
        ("10.0.0.1/24", "10.0.0.1/33", vec!["line 8", "1 to 32"]),
        ("fd00::1/64", "10.0.0.1/8", vec!["links[0].ends[0].addresses[1]", "10.0.0.1", "duplicate address"]),
        ("host = \"right\"", "host = \"left\"", vec!["links[0].ends", "same interface"]),
        ("name = \"demo\"", "name = \"demo", vec!["line 1"]),
    ];
    for (from, to, words) in cases {
        let message = refusal(from, to);
        for word in words {
            assert!(message.contains(word), "{to}: {word:?} is not in: {message}");
        }
    }
}

#[test]
fn contradictions_are_rejected() {
    let plan = |links: &[&str]| Plan::from_links("x", links.iter().map(|link| link.parse().unwrap()).collect());
    assert!(plan(&["a:e0,b:e0", "a:e1,c:e0"]).is_ok());
    assert!(plan(&["a:e0,a:e1"]).is_ok(), "a host may be linked with itself");
    let twice = plan(&["a:e0,b:e0", "c:e0,b:e0"]).unwrap_err().to_string();
    assert!(twice.contains("links[1].ends[1].interface") && twice.contains("b:e0"), "{twice}");
    assert!(plan(&["a:e0=10.0.0.1/8,b:e0", "a:e1=10.0.0.1/24,b:e1"]).is_err(), "one host, one address, two links");
    assert!(plan(&["a:e0=10.0.0.1/8,b:e0=10.0.0.1/8"]).is_ok(), "two hosts may have the same address");
    assert!(plan(&[]).is_err(), "a lab has a host");

    let mut doubled = plan(&["a:e0,b:e0"]).unwrap();
    doubled.hosts.push(Host { name: "a".into() });
    assert!(doubled.validate().unwrap_err().to_string().contains("hosts[2].name"));
    doubled.hosts.truncate(1);
    let missing = doubled.validate().unwrap_err().to_string();
    assert!(missing.contains("links[0].ends[1].host") && missing.contains("expected one of a"), "{missing}");
}

#[test]
fn limits_are_stated() {
    let link = |l: usize| Link::new(LinkEnd::new("a", &format!("e{l}")), LinkEnd::new("b", &format!("e{l}")));
    assert!(Plan::from_links("x", (0..256).map(link).collect()).is_ok());
    let message = Plan::from_links("x", (0..257).map(link).collect()).unwrap_err().to_string();
    assert!(message.contains("257 links: out of range; expected 0 to 256"), "{message}");
    let host = |h: usize| Host { name: format!("h{h}") };
    let plan = |n: usize| Plan { name: "x".into(), hosts: (0..n).map(host).collect(), links: Vec::new() };
    assert_eq!(plan(64).validate(), Ok(()));
    assert!(plan(65).validate().unwrap_err().to_string().contains("65 hosts: out of range; expected 1 to 64"));
}

#[test]
fn invalid_links_are_explained() {
    let cases = [
        ("", "HOST:INTERFACE"),
        ("a:e0", "needs two"),
        ("a,b", "HOST:INTERFACE"),
        ("a:e0,a:e0", "same interface"),
        ("a:e0,b:e0,queues=x", "not a number"),
        ("a:e0,b:e0,queues=65", "1 to 64"),
        ("a:e0,b:e0,speed=1", "queues=N, mtu=N"),
        ("a:e0,b:e0,offloads=no", "on or off"),
        ("a:e0=,b:e0", "ADDRESS/PREFIX"),
        ("a:e0=10.0.0.1,b:e0", "10.0.0.1/24"),
        ("a:e0;reboot,b:e0", "interface name"),
        ("a b:e0,b:e0", "a-z, 0-9"),
    ];
    for (text, word) in cases {
        let error = text.parse::<Link>().unwrap_err();
        assert!(matches!(error, PlanError::Link { .. }), "{error:?}");
        assert!(error.to_string().contains(word), "{text}: {word:?} is not in: {error}");
    }
}

fn cidr() -> impl Strategy<Value = Cidr> {
    let v4 = (any::<[u8; 4]>(), 1..=32u8).prop_map(|(a, p)| (IpAddr::from(a), p));
    let v6 = (any::<[u8; 16]>(), 1..=128u8).prop_map(|(a, p)| (IpAddr::from(a), p));
    prop_oneof![v4, v6].prop_filter_map("not an interface's address", |(a, p)| Cidr::new(a, p).ok())
}

fn end() -> impl Strategy<Value = LinkEnd> {
    let fields = ("[a-z0-9][a-z0-9-]{0,23}", "[A-Za-z][A-Za-z0-9_.-]{0,14}", prop::collection::vec(cidr(), 0..4));
    fields.prop_map(|(host, interface, addresses)| LinkEnd { host, interface, addresses })
}

fn link() -> impl Strategy<Value = Link> {
    let fields = (end(), end(), 1..=64u32, 68..=65_535u32, any::<bool>());
    fields.prop_map(|(left, right, queues, mtu, offloads)| Link { ends: [left, right], queues, mtu, offloads })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_text_is_parsed_without_panic(text in ".{0,200}") {
        let _ = Plan::from_toml(&text);
        let _ = text.parse::<Link>();
        let _ = text.parse::<Cidr>();
    }

    #[test]
    fn any_link_text_is_parsed_without_panic(text in "[a-c0-9:=,+/.]{0,60}(,(queues|mtu|offloads)=[a-z0-9]{0,12})?") {
        if let Ok(link) = text.parse::<Link>() {
            prop_assert_eq!(link.to_string().parse::<Link>().unwrap(), link);
        }
    }

    #[test]
    fn plans_round_trip(name in "[a-z0-9][a-z0-9-]{0,23}", links in prop::collection::vec(link(), 1..6)) {
        for link in &links {
            match link.to_string().parse::<Link>() {
                Ok(read) => prop_assert_eq!(&read, link),
                Err(_) => prop_assert!(Plan::from_links(&name, vec![link.clone()]).is_err()),
            }
        }
        if let Ok(plan) = Plan::from_links(&name, links) {
            prop_assert_eq!(Plan::from_toml(&toml::to_string(&plan).unwrap()).unwrap(), plan);
        }
    }
}
