"""Drives linerate serve with the published client of the Open Traffic Generator API, as test programs do.

    drive.py LOCATION P1 P2 [NAME ...]

Each function `check_...` is one such program; NAME selects some of them [default: all].
"""
import struct
import sys
import time
import zlib

import snappi

LOCATION, P1, P2 = sys.argv[1:4]
MACS = ("00:00:01:01:01:01", "00:00:01:01:01:02")


def bytes_of(mac):
    return bytes(int(part, 16) for part in mac.split(":"))


def client():
    return snappi.api(LOCATION, version_check=True)


def base(api, capture=None):
    config = api.config()
    p1 = config.ports.add(name="p1", location=P1)
    p2 = config.ports.add(name="p2", location=P2)
    layer = config.layer1.add(name="ly", port_names=[p1.name, p2.name])
    layer.speed = layer.SPEED_1_GBPS
    if capture:
        ca = config.captures.add(name="ca", port_names=[p1.name, p2.name])
        ca.format = capture
    return config


def flow(config, name="f1", packets=100, pps=1000, size=128):
    f = config.flows.add(name=name)
    f.tx_rx.port.tx_name = "p1"
    f.tx_rx.port.rx_names = ["p2"]
    f.duration.fixed_packets.packets = packets
    f.rate.pps = pps
    f.size.fixed = size
    f.metrics.enable = True
    f.metrics.loss = True
    return f


def addressed(f):
    eth, ip = f.packet.ethernet().ipv4()
    eth.src.value, eth.dst.value = MACS
    ip.src.value, ip.dst.value = "1.1.1.1", "1.1.1.2"
    return ip


def transmit(api, state, names=None):
    cs = api.control_state()
    cs.traffic.flow_transmit.state = state
    if names:
        cs.traffic.flow_transmit.flow_names = names
    api.set_control_state(cs)


def capture(api, state):
    cs = api.control_state()
    cs.port.capture.state = state
    api.set_control_state(cs)


def metrics(api, *names):
    req = api.metrics_request()
    req.flow.flow_names = list(names)
    return {m.name: m for m in api.get_metrics(req).flow_metrics}


def port_metrics(api):
    req = api.metrics_request()
    req.port.port_names = []
    return {m.name: m for m in api.get_metrics(req).port_metrics}


def wait_for(what, is_so, seconds=15):
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "timed out: " + what
        time.sleep(0.02)


def wait_for_all(api, name, packets):
    def is_so():
        m = metrics(api, name)[name]
        return m.transmit == "stopped" and m.frames_tx == packets and m.frames_rx == packets

    wait_for(f"{name} arrived completely", is_so)


def run(api, packets=100, name="f1"):
    capture(api, "start")
    transmit(api, "start")
    wait_for_all(api, name, packets)
    capture(api, "stop")
    request = api.capture_request()
    request.port_name = "p2"
    return records(api.get_capture(request).read())


def records(file):
    """Returns the frames of a nanosecond pcap file whose frames end with their FCS."""
    magic, _, _, _, _, _, link = struct.unpack("<IHHIIII", file[:24])
    assert magic == 0xA1B23C4D, hex(magic)
    assert link & 0xFFFF == 1 and link >> 26 & 1 and link >> 28 == 2, hex(link)
    found, at = [], 24
    while at < len(file):
        _, _, kept, length = struct.unpack("<IIII", file[at : at + 16])
        frame = file[at + 16 : at + 16 + kept]
        assert kept == length and zlib.crc32(frame[:-4]).to_bytes(4, "little") == frame[-4:], "FCS"
        found.append(frame)
        at += 16 + kept
    return [frame for frame in found if frame[6:12] == bytes_of(MACS[0])]


def number(frame, at, size):
    return int.from_bytes(frame[at : at + size], "big")


def total(data):
    words = sum(int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(data), 2))
    while words >> 16:
        words = (words & 0xFFFF) + (words >> 16)
    return words


def udp_total(frame):
    """Returns the sum of a UDP datagram over IPv4 with its pseudo-header: 0xffff if its checksum is correct."""
    length = number(frame, 38, 2)
    return total(frame[26:34] + b"\0\x11" + frame[38:40] + frame[34 : 34 + length])


def check_udp_values_and_counters():
    api = client()
    config = base(api, "pcap")
    f = flow(config)
    ip = addressed(f)
    udp = f.packet.udp()[-1]
    ip.src.increment.start, ip.src.increment.step, ip.src.increment.count = "1.1.1.250", "0.0.0.5", 4
    udp.src_port.values = [5000, 5050, 5060]
    udp.dst_port.decrement.start, udp.dst_port.decrement.step, udp.dst_port.decrement.count = 6000, 10, 7
    assert not api.set_config(config).warnings
    frames = run(api)
    assert len(frames) == 100, len(frames)
    for i, frame in enumerate(frames):
        assert len(frame) == 128
        assert number(frame, 16, 2) == 128 - 14 - 4 and number(frame, 38, 2) == 128 - 14 - 20 - 4
        assert number(frame, 26, 4) == 0x010101FA + 5 * (i % 4), i
        assert number(frame, 34, 2) == [5000, 5050, 5060][i % 3], i
        assert number(frame, 36, 2) == 6000 - 10 * (i % 7), i
        assert total(frame[14:34]) == 0xFFFF and udp_total(frame) == 0xFFFF
    m = metrics(api)["f1"]
    assert (m.bytes_tx, m.bytes_rx, m.loss) == (12800, 12800, 0), m
    ports = port_metrics(api)
    assert ports["p1"].frames_tx == ports["p2"].frames_rx == 100, ports
    assert ports["p1"].bytes_tx == ports["p2"].bytes_rx == 12800 and ports["p2"].link == "up", ports
    # The configuration is returned unchanged.
    assert api.get_config().serialize("dict") == config.serialize("dict")


