//! Expected lines for packets of each protocol.

use linerate::generate::packet::{Setup, Sizes, frames};
use linerate::headers::Link;
use linerate::print::{Frame, Options, Printer, Time};

const PLAIN: Options = Options { time: Time::None, ..options() };
const LINK: Options = Options { link: true, ..PLAIN };
const VERBOSE: Options = Options { verbose: true, ..PLAIN };

const fn options() -> Options {
    use linerate::print::Bytes;
    Options {
        link: false,
        verbose: false,
        unverified: false,
        brief: false,
        absolute: false,
        nanos: false,
        time: Time::Clock,
        bytes: Bytes { hex: false, ascii: false, link: false },
    }
}

/// Packets in the syntax of `generate`, and their lines.
const LINES: &[(&str, &str)] = &[
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=4242,dport=80,flags=syn,seq=1000,window=64240,mss=1460,sack_ok,wscale=7)",
        "IP 10.0.0.1.4242 > 10.0.0.2.80: Flags [S], seq 1000, win 64240, options [mss 1460,sackOK,wscale 7,eol], length 0",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=4242,dport=80,flags=psh+ack,seq=5,ack=6,window=502)/payload(hex=474554202f611b20485454502f312e310d0a486f73743a20780d0a)",
        "IP 10.0.0.1.4242 > 10.0.0.2.80: Flags [P.], seq 5:32, ack 6, win 502, length 27: HTTP: GET /a\\x1b HTTP/1.1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=80,dport=4242,flags=psh+ack,seq=5,ack=6,window=502)/payload(hex=485454502f312e3120323030204f4b0d0a)",
        "IP 10.0.0.1.80 > 10.0.0.2.4242: Flags [P.], seq 5:22, ack 6, win 502, length 17: HTTP: HTTP/1.1 200 OK",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=4242,dport=443,flags=psh+ack,seq=5,ack=6,window=502)/payload(hex=160301006401000060030300000000000000000000000000000000000000000000000000000000000000000000021301010000350a0a000000000010000e00000b6578616d706c652e6f72670010000e000c02683208687474702f312e31002b0007060a0a03040303)",
        "IP 10.0.0.1.4242 > 10.0.0.2.443: Flags [P.], seq 5:110, ack 6, win 502, length 105: TLS 1.3 client hello, sni example.org, alpn h2,http/1.1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=443,dport=4242,flags=psh+ack,seq=5,ack=6,window=502)/payload(hex=16030100320200002e03030000000000000000000000000000000000000000000000000000000000000000001301000006002b00020304)",
        "IP 10.0.0.1.443 > 10.0.0.2.4242: Flags [P.], seq 5:60, ack 6, win 502, length 55: TLS 1.3 server hello",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/tcp(sport=4242,dport=80,flags=rst,seq=7,window=0)",
        "IP6 2001:db8::1.4242 > 2001:db8::2.80: Flags [R], seq 7, win 0, length 0",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=4242,dport=80,flags=0,window=1)",
        "IP 10.0.0.1.4242 > 10.0.0.2.80: Flags [none], win 1, length 0",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=4242,dport=80,flags=ack+urg+ece+cwr+fin,seq=7,ack=9,window=1,urgent=3)",
        "IP 10.0.0.1.4242 > 10.0.0.2.80: Flags [F.UEW], seq 7, ack 9, win 1, urg 3, length 0",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4242,dport=9)/payload(hex=0102030405)",
        "IP 10.0.0.1.4242 > 10.0.0.2.9: UDP, length 5",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4242,dport=9,len=900)/payload(hex=0102030405)",
        "IP 10.0.0.1.4242 > 10.0.0.2.9: UDP, bad length 892 > 5",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4242,dport=53)/payload(hex=123401000001000000000001076578616d706c65036f7267000001000100002904d0000000000000)",
        "IP 10.0.0.1.4242 > 10.0.0.2.53: 4660+ [1au] A? example.org. (40)",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=53,dport=4242)/payload(hex=123481800001000600000000076578616d706c65036f72670000010001c00c000500010000003c000603777777c00cc00c000100010000003c0004c0000207c00c001c00010000003c001020010db8000000000000000000000001c00c000f00010000003c0009000a046d61696cc00cc00c002100010000003c000c0001000201bb03737276c00cc00c001000010000003c000605763d1bff21)",
        "IP 10.0.0.1.53 > 10.0.0.2.4242: 4660 6/0/0 CNAME www.example.org., A 192.0.2.7, AAAA 2001:db8::1, MX mail.example.org. 10, SRV srv.example.org.:443 1 2, TXT \"v=\\x1b\\xff!\" (154)",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=53,dport=4242)/payload(hex=000785830001000000000000026e6f076578616d706c650000ff0001)",
        "IP 10.0.0.1.53 > 10.0.0.2.4242: 7 NXDomain* 0/0/0 (28)",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4242,dport=53)/payload(hex=000901000001000000000000c00c00010001)",
        "IP 10.0.0.1.4242 > 10.0.0.2.53: 9+ A? [|domain] (18)",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=5353,dport=5353)/payload(hex=000000000001000000000000055f68747470045f746370056c6f63616c00000c8001)",
        "IP 10.0.0.1.5353 > 10.0.0.2.5353: 0 PTR (QU)? _http._tcp.local. (34)",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=68,dport=67)/payload(hex=01010600000000000000000000000000000000000000000000000000020000000007000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006382536335010332040a0000090c0470630721ff)",
        "IP 10.0.0.1.68 > 10.0.0.2.67: BOOTP/DHCP, Request from 02:00:00:00:00:07, length 256, Request, asks for 10.0.0.9, host \"pc\\x07!\"",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=67,dport=68)/payload(hex=020106000000000000000000000000000a0000090000000000000000020000000007000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006382536335010536040a000001ff)",
        "IP 10.0.0.1.67 > 10.0.0.2.68: BOOTP/DHCP, Reply, length 250, ACK, server 10.0.0.1, yours 10.0.0.9",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4242,dport=123)/payload(hex=230200000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000)",
        "IP 10.0.0.1.4242 > 10.0.0.2.123: NTPv4, Client, length 48, stratum 2",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4242,dport=443)/payload(hex=c30000000108010203040506070804aabbccdd)",
        "IP 10.0.0.1.4242 > 10.0.0.2.443: UDP, length 19: QUIC v1, Initial, dcid 0x0102030405060708, scid 0xaabbccdd",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4500,dport=4500)/payload(hex=1122334400000009aabb)",
        "IP 10.0.0.1.4500 > 10.0.0.2.4500: UDP-encap: ESP(spi=0x11223344,seq=0x9), length 10",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4500,dport=4500)/payload(hex=ff)",
        "IP 10.0.0.1.4500 > 10.0.0.2.4500: isakmp-nat-keep-alive",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=500,dport=500)/payload(hex=111111111111111111111111111111112120220800000000)",
        "IP 10.0.0.1.500 > 10.0.0.2.500: isakmp 2.0, ikev2_init, length 24",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udplite(sport=7,dport=8)/payload(hex=0102)",
        "IP 10.0.0.1.7 > 10.0.0.2.8: UDPLite, coverage 0, length 2",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/sctp(sport=7,dport=8)/payload(hex=0003001500000001000200030000000401020304ff00000003000010000000050000100000000000)",
        "IP 10.0.0.1.7 > 10.0.0.2.8: sctp (1) [DATA] (B)(E) [TSN: 1] [SID: 2] [SSEQ 3] [PPID 0x4], (2) [SACK] [cum ack 5] [a_rwnd 4096] [#gap acks 0] [#dup tsns 0]",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/icmp(type=8,id=1,seq=2)/payload(hex=0102)",
        "IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 1, seq 2, length 10",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/icmp(type=3,code=3)/payload(hex=4500001d0001000040110000c0000201c0000202109200350009000078)",
        "IP 10.0.0.1 > 10.0.0.2: ICMP 192.0.2.2 udp port 53 unreachable, length 37",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/icmp(type=3,code=4,mtu=1400)/payload(hex=4500001d0001000040110000c0000201c0000202109200350009000078)",
        "IP 10.0.0.1 > 10.0.0.2: ICMP 192.0.2.2 unreachable - need to frag (mtu 1400), length 37",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/icmp(type=11,code=0)/payload(hex=4500001d0001000040110000c0000201c0000202109200350009000078)",
        "IP 10.0.0.1 > 10.0.0.2: ICMP time exceeded in-transit, length 37",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/icmp6(type=128)/payload(hex=00010002)",
        "IP6 2001:db8::1 > 2001:db8::2: ICMP6, echo request, id 1, seq 2, length 8",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/icmp6(type=135)/payload(hex=0000000020010db8000000000000000000000009)",
        "IP6 2001:db8::1 > 2001:db8::2: ICMP6, neighbor solicitation, who has 2001:db8::9, length 24",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/icmp6(type=136)/payload(hex=6000000020010db8000000000000000000000009)",
        "IP6 2001:db8::1 > 2001:db8::2: ICMP6, neighbor advertisement, tgt is 2001:db8::9, length 24",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/icmp6(type=1,code=4)/payload(hex=00000000600000000009114020010db800000000000000000000000120010db8000000000000000000000002109200350009000078)",
        "IP6 2001:db8::1 > 2001:db8::2: ICMP6, destination unreachable, unreachable port, 2001:db8::2 udp port 53, length 57",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/icmp6(type=2)/payload(hex=00000500600000000009114020010db800000000000000000000000120010db8000000000000000000000002109200350009000078)",
        "IP6 2001:db8::1 > 2001:db8::2: ICMP6, packet too big, mtu 1280, length 57",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/hbh/icmp6(type=143)/payload(hex=0000000104000000ff020000000000000000000000000009)",
        "IP6 2001:db8::1 > 2001:db8::2: HBH ICMP6, multicast listener report v2, 1 group record(s), length 28",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/igmp(type=0x16,group=239.1.2.3)",
        "IP 10.0.0.1 > 10.0.0.2: igmp v2 report 239.1.2.3",
    ),
    ("ip(src=10.0.0.1,dst=10.0.0.2)/igmp(type=0x17,group=239.1.2.3)", "IP 10.0.0.1 > 10.0.0.2: igmp leave 239.1.2.3"),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/frag(frag_offset=185,mf=1)/payload(hex=0102)",
        "IP6 2001:db8::1 > 2001:db8::2: frag (1480|2)",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/esp(spi=0x1234,seq=9)/payload(hex=0102)",
        "IP 10.0.0.1 > 10.0.0.2: ESP(spi=0x00001234,seq=0x9), length 10",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/ah(spi=0x1234,seq=9,icv=0a0b0c0d)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP 10.0.0.1 > 10.0.0.2: AH(spi=0x00001234,seq=0x9,icv=0x0a0b0c0d): 1 > 2: UDP, length 1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/gre(key=7,seq=8)/ip(src=192.0.2.1,dst=192.0.2.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP 10.0.0.1 > 10.0.0.2: GREv0, key=0x7, seq 8, length 41: IP 192.0.2.1.1 > 192.0.2.2.2: UDP, length 1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=5000)/vxlan(vni=100)/eth/ip(src=192.0.2.1,dst=192.0.2.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP 10.0.0.1.5000 > 10.0.0.2.4789: VXLAN, flags [I] (0x08), vni 100: IP 192.0.2.1.1 > 192.0.2.2.2: UDP, length 1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=5000)/geneve(vni=10)/eth/ip(src=192.0.2.1,dst=192.0.2.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP 10.0.0.1.5000 > 10.0.0.2.6081: Geneve, Flags [none], vni 0xa: IP 192.0.2.1.1 > 192.0.2.2.2: UDP, length 1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=5000)/gtpu(teid=9)/ip(src=192.0.2.1,dst=192.0.2.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP 10.0.0.1.5000 > 10.0.0.2.2152: GTP-U, G-PDU, teid 0x9, length 29: IP 192.0.2.1.1 > 192.0.2.2.2: UDP, length 1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/ip6(src=2001:db8::1,dst=2001:db8::2)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP 10.0.0.1 > 10.0.0.2: IP6 2001:db8::1.1 > 2001:db8::2.2: UDP, length 1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/erspan(session=7)/eth/arp(op=1,spa=10.0.0.1,tpa=10.0.0.2)",
        "IP 10.0.0.1 > 10.0.0.2: GREv0, seq 0, length 58: ERSPAN type II, session 7, vlan 0: ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 28",
    ),
    (
        "ip(src=10.0.0.1,dst=224.0.0.5,proto=89)/payload(hex=0201002c00000000)",
        "IP 10.0.0.1 > 224.0.0.5: OSPFv2, Hello, length 8",
    ),
    (
        "ip(src=10.0.0.1,dst=224.0.0.13,proto=103)/payload(hex=2000000000000000)",
        "IP 10.0.0.1 > 224.0.0.13: PIMv2, Hello, length 8",
    ),
    (
        "ip(src=10.0.0.1,dst=224.0.0.18,proto=112)/payload(hex=312a640100640000)",
        "IP 10.0.0.1 > 224.0.0.18: VRRPv3, Advertisement, vrid 42, prio 100, intvl 100cs, length 8",
    ),
    ("ip(src=10.0.0.1,dst=10.0.0.2,proto=253)/payload(hex=0102)", "IP 10.0.0.1 > 10.0.0.2: ip-proto-253, length 2"),
    ("ip(src=10.0.0.1,dst=10.0.0.2,proto=17,frag_offset=185)/payload(hex=0102)", "IP 10.0.0.1 > 10.0.0.2: ip-proto-17"),
    ("arp(op=1,spa=10.0.0.1,tpa=10.0.0.2)", "ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 28"),
    (
        "arp(op=2,spa=10.0.0.1,sha=02:00:00:00:00:07,tpa=10.0.0.2)",
        "ARP, Reply 10.0.0.1 is-at 02:00:00:00:00:07, length 28",
    ),
    (
        "vlan(id=5)/ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP 10.0.0.1.1 > 10.0.0.2.2: UDP, length 1",
    ),
    (
        "mpls(label=77,ttl=9)/ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "MPLS (label 77, tc 0, [S], ttl 9) IP 10.0.0.1.1 > 10.0.0.2.2: UDP, length 1",
    ),
    (
        "pppoe(session=7)/ppp/ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "PPPoE [ses 0x7] IP 10.0.0.1.1 > 10.0.0.2.2: UDP, length 1",
    ),
    ("pppoe(session=7)/ppp(proto=0xc021)/payload(hex=0109)", "PPPoE [ses 0x7] LCP, length 2"),
    ("eth(type=0x88cc)/payload(hex=0207)", "LLDP, length 2"),
    (
        "eth(type=0x1234)/payload(hex=0207)",
        "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype Unknown (0x1234), length 16",
    ),
    (
        "eth/llc(dsap=0x42,ssap=0x42,control=3)/payload(hex=0000000001800000112233445500000000800000112233445580010000140002000f00)",
        "STP 802.1d, Config, Flags [Topology change], bridge-id 8000.00:11:22:33:44:55.8001, length 35",
    ),
    ("eth/snap(oui=0x00000c,type=0x2000)/payload(hex=02b4)", "CDP, length 2"),
];

