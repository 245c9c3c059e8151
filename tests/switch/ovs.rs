//! Open vSwitch with its dummy datapath: ports take frames from a socket and write sent frames to files.
//!
//! Its programs come from Debian packages, installed or unpacked in `LINERATE_OVS`; the host network is not touched.

use linerate_tests::support::{Scratch, has_peer, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Ports that rules use; one more port after them shows that all earlier frames have left.
pub(super) const PORTS: u16 = 3;
const LAST: u16 = PORTS + 1;

/// End marker, different from every compared frame.
const MARK: [u8; 60] = {
    let mut mark = [0; 60];
    (mark[0], mark[6], mark[12], mark[13]) = (2, 2, 0x88, 0xb5);
    mark
};

pub(super) struct Ovs {
    scratch: Scratch,
    root: PathBuf,
    children: Vec<Child>,
    socket: UnixStream,
    /// Number of bytes read from each port's file.
    read: Vec<usize>,
}

impl Ovs {
    /// Starts Open vSwitch, a peer; reports a skip without it.
    pub(super) fn start() -> Option<Self> {
        let root = PathBuf::from(std::env::var_os("LINERATE_OVS").unwrap_or("/".into()));
        if !has_peer(root.join("usr/lib/openvswitch-switch/ovs-vswitchd").exists(), "Open vSwitch") {
            return None;
        }
        let scratch = Scratch::new();
        let schema = root.join("usr/share/openvswitch/vswitch.ovsschema");
        let conf = scratch.file("conf.db");
        let run = |command: &mut Command| {
            let output = command.output().expect("a program of Open vSwitch");
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        run(tool(&root, "usr/bin/ovsdb-tool", &scratch).args(["create", &conf]).arg(schema));
        let spawn = |command: &mut Command| {
            let quiet = command.args(["-vconsole:off", "-vsyslog:off"]).stdout(Stdio::null()).stderr(Stdio::null());
            quiet.spawn().expect("a program of Open vSwitch")
        };
        let database = format!("unix:{}", scratch.file("db.sock"));
        let mut children = vec![spawn(
            tool(&root, "usr/sbin/ovsdb-server", &scratch)
                .arg(&conf)
                .args([format!("--remote=p{database}"), format!("--unixctl={}", scratch.file("db.ctl"))]),
        )];
        wait_until("ovsdb-server listens", || UnixStream::connect(scratch.file("db.sock")).is_ok());
        let vsctl = || {
            let mut command = tool(&root, "usr/bin/ovs-vsctl", &scratch);
            command.args([format!("--db={database}"), "--timeout=20".to_owned()]);
            command
        };
        run(vsctl().args(["--no-wait", "init"]));
        children.push(spawn(
            tool(&root, "usr/lib/openvswitch-switch/ovs-vswitchd", &scratch)
                .arg(&database)
                .args(["--enable-dummy=override", "--disable-system", "--no-chdir"])
                .arg(format!("--unixctl={}", scratch.file("v.ctl"))),
        ));
        let mut bridge = vsctl();
        bridge.args(["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure"]);
        for port in 1..=LAST {
            let file = scratch.file(&format!("p{port}.pcap"));
            bridge.args([
                "--",
                "add-port",
                "br0",
                &format!("p{port}"),
                "--",
                "set",
                "Interface",
                &format!("p{port}"),
                "type=dummy",
            ]);
            bridge.args([format!("ofport_request={port}"), format!("options:tx_pcap={file}")]);
        }
        run(&mut bridge);
        // `nx-match` keeps L4 ports on first fragments; the default mode clears them there too.
        run(tool(&root, "usr/bin/ovs-ofctl", &scratch).args(["set-frags", &scratch.file("br0.mgmt"), "nx-match"]));
        let socket = UnixStream::connect(scratch.file("v.ctl")).expect("the socket of ovs-vswitchd");
        Some(Ovs { scratch, root, children, socket, read: vec![24; usize::from(LAST) + 1] })
    }

    /// Sends a request to ovs-vswitchd and returns the result.
    pub(super) fn ask(&mut self, method: &str, words: &[String]) -> String {
        let request = json!({ "id": 0, "method": method, "params": words }).to_string();
        self.socket.write_all(request.as_bytes()).expect("ovs-vswitchd listens");
        let (mut said, mut part) = (Vec::new(), [0; 65536]);
        loop {
            let length = self.socket.read(&mut part).expect("ovs-vswitchd answers");
            assert!(length > 0, "ovs-vswitchd exited: {method}");
            said.extend_from_slice(&part[..length]);
            if let Ok(answer) = serde_json::from_slice::<Value>(&said) {
                assert!(answer["error"].is_null(), "{method} {words:?}: {answer}");
                return answer["result"].as_str().unwrap_or_default().to_owned();
            }
        }
    }

    /// Replaces all rules; returns the errors of ovs-ofctl.
    pub(super) fn set_rules(&mut self, rules: &[String]) -> Result<(), String> {
        let file = self.scratch.file("rules");
        // The marker rule has the highest priority.
        let mark = format!("priority=65535,dl_type=0x88b5,actions=output:{LAST}\n");
        fs::write(&file, mark + &rules.join("\n") + "\n").expect("a file of rules");
        let bridge = self.scratch.file("br0.mgmt");
        let output =
            tool(&self.root, "usr/bin/ovs-ofctl", &self.scratch).args(["replace-flows", &bridge, &file]).output();
        let output = output.expect("ovs-ofctl");
        self.ask("fdb/flush", &["br0".to_owned()]);
        self.ask("revalidator/purge", &[]);
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// Sets the VLANs of ports, as `ovs-vsctl set port` does.
    pub(super) fn set_vlans(&mut self, ports: &[String]) {
        let database = format!("--db=unix:{}", self.scratch.file("db.sock"));
        let mut command = tool(&self.root, "usr/bin/ovs-vsctl", &self.scratch);
        command.args([&database, "--timeout=20"]);
        for (port, vlans) in (1..).zip(ports) {
            command.args(["--", "clear", "port", &format!("p{port}"), "tag", "trunks", "vlan_mode"]);
            if !vlans.is_empty() {
                command.args(["--", "set", "port", &format!("p{port}")]).args(vlans.split(' '));
            }
        }
        let output = command.output().expect("ovs-vsctl");
        assert!(output.status.success(), "{ports:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Sends frames into a port and returns the frames that leave each port from 1 on.
    pub(super) fn frames(&mut self, port: u16, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
        let mut words = vec![format!("p{port}")];
        words.extend(frames.iter().map(Vec::as_slice).chain([&MARK[..]]).map(hex));
        self.ask("netdev-dummy/receive", &words);
        // Flooded frames leave by the marker port too.
        wait_until("the marker follows all frames", || self.read(LAST).iter().any(|frame| *frame == MARK));
        (1..=PORTS).map(|port| self.read(port)).collect()
    }

    /// Returns frames sent by a port since the last call.
    fn read(&mut self, port: u16) -> Vec<Vec<u8>> {
        let bytes = fs::read(self.scratch.file(&format!("p{port}.pcap"))).expect("a file of a port");
        let read = &mut self.read[usize::from(port)];
        let mut frames = Vec::new();
        while let Some(head) = bytes.get(*read..).and_then(<[u8]>::first_chunk::<16>) {
            let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
            let Some(frame) = bytes.get(*read + 16..*read + 16 + length) else { break };
            frames.push(frame.to_vec());
            *read += 16 + length;
        }
        frames
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn tool(root: &Path, name: &str, scratch: &Scratch) -> Command {
    let mut command = Command::new(root.join(name));
    let folder = scratch.file("");
    for variable in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, folder.trim_end_matches('/'));
    }
    if root != Path::new("/") {
        command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    }
    command.stdin(Stdio::null());
    command
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