def check_tcp_of_64_bytes_and_bad_checksums():
    api = client()
    config = base(api, "pcap")
    f = flow(config, size=64)
    addressed(f)
    tcp = f.packet.tcp()[-1]
    tcp.src_port.value, tcp.dst_port.value = 80, 81
    tcp.ctl_syn.value = 1
    assert len(api.set_config(config).warnings) == 1
    for frame in run(api):
        assert len(frame) == 64 and frame[46] >> 4 == 5 and frame[47] == 2, frame[46:48]
    config = base(api, "pcap")
    f = flow(config)
    ip = addressed(f)
    udp = f.packet.udp()[-1]
    udp.checksum.generated = udp.checksum.BAD
    ip.header_checksum.generated = "bad"
    api.set_config(config)
    frames = run(api)
    assert len(frames) == 100
    for frame in frames:
        assert total(frame[14:34]) != 0xFFFF and udp_total(frame) != 0xFFFF


def check_devices_resolve_each_other():
    """Like feature/b2b/interfaces/test_ip_neighbors.py of the published tests, also for IPv6."""
    api = client()
    config = base(api, "pcap")
    for end, (mac, own, other) in enumerate([(MACS[0], 1, 2), (MACS[1], 2, 1)], 1):
        device = config.devices.add(name=f"d{end}")
        eth = device.ethernets.add(name=f"d{end}_eth", mac=mac, mtu=1500)
        eth.connection.port_name = f"p{end}"
        eth.ipv4_addresses.add(name=f"d{end}_ip", address=f"1.1.1.{own}", gateway=f"1.1.1.{other}", prefix=24)
        eth.ipv6_addresses.add(name=f"d{end}_ip6", address=f"2001:2::{own}", gateway=f"2001:2::{other}", prefix=64)
    for version in (4, 6):
        f = flow(config, name=f"f{version}")
        suffix = "ip" if version == 4 else "ip6"
        f.tx_rx.device.tx_names, f.tx_rx.device.rx_names = [f"d1_{suffix}"], [f"d2_{suffix}"]
        eth = f.packet.ethernet()[-1]
        ip = f.packet.ipv4()[-1] if version == 4 else f.packet.ipv6()[-1]
        eth.src.value = MACS[0]
        ip.src.value, ip.dst.value = ("1.1.1.1", "1.1.1.2") if version == 4 else ("2001:2::1", "2001:2::2")
        f.packet.udp()
    assert not api.set_config(config).warnings

    def neighbors(version, names=()):
        request = api.states_request()
        of = request.ipv4_neighbors if version == 4 else request.ipv6_neighbors
        of.ethernet_names = list(names)
        states = api.get_states(request)
        found = states.ipv4_neighbors if version == 4 else states.ipv6_neighbors
        return {(n.ethernet_name, getattr(n, f"ipv{version}_address")): n.link_layer_address for n in found}

    wanted = {
        4: {("d1_eth", "1.1.1.2"): MACS[1], ("d2_eth", "1.1.1.1"): MACS[0]},
        6: {("d1_eth", "2001:2::2"): MACS[1], ("d2_eth", "2001:2::1"): MACS[0]},
    }
    for version in (4, 6):
        wait_for(f"gateways of IPv{version} are known", lambda: neighbors(version) == wanted[version])
    assert list(neighbors(4, ["d2_eth"])) == [("d2_eth", "1.1.1.1")]
    for version in (4, 6):
        transmit(api, "start", [f"f{version}"])
        wait_for_all(api, f"f{version}", 100)
    frames = run(api, name="f4")
    assert sum(frame[:6] == bytes_of(MACS[1]) and number(frame, 12, 2) == 0x0800 for frame in frames) == 100
    protocols = api.control_state()
    protocols.protocol.all.state = "stop"
    api.set_control_state(protocols)
    assert set(neighbors(4).values()) == {None}, neighbors(4)
    try:
        transmit(api, "start")
        raise AssertionError("flows started without a destination")
    except Exception as error:
        assert "unresolved gateway 1.1.1.2 at p1" in str(error), error
    protocols.protocol.all.state = "start"
    api.set_control_state(protocols)
    wait_for("gateways are known again", lambda: neighbors(4) == wanted[4])