/// Lines with link headers.
const LINKS: &[(&str, &str)] = &[
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 43: 10.0.0.1.1 > 10.0.0.2.2: UDP, length 1",
    ),
    (
        "vlan(id=5,prio=3)/ip6(src=2001:db8::1,dst=2001:db8::2)/udp(sport=1,dport=2)/payload(hex=01)",
        "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype 802.1Q (0x8100), length 67: vlan 5, p 3, ethertype IPv6 (0x86dd), 2001:db8::1.1 > 2001:db8::2.2: UDP, length 1",
    ),
    (
        "qinq(id=7)/vlan(id=5)/arp(op=1,spa=10.0.0.1,tpa=10.0.0.2)",
        "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype 802.1Q-QinQ (0x88a8), length 50: vlan 7, p 0, ethertype 802.1Q (0x8100), vlan 5, p 0, ethertype ARP (0x0806), Request who-has 10.0.0.2 tell 10.0.0.1, length 28",
    ),
    (
        "eth/llc(dsap=0x42,ssap=0x42,control=3)/payload(hex=0000000001800000112233445500000000800000112233445580010000140002000f00)",
        "02:00:00:00:00:01 > 02:00:00:00:00:02, 802.3, length 38: LLC, dsap STP (0x42) Individual, ssap STP (0x42) Command, ctrl 0x03: STP 802.1d, Config, Flags [Topology change], bridge-id 8000.00:11:22:33:44:55.8001, length 35",
    ),
    (
        "sll/ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1,dport=2)/payload(hex=01)",
        "In 02:00:00:00:00:01, ethertype IPv4 (0x0800), length 45: IP 10.0.0.1.1 > 10.0.0.2.2: UDP, length 1",
    ),
];

