//! Common client programs.

use crate::receive::testbed::{OWN, OWN6, Stage, Way, sound, streams};
use linerate_tests::support::{has_optional_tool, has_tools};
use std::process::Command;

/// Sends a file in parts of many lengths, with pauses, then waits for the peer to close.
const SOCKET: &str = "
import socket, sys, time
data = open(sys.argv[2], 'rb').read()
s = socket.create_connection((sys.argv[1], 5001))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
at, n = 0, 1
while at < len(data):
    s.sendall(data[at:at + n])
    at, n = at + n, n * 7 % 100003 + 1
    if n % 50 == 0: time.sleep(0.001)
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b'', 'nothing is sent back'
";

#[test]
fn data_of_a_socket_and_a_shell_is_in_the_files() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["python3", "bash"])) else { return };
    let data: Vec<u8> = (0..3_000_017_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let (file, script) = (stage.scratch.file("data"), stage.scratch.file("send.py"));
    std::fs::write(&file, &data).expect("a file");
    std::fs::write(&script, SOCKET).expect("a file");
    let shell = format!("exec 3<>/dev/tcp/{OWN}/5001; cat {file} >&3; exec 3>&-");
    let clients: [(&str, &[&str]); 3] =
        [("python3", &[&script, OWN, &file]), ("python3", &[&script, OWN6, &file]), ("bash", &["-c", &shell])];
    for way in [Way::Packet, Way::Bursts] {
        for (program, arguments) in clients {
            let folder = stage.scratch.file(&format!("{way:?}-{program}-{}", arguments[0].len() + arguments.len()));
            let running = stage.receive(&stage.port(way, ""), &["-w", &folder, "--streams", "1"]);
            let client = stage.command("client", program, arguments).spawn().expect(program);
            let report = sound(running.end());
            let output = client.wait_with_output().expect(program);
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(streams(&report), [("complete".to_owned(), data.len() as u64)], "{program}");
            let written = written(&folder);
            assert!(written == [data.clone()], "{program} over {way:?}: other bytes");
            std::fs::remove_dir_all(&folder).expect("a folder");
        }
    }
}

/// Sends a file over eight connections at once with `io.Copy`, for which Go uses sendfile(2).
const GO: &str = r#"
package main

import ("io"; "net"; "os"; "sync")

func send(to, file string) error {
	c, err := net.Dial("tcp", net.JoinHostPort(to, "5001"))
	if err != nil { return err }
	f, err := os.Open(file)
	if err != nil { return err }
	if _, err = io.Copy(c, f); err != nil { return err }
	if err = c.(*net.TCPConn).CloseWrite(); err != nil { return err }
	_, err = io.ReadAll(c)
	return err
}

func main() {
	var all sync.WaitGroup
	for n := 0; n < 8; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := send(os.Args[1], os.Args[2]); err != nil { panic(err) }
		}()
	}
	all.Wait()
}
"#;

#[test]
fn data_sent_by_go_with_sendfile_is_in_the_files() {
    let Some(stage) = Stage::up(true).filter(|_| has_optional_tool("go")) else { return };
    let data: Vec<u8> = (0..5_000_011_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let [file, source, client] = ["data", "main.go", "client"].map(|name| stage.scratch.file(name));
    std::fs::write(&file, &data).expect("a file");
    std::fs::write(&source, GO).expect("a file");
    let build = Command::new("go").args(["build", "-o", &client, &source]).env("GOTOOLCHAIN", "local").output();
    let build = build.expect("go");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let folder = stage.scratch.file("frames");
    let arguments = ["-w", &folder, "--streams", "8", "--frames", "20", "--frame-size", "1MiB"];
    let running = stage.receive(&stage.port(Way::Packet, ""), &arguments);
    stage.exec("client", &client, &[OWN, &file]);
    let report = sound(running.end());
    assert_eq!(streams(&report), vec![("complete".to_owned(), data.len() as u64); 8]);
    assert!(written(&folder).iter().all(|stream| *stream == data), "other bytes");
}

#[test]
fn data_of_netcat_is_in_the_files() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["nc", "sh"])) else { return };
    let data: Vec<u8> = (0..2_000_003_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 17) as u8).collect();
    let file = stage.scratch.file("data");
    std::fs::write(&file, &data).expect("a file");
    for to in [OWN, OWN6] {
        let folder = stage.scratch.file("frames");
        let running = stage.receive(&stage.port(Way::Packet, ""), &["-w", &folder, "--streams", "1"]);
        stage.exec("client", "sh", &["-c", &format!("nc -N {to} 5001 < {file}")]);
        assert_eq!(streams(&sound(running.end())), [("complete".to_owned(), data.len() as u64)]);
        assert!(written(&folder) == [data.clone()], "other bytes");
        std::fs::remove_dir_all(&folder).expect("a folder");
    }
}

#[test]
fn http_upload_is_received_completely() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["curl"])) else { return };
    let file = stage.scratch.file("data");
    std::fs::write(&file, vec![b'u'; 1_000_000]).expect("a file");
    let folder = stage.scratch.file("frames");
    let running = stage.receive(&stage.port(Way::Packet, ""), &["-w", &folder, "--streams", "1"]);
    let to = format!("http://{OWN}:5001/up");
    // Curl gets no answer: it stops after two seconds without progress and closes the connection.
    let patience = ["-m", "40", "--speed-time", "2", "--speed-limit", "1"];
    let arguments = [&["-s", "--noproxy", "*", "-H", "Expect:", "-T", &file, &to], &patience[..]].concat();
    let client = stage.command("client", "curl", &arguments).output();
    assert!(!client.expect("curl").status.success());
    let report = sound(running.end());
    let written = written(&folder);
    assert!(written[0].starts_with(b"PUT /up HTTP/1.1\r\n") && written[0].ends_with(&[b'u'; 1_000_000]), "{report:#}");
}

/// Returns the streams in a folder, without its list.
pub(super) fn written(folder: &str) -> Vec<Vec<u8>> {
    let files = linerate_tests::support::files(std::path::Path::new(folder));
    let streams = files.iter().filter(|file| !file.to_string_lossy().ends_with(".csv"));
    streams.map(|file| std::fs::read(file).expect("a file")).collect()
}