def check_vxlan_leaves_room_for_the_inner_fcs():
    api = client()
    config = base(api, "pcap")
    f = flow(config, size=256)
    eth, ip6, udp, vxlan, inner, ip, tcp = f.packet.ethernet().ipv6().udp().vxlan().ethernet().ipv4().tcp()
    eth.src.value, eth.dst.value = MACS
    ip6.src.value, ip6.dst.value = "::1", "::2"
    udp.src_port.value, udp.dst_port.value = 4789, 4789
    vxlan.vni.values = [1000, 1001, 1002]
    inner.src.value, inner.dst.value = "00:00:01:01:01:03", "00:00:01:01:01:04"
    ip.src.value, ip.dst.value = "1.1.1.3", "1.1.1.4"
    tcp.src_port.value, tcp.dst_port.value = 80, 80
    api.set_config(config)
    frames = run(api)
    assert len(frames) == 100
    for i, frame in enumerate(frames):
        assert len(frame) == 256 and number(frame, 18, 2) == number(frame, 58, 2) == 256 - 14 - 40 - 4
        assert number(frame, 66, 3) == 1000 + i % 3
        assert number(frame, 86, 2) == 256 - 14 - 4 - 40 - 8 - 8 - 14 - 4
        assert total(frame[84:104]) == 0xFFFF
        segment = frame[104 : 84 + number(frame, 86, 2)]
        assert total(frame[96:104] + b"\0\x06" + len(segment).to_bytes(2, "big") + segment) == 0xFFFF


def check_start_stop_pause_resume_and_rate():
    api = client()
    config = base(api)
    for name in ["f1", "f2"]:
        f = flow(config, name=name, pps=2000)
        f.duration.continuous.gap = 12
        f.metrics.timestamps = True
        f.metrics.latency.enable = True
        addressed(f)
        f.packet.udp()
    api.set_config(config)
    transmit(api, "start", ["f1"])
    wait_for("f1 sends", lambda: metrics(api)["f1"].frames_rx > 100)
    one, other = metrics(api, "f1")["f1"], metrics(api)["f2"]
    assert (one.transmit, other.transmit, other.frames_tx) == ("started", "stopped", 0)
    transmit(api, "start", ["f2"])
    transmit(api, "pause", ["f1"])
    held = metrics(api)["f1"]
    assert held.transmit == "paused"
    wait_for("f2 sends", lambda: metrics(api)["f2"].frames_rx > 100)
    assert metrics(api)["f1"].frames_tx == held.frames_tx
    transmit(api, "resume", ["f1"])
    wait_for("f1 resumes", lambda: metrics(api)["f1"].frames_rx > held.frames_rx + 100)
    f = config.flows[0]
    f.rate.pps = 50000
    update = api.config_update()
    update.flows.property_names = ["rate"]
    update.flows.flows.append(f)
    api.update_config(update)
    assert api.get_config().flows[0].rate.pps == 50000
    # One thread sends both flows, so their counts keep the ratio of the rates whatever delays it.
    before = metrics(api)
    wait_for("f1 is faster", lambda: metrics(api)["f1"].frames_tx > before["f1"].frames_tx + 10000)
    after = metrics(api)
    one, other = (after[name].frames_tx - before[name].frames_tx for name in ["f1", "f2"])
    assert one > 10 * other, (one, other)
    transmit(api, "stop")
    # Immediately after the stop, as test programs read it.
    for m in metrics(api).values():
        assert m.transmit == "stopped" and m.frames_tx == m.frames_rx and m.loss == 0, m
        assert 0 <= m.latency.minimum_ns <= m.latency.average_ns <= m.latency.maximum_ns, m
        assert m.timestamps.first_timestamp_ns < m.timestamps.last_timestamp_ns, m
    # A new start resets the counters.
    was = metrics(api)["f2"].frames_tx
    transmit(api, "start", ["f1"])
    wait_for("f1 sends again", lambda: metrics(api)["f1"].frames_rx > 10)
    assert metrics(api)["f2"].frames_tx == was
    transmit(api, "stop")
    m = metrics(api)["f1"]
    assert m.frames_tx == m.frames_rx and m.loss == 0, m


def check_unsupported_config_is_rejected_without_effect():
    api = client()
    config = base(api)
    f = flow(config, packets=1000, pps=1000)
    addressed(f)
    f.packet.udp()
    api.set_config(config)
    transmit(api, "start")
    wrong = base(api)
    wrong.ports[0].location = "eth99"
    f = flow(wrong)
    f.packet.ethernet().pfcpause()
    f.egress_packet.ethernet()
    wrong.devices.add(name="d1").ethernets.add(name="e1", mac=MACS[0])
    try:
        api.set_config(wrong)
    except Exception as error:
        text = str(error)
    for path in ["flows[0].packet[1].choice", "flows[0].egress_packet", "devices"]:
        assert path in text, text
    wait_for_all(api, "f1", 1000)
    assert api.get_config().serialize("dict") == config.serialize("dict")


checks = {name: check for name, check in list(globals().items()) if name.startswith("check_")}
for name in sys.argv[4:] or checks:
    began = time.monotonic()
    checks[name]()
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
