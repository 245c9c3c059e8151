//! Programs that do the same job: a row each, with the package to install, the arguments, and how the result is read.

use anyhow::{Context, ensure};
use linerate_backends::dpdk::trusted;
use linerate_cli::view::terminal::{print_stderr, shown};
use linerate_lab::TemporaryLab;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longest run of a program.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// One run of a peer.
#[derive(Default)]
pub(crate) struct Job {
    pub inputs: Vec<PathBuf>,
    pub output: PathBuf,
    pub frames: u64,
    /// Frames of the input file, which is repeated.
    pub held: u64,
    /// UDP port of a collector at 127.0.0.1.
    pub port: u16,
}

/// A program that does the same job.
pub(crate) struct Peer {
    pub program: &'static str,
    /// Debian package.
    package: &'static str,
    /// Words of the command: `{input}`, `{output}`, `{frames}`, `{loops}` and `{port}` are replaced.
    arguments: &'static str,
    /// Packet count in the text that it prints at its end.
    pub count: fn(&str) -> Option<u64>,
}

/// A program that handles all packets and then exits.
const fn whole(program: &'static str, package: &'static str, arguments: &'static str) -> Peer {
    Peer { program, package, arguments, count: |_| None }
}

/// Ring memory is 128 MiB, as ours. Another user than root could not write to /dev/null as tcpdump opens it.
pub(crate) const TCPDUMP: Peer = Peer {
    count: |text| text.lines().find_map(|line| line.strip_suffix(" packets captured")?.trim().parse().ok()),
    ..whole("tcpdump", "tcpdump", "-Z root -i eth0 -n -B 131072 -w {output}")
};
/// Prints `Packets received/dropped on interface 'eth0': 8000000/0 (...)`.
pub(crate) const DUMPCAP: Peer = Peer {
    count: |text| {
        let line = text.lines().find(|line| line.starts_with("Packets received/dropped"))?;
        line.rsplit_once(": ")?.1.split('/').next()?.parse().ok()
    },
    ..whole("dumpcap", "wireshark-common", "-q -P -i eth0 -B 128 -w {output}")
};
pub(crate) const MERGECAP: Peer = whole("mergecap", "wireshark-common", "-F nsecpcap -w {output} {input}");
/// One process, which bypasses the queueing discipline by itself.
pub(crate) const TRAFGEN: Peer = whole("trafgen", "netsniff-ng", "--dev eth0 --cpus 1 --num {frames} --conf {input}");
pub(crate) const TCPREPLAY: Peer = whole(
    "tcpreplay",
    "tcpreplay",
    "--topspeed --preload-pcap --quiet --intf1 eth0 --loop {loops} --limit {frames} {input}",
);
pub(crate) const TCPREPLAY_FASTER: Peer =
    whole("tcpreplay", "tcpreplay", "--quiet --preload-pcap --intf1=eth0 --multiplier=10 {input}");
pub(crate) const FLOW_METERS: [Peer; 3] = [
    whole("nfpcapd", "nfdump", "-r {input} -w {output}"),
    whole("softflowd", "softflowd", "-d -m 2000000 -r {input} -n 127.0.0.1:{port}"),
    whole("argus", "argus-server", "-r {input} -w {output}/argus"),
];

impl Peer {
    /// Returns true if it is installed; reports once that it is not.
    pub(crate) fn is_installed(&self) -> bool {
        let is_installed = find(self.program).is_some();
        if !is_installed {
            missing(self.program, &format!("apt install {}", self.package));
        }
        is_installed
    }

    /// The command of a job, in a host of a lab if there is one.
    pub(crate) fn command(&self, lab: Option<(&TemporaryLab, &str)>, job: &Job) -> anyhow::Result<Command> {
        let program = find(self.program).with_context(|| format!("{}: not installed", self.program))?;
        let mut command = match lab {
            Some((lab, host)) => lab.exec(host, &program)?,
            None => Command::new(&program),
        };
        if let Some(folder) = UNPACKED.as_ref().filter(|folder| program.starts_with(folder)) {
            command.env("LD_LIBRARY_PATH", folder.join("usr/lib/x86_64-linux-gnu"));
        }
        for word in self.arguments.split(' ') {
            if word == "{input}" {
                command.args(&job.inputs);
                continue;
            }
            let (frames, loops) = (job.frames.to_string(), job.frames.div_ceil(job.held.max(1)).to_string());
            let word = word.replace("{frames}", &frames).replace("{loops}", &loops);
            let word = word.replace("{port}", &job.port.to_string());
            let mut text = OsString::new();
            for (index, part) in word.split("{output}").enumerate() {
                if index > 0 {
                    text.push(&job.output);
                }
                text.push(part);
            }
            command.arg(text);
        }
        Ok(command)
    }
}

/// Reports once that a peer is not there.
pub(crate) fn missing(program: &str, remedy: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if REPORTED.lock().is_ok_and(|mut reported| reported.insert(program.to_owned())) {
        print_stderr(format_args!("{program}: not installed ({remedy})\n"));
    }
}

/// Runs a program to its end; returns its run time, or `None` if it was stopped after [`PATIENCE`].
pub(crate) fn run(command: &mut Command) -> anyhow::Result<Option<f64>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let piped = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = piped.spawn().with_context(|| name.clone())?;
    let mut errors = child.stderr.take();
    let errors = thread::spawn(move || {
        let mut text = String::new();
        errors.as_mut().map(|errors| errors.read_to_string(&mut text));
        text
    });
    loop {
        if let Some(status) = child.try_wait()? {
            let seconds = started.elapsed().as_secs_f64();
            ensure!(status.success(), "{name} failed ({status}): {}", errors.join().unwrap_or_default().trim());
            return Ok(Some(seconds));
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Folder of programs that scripts/peers unpacked, next to the folder of this program. Root runs them, so that only root may be
/// able to write there.
static UNPACKED: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let folder = std::env::current_exe().ok()?.parent()?.parent()?.join("peers");
    folder.is_dir().then_some(())?;
    if let Err(reason) = trusted(&folder) {
        print_stderr(format_args!(
            "{}: its programs are not run: {}\n",
            shown(&folder.display().to_string()),
            shown(&reason)
        ));
        return None;
    }
    Some(folder)
});

/// Path of a program.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = UNPACKED.iter().flat_map(|folder| ["usr/bin", "usr/sbin"].map(|part| folder.join(part)));
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(system).chain(unpacked);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file: &PathBuf| Path::is_file(file)))
}
