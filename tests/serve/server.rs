//! A server on both ends of a link, and raw requests.

use super::openapi::compare;
use linerate_tests::support::may_make_labs;
use linerate_tests::support::program::{Ended, Running, start};
use linerate_tests::support::wire::Wire;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ChildStdout;
use std::time::Duration;

/// Server with ports p1 and p2, joined by a link.
pub(super) struct Server {
    pub running: Option<Running>,
    pub address: String,
    pub token: String,
    /// Output of the program after its first lines.
    pub output: Option<BufReader<ChildStdout>>,
    pub wire: Wire,
}

impl Server {
    /// Starts a server; prints a note and returns `None` where labs cannot be created.
    pub(super) fn start() -> Option<Self> {
        Self::with("", "", &[])
    }

    /// Does the same with a scheme prefix and options of port p2, and with options of the server.
    pub(super) fn with(scheme: &str, options: &str, more: &[&str]) -> Option<Self> {
        if !may_make_labs() {
            return None;
        }
        let wire = Wire::new();
        let (p1, p2) = (wire.port("a", "eth0", ""), wire.port("b", "eth0", options));
        Some(Self::of(wire, [p1, format!("{scheme}{p2}")], more))
    }

    /// Starts a server on a link, with ports of these backends.
    pub(super) fn on(wire: Wire, schemes: [&str; 2]) -> Self {
        let port = |place: usize, host| wire.port(host, "eth0", "").replace("packet:", &format!("{}:", schemes[place]));
        let ports = [port(0, "a"), port(1, "b")];
        Self::of(wire, ports, &[])
    }

    fn of(wire: Wire, [p1, p2]: [String; 2], more: &[&str]) -> Self {
        let (p1, p2) = (format!("--port=p1={p1}"), format!("--port=p2={p2}"));
        let mut running = start(&[&["serve", &p1, &p2, "--listen", "127.0.0.1:0"], more].concat());
        let mut output = BufReader::new(running.take_output().unwrap());
        let mut line = || (&mut output).lines().next().expect("a line").unwrap();
        let address = line().strip_prefix("listening on http://").expect("the listening address").to_owned();
        let token = line().split([' ', ',']).nth(1).expect("a token").to_owned();
        Server { running: Some(running), address, token, output: Some(output), wire }
    }

    /// Returns the location in the form that snappi takes.
    pub(super) fn location(&self) -> String {
        format!("http://:{}@{}", self.token, self.address)
    }

    /// Sends bytes and returns everything received until the server closes the connection.
    pub(super) fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The server may reject the request before all of it is sent.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends an authorised request and returns status and document; a successful one must match the description.
    pub(super) fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let given = body;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n",
            self.address,
            self.token,
            body.len()
        );
        let answer = self.raw(&[head.as_bytes(), body].concat());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let document: Value = serde_json::from_str(body).unwrap_or_default();
        if status == 200 {
            compare(method, path, given, &document);
        }
        (status, document)
    }

    /// Posts a document, which must succeed.
    pub(super) fn post(&self, path: &str, document: &Value) -> Value {
        let (status, answer) = self.ask("POST", path, document.to_string().as_bytes());
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Starts a flow of 1,000 frames per second from p1 to p2.
    pub(super) fn send(&self) {
        self.post(
            "/config",
            &json!({
                "ports": [{"name": "p1"}, {"name": "p2"}],
                "flows": [{
                    "name": "f1", "tx_rx": {"choice": "port", "port": {"tx_name": "p1", "rx_names": ["p2"]}},
                    "packet": [{"choice": "ethernet", "ethernet": {}}, {"choice": "ipv4", "ipv4": {}}, {"choice": "udp", "udp": {}}],
                    "size": {"fixed": 100}, "metrics": {"enable": true, "loss": true}
                }]
            }),
        );
        self.post("/control/state", &json!({"choice": "traffic", "traffic": {"flow_transmit": {"state": "start"}}}));
    }

    /// Returns the row of that flow.
    pub(super) fn flow(&self) -> Value {
        let rows = self.post("/monitor/metrics", &json!({"choice": "flow", "flow": {"flow_names": ["f1"]}}));
        rows["flow_metrics"][0].clone()
    }

    /// Stops the flow.
    pub(super) fn stop(&self) {
        self.post("/control/state", &json!({"choice": "traffic", "traffic": {"flow_transmit": {"state": "stop"}}}));
    }

    /// Stops the program.
    pub(super) fn end(mut self) -> Ended {
        self.running.take().unwrap().interrupt()
    }
}
