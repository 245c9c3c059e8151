//! Resolution of next hops.

use super::*;

#[test]
fn next_hop_is_unresolved_after_three_requests() {
    let mut answerer = answerer();
    let hop = Hop::new(OTHER_V4.into(), OWN_V4.into(), OWN, Vlans::NONE).unwrap();
    assert_eq!(answerer.resolution(&hop), None);
    answerer.resolve(hop, START);
    let mut asked = Vec::new();
    for tenth in 0..40 {
        answerer.tick(START.after(Duration::from_millis(100 * tenth)));
        let frames: Vec<Vec<u8>> = answerer.frames().iter().map(|(_, frame)| frame.to_vec()).collect();
        asked.extend(frames.into_iter().map(|frame| (tenth, frame)));
        answerer.clear(0);
        let silent = answerer.resolution(&hop) == Some(Resolution::Silent);
        assert_eq!(silent, tenth >= 30, "after {tenth} tenths of a second");
    }
    assert_eq!(asked.iter().map(|(tenth, _)| *tenth).collect::<Vec<_>>(), [0, 10, 20]);
    let request_frame = arp::View::parse(&asked[0].1[14..]).unwrap().packet().unwrap();
    assert_eq!(request_frame, arp::Packet { sender_mac: OWN, ..request(OWN_V4, OTHER_V4) });
    assert_eq!(asked[0].1[..6], MacAddr::BROADCAST.0);
    answerer.resolve(hop, START);
    answerer.tick(START.before(Duration::from_secs(3600)));
    assert_eq!(answerer.frames().len(), 2, "a clock set back delays no requests");
}

#[test]
fn a_reply_resolves_only_the_requested_hop() {
    let mut answerer = answerer();
    let hop = Hop::new(OTHER_V4.into(), OWN_V4.into(), OWN, Vlans::NONE).unwrap();
    let tagged = Hop::new(OTHER_V4.into(), OWN_V4.into(), OWN, Vlans::new(&[5]).unwrap()).unwrap();
    for hop in [hop, tagged] {
        answerer.resolve(hop, START);
    }
    answerer.clear(0);
    let reply = arp::Packet { operation: arp::REPLY, target_mac: OWN, ..request(OTHER_V4, OWN_V4) };
    let mut reply_to = |packet, to| exchange(&mut answerer, &built(&[&link(to), &packet], &[])).1;
    assert_eq!(reply_to(arp::Packet { sender_ip: [10, 0, 0, 2].into(), ..reply }, OWN), Count::AnswerOther);
    assert_eq!(reply_to(reply, OTHER), Count::AnswerOther, "sent to another station");
    assert_eq!(reply_to(arp::Packet { sender_mac: OWN, ..reply }, OWN), Count::AnswerMartian);
    assert_eq!(reply_to(reply, OWN), Count::AnswerResolved);
    assert_eq!(reply_to(arp::Packet { sender_mac: OTHER, ..reply }, OWN), Count::AnswerOther, "it is known");
    assert_eq!(answerer.resolution(&hop), Some(Resolution::At(OTHER)));
    assert_eq!(answerer.resolution(&tagged), Some(Resolution::Asking));
}

#[test]
fn an_advertisement_resolves_too() {
    let mut answerer = answerer();
    let hop = Hop::new(OTHER_V6.into(), OWN_V6.into(), OWN, Vlans::NONE).unwrap();
    answerer.resolve(hop, START);
    let request_frame = answerer.frames().frame(0).to_vec();
    answerer.clear(0);
    let (network, kind, body) = read_v6(&request_frame);
    let group = ndp::solicited_node(OTHER_V6);
    assert_eq!((network.destination, network.hop_limit, kind), (group, 255, ndp::SOLICITATION));
    let asked = ndp::Solicitation { target: OTHER_V6, source_mac: Some(OWN) };
    assert_eq!(
        (ndp::Solicitation::parse(&body), request_frame[..6].to_vec()),
        (Ok(asked), ndp::multicast_mac(group).0.to_vec())
    );

    let answer =
        ndp::Advertisement { router: true, solicited: true, replace: false, target: OTHER_V6, target_mac: Some(OTHER) };
    let mut answered = |answer: ndp::Advertisement, hop_limit| {
        let mut body = [0; 28];
        let length = answer.emit(&mut body).unwrap();
        let message = icmpv6::Header { kind: ndp::ADVERTISEMENT, code: 0 };
        let frame = built(&[&link(OWN), &v6(OTHER_V6, OWN_V6, hop_limit), &message], &body[..length]);
        exchange(&mut answerer, &frame).1
    };
    assert_eq!(answered(answer, 254), Count::AnswerMalformed);
    assert_eq!(answered(ndp::Advertisement { target_mac: None, ..answer }, 255), Count::AnswerOther);
    assert_eq!(answered(answer, 255), Count::AnswerResolved);
    assert_eq!(answerer.resolution(&hop), Some(Resolution::At(OTHER)));
}

#[test]
fn invalid_hops_are_rejected() {
    let hop = |target: &str, ip: &str, mac| Hop::new(target.parse().unwrap(), ip.parse().unwrap(), mac, Vlans::NONE);
    assert!(hop("10.0.0.1", "10.0.0.2", OWN).is_ok());
    for (target, ip, mac) in [
        ("10.0.0.1", "fd00::1", OWN),
        ("224.0.0.1", "10.0.0.2", OWN),
        ("10.0.0.1", "0.0.0.0", OWN),
        ("10.0.0.1", "10.0.0.2", MacAddr::BROADCAST),
    ] {
        assert!(hop(target, ip, mac).is_err(), "{target} {ip}");
    }
}