/// Lines with more fields of each header.
const DETAILS: &[(&str, &str)] = &[
    (
        "ip(src=10.0.0.1,dst=10.0.0.2,id=7,df,ttl=9)/tcp(sport=4242,dport=80,flags=ack,seq=7,ack=9,window=1)",
        "IP (tos 0x0, ttl 9, id 7, offset 0, flags [DF], proto TCP (6), length 40) 10.0.0.1.4242 > 10.0.0.2.80: Flags [.], cksum 0x8adf (correct), seq 7, ack 9, win 1, length 0",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2,checksum=1)/udp(sport=1,dport=2,checksum=7)/payload(hex=01)",
        "IP (tos 0x0, ttl 64, id 0, offset 0, flags [none], proto UDP (17), length 29, bad cksum 1 (->66ce)!) 10.0.0.1.1 > 10.0.0.2.2: [bad udp cksum 0x0007 -> 0xead6!] UDP, length 1",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/udp(sport=1,dport=2)/payload(hex=01)",
        "IP6 (hlim 64, next-header UDP (17), payload length 9) 2001:db8::1.1 > 2001:db8::2.2: [udp sum ok] UDP, length 1",
    ),
    (
        "ip(src=10.0.0.1,dst=10.0.0.2)/icmp(type=3,code=3)/payload(hex=4500001d0001000040110000c0000201c0000202109200350009000078)",
        "IP (tos 0x0, ttl 64, id 0, offset 0, flags [none], proto ICMP (1), length 57) 10.0.0.1 > 10.0.0.2: ICMP 192.0.2.2 udp port 53 unreachable, length 37: IP 192.0.2.1.4242 > 192.0.2.2.53: domain [length 1 < 12] (invalid)",
    ),
    (
        "ip6(src=2001:db8::1,dst=2001:db8::2)/icmp6(type=1,code=4)/payload(hex=00000000600000000009114020010db800000000000000000000000120010db8000000000000000000000002109200350009000078)",
        "IP6 (hlim 64, next-header ICMPv6 (58), payload length 57) 2001:db8::1 > 2001:db8::2: ICMP6, destination unreachable, unreachable port, 2001:db8::2 udp port 53, length 57: IP6 2001:db8::1.4242 > 2001:db8::2.53: domain [length 1 < 12] (invalid)",
    ),
];

#[test]
fn each_protocol_has_the_expected_line() {
    let mut wrong = String::new();
    for (options, lines) in [(PLAIN, LINES), (LINK, LINKS), (VERBOSE, DETAILS)] {
        for (packet, expected) in lines {
            let line = line(options, packet);
            if line != *expected {
                wrong += &format!("{packet}\n  is {line}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Returns the line of a packet.
fn line(options: Options, packet: &str) -> String {
    let made = frames(packet, &Setup { sizes: Sizes::Natural(0), ..Setup::default() });
    let Ok(made) = made else { return made.unwrap_err().to_string() };
    line_of(options, made.link, &made.variants[0].frame)
}

/// Returns the line of a frame without the line break.
fn line_of(options: Options, link: Link, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    let frame = Frame { time: 0, interface: "", link: link.linktype(), bytes, wire: bytes.len() as u32 };
    Printer::new(options).line(&frame, &mut out);
    String::from_utf8(out).unwrap().trim_end_matches('\n').to_owned()
}
