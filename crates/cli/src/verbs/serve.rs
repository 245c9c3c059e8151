//! `linerate serve`: an HTTP server through which programs and browsers control traffic.

mod files;

use super::generate::answer::packet_port;
use super::generate::preflight;
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::signals::{opening, read_text, stop_on_signals};
use crate::verbs::inputs::{UserArgs, are_live};
use crate::verbs::measure::reset::Helper;
use crate::verbs::report_options::MetricsArgs;
use crate::view::rates::grouped;
use crate::view::terminal::{fail, print_stderr, show, shown};
use anyhow::{Context, bail};
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::text::quoted;
use linerate_burst::{LinkType, input};
use linerate_port::{RxOptions, Spec, TxOptions, TxPort};
use linerate_serve::{Guard, OpenPort, Secure, ServeState, Tester, Token};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Options of `linerate serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # two ports, with the location names p1 and p2
  linerate serve --port p1=eth1 --port p2=eth2
  # a client (pip install snappi):
  #   snappi.api(location='http://:TOKEN@127.0.0.1:8443')
  curl -u :TOKEN http://127.0.0.1:8443/capabilities/version
  # in a browser: open the address that is printed at the start
  # for other hosts, over plain HTTP: only in a trusted network
  linerate serve --port p1=eth1 --listen 0.0.0.0:8443 --token token.txt
  # for clients that use a host name
  linerate serve --port p1=eth1 --listen 0.0.0.0:8443 --name lab.example
  # over HTTPS
  linerate serve --port p1=eth1 --tls-cert lab.pem --tls-key lab.key
The page offers streams with a live check, captures, flows and measurements.
Programs use /api/v1 (docs/serve-api.md), or the Open Traffic Generator API
(docs/otg.md lists the supported parts). Clients can only use the ports given
here, which are opened before privileges are dropped. docs/guide/serve.md starts
with a test of two ports.")]
pub struct Args {
    /// Port that clients can use, and its location name for them; repeatable
    #[arg(long = "port", value_name = "NAME=PORT", required = true, value_parser = named)]
    ports: Vec<(String, Spec)>,
    /// Address and TCP port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Additional host name accepted in requests; repeatable
    #[arg(long = "name", value_name = "HOST", value_parser = host)]
    names: Vec<String>,
    /// Load these streams at the start, stopped: a stream file, generate commands, or a snappi script
    #[arg(long, value_name = "FILE")]
    streams: Option<PathBuf>,
    /// File with the access token in its first line, or none for no token (loopback addresses only)
    /// [default: random, printed at the start]
    #[arg(long, value_name = "FILE")]
    token: Option<String>,
    /// Let clients replay capture files of this directory by name [default: only files that they upload]
    #[arg(long, value_name = "FOLDER")]
    files: Option<PathBuf>,
    /// Shell command that resets the device under test (RFC 2544 reset test); runs with the rights of the user who starts
    /// the server
    #[arg(long, value_name = "COMMAND")]
    reset_with: Option<String>,
    /// Serve HTTPS with this certificate (PEM), followed by its intermediate certificates
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM), readable only by its owner
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Send even if the interface carries the default route
    #[arg(long)]
    yes: bool,
    /// Print errors and the listen address only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Minimum length of a token, so that it cannot be guessed.
const SHORTEST_TOKEN: usize = 16;
/// Maximum number of bytes read of the token file.
const MAX_TOKEN_FILE: u64 = 64 << 10;
/// Link header on top of the MTU: Ethernet with a VLAN tag.
const LINK: usize = 18;

/// Runs `linerate serve` until it is stopped.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (token, streams) = (args.token()?, args.streams()?);
    let secure = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(Secure::new(cert, key).context("--tls-cert, --tls-key")?),
        _ => None,
    };
    let specs: Vec<&Spec> = args.ports.iter().map(|(_, spec)| spec).collect();
    for (index, (name, spec)) in args.ports.iter().enumerate() {
        if args.ports[..index].iter().any(|(other, other_spec)| other == name || other_spec == spec) {
            return Err(usage(format!("--port {name}: duplicate name or port")));
        }
        if REGISTRY.file(spec).is_some() {
            return Err(usage(format!("--port {name}: {spec} is a file; expected an interface")));
        }
        preflight::check_route(spec, args.yes)?;
    }
    if let Some(folder) = args.files.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(usage(format!("--files {}: not a directory", folder.display())));
    }
    // Load the filter library while that is permitted. If it is missing, capture filters report it.
    let _ = linerate_filter::Filter::compile("ip", 1);
    let helper = |command: &String| Helper::start(command).map(Arc::new).context("--reset-with: cannot start a shell");
    let resets = args.reset_with.as_ref().map(helper).transpose()?;
    let identity = args.user.identity(are_live(specs.iter().copied()))?;
    let opened =
        args.ports.iter().map(|(name, spec)| open(name, spec, &identity)).collect::<anyhow::Result<Vec<_>>>()?;
    let listening =
        || format!("--listen {}: cannot listen; is the port in use, or the address not one of this host?", args.listen);
    let listener = TcpListener::bind(args.listen).with_context(listening)?;
    let address = listener.local_addr().with_context(listening)?;
    // Set here, because the system call is not permitted later.
    listener.set_nonblocking(true).with_context(listening)?;
    let seed = u64::from_le_bytes(random()?);
    let session = identity.assume()?.confine(&[]);
    for note in session.notes().iter().filter(|_| !args.quiet) {
        print_stderr(format_args!("{}\n", shown(note)));
    }
    let stop = stop_on_signals(&session)?;
    let tester = Arc::new(Mutex::new(Tester::new(opened, seed).context("cannot start threads for the ports")?));
    if let (Some(path), Some(text)) = (&args.streams, &streams) {
        let set = tester.lock().unwrap_or_else(PoisonError::into_inner).load(text);
        set.map_err(|wrong| usage(format!("--streams {}: {}", path.display(), wrong.lines().join("; "))))?;
    }
    args.announce(address, &token);
    let _metrics = args.metrics.serve(args.quiet);
    let is_quiet = args.quiet;
    let log = move |text: &str| {
        if !is_quiet {
            print_stderr(format_args!("{}\n", shown(text)));
        }
    };
    let guard = Guard::new(token, address, args.names.clone());
    let measurer: Box<dyn linerate_serve::Measurer> = Box::new(super::measure::server::ServedMeasurements { resets });
    let files = files::Files { folder: args.files.clone() };
    let desk = Arc::new(ServeState::new(Arc::clone(&tester), Some(measurer)).reading(Box::new(files)));
    linerate_serve::serve(listener, desk, guard, secure, &stop, log).context("the server failed")?;
    let tester = tester.lock().unwrap_or_else(PoisonError::into_inner);
    tester.stop();
    let mut exit = Exit::Done;
    for (name, sent, received, failure) in tester.totals() {
        show(format_args!("{}: sent {}, received {}\n", shown(&name), grouped(sent), grouped(received)));
        if let Some(failure) = failure {
            fail(shown(&failure));
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

impl Args {
    fn token(&self) -> anyhow::Result<Token> {
        let Some(path) = &self.token else {
            let bytes: [u8; 16] = random()?;
            return Ok(Token::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect()));
        };
        if path == "none" {
            if !self.listen.ip().is_loopback() {
                return Err(usage("--token none needs a loopback address; use --listen 127.0.0.1:8443, or a token"));
            }
            return Ok(Token::None);
        }
        let text = self.token_file(path).with_context(|| format!("--token {path}"))?;
        let line = text.lines().next().unwrap_or_default().trim();
        if line.len() < SHORTEST_TOKEN || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(usage(format!(
                "--token {path}: invalid token in the first line; expected at least {SHORTEST_TOKEN} visible \
                 characters, such as from: openssl rand -hex 16"
            )));
        }
        Ok(Token::Text(line.to_owned()))
    }

    /// Reads the token file, which others must not be able to read, like those of keys and passwords.
    fn token_file(&self, path: &str) -> anyhow::Result<String> {
        let file = opening(path, || input::open(path))?;
        let data = file.metadata()?;
        if data.is_file() && data.mode() & 0o007 != 0 {
            bail!("readable by all users; run chmod 600 {}", quoted(path));
        }
        let mut text = String::new();
        file.take(MAX_TOKEN_FILE).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Reads the file of `--streams`.
    fn streams(&self) -> anyhow::Result<Option<String>> {
        let read =
            |path: &PathBuf| read_text(path).with_context(|| format!("--streams {}: cannot read", path.display()));
        self.streams.as_ref().map(read).transpose()
    }

    /// Prints the listen address, and the token if it is random.
    fn announce(&self, address: SocketAddr, token: &Token) {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        show(format_args!("listening on {scheme}://{address}\n"));
        if let (Token::Text(token), None) = (token, &self.token) {
            show(format_args!("token {token}, URL {scheme}://:{token}@{address}\n"));
            show(format_args!("page {scheme}://{address}/#token={token}\n"));
        } else {
            show(format_args!("page {scheme}://{address}/\n"));
        }
        if !self.quiet && self.tls_cert.is_none() && !address.ip().is_loopback() {
            print_stderr("warning: plain HTTP exposes the token to this network; use --tls-cert and --tls-key\n");
        }
    }
}

/// Opens a port to send and to receive.
fn open(name: &str, spec: &Spec, identity: &Identity) -> anyhow::Result<OpenPort> {
    let found = preflight::interface(spec);
    let link = LinkType::ETHERNET;
    let options = TxOptions { queues: 1, stamped: true, owner: identity.owner(), link };
    let mut tx = open_tx(spec, &options).map_err(|error| identity.explain(error))?;
    let receiving = if REGISTRY.only_sends(spec) { packet_port(spec)? } else { spec.clone() };
    let rx = open_rx(&receiving, &RxOptions { promiscuous: true, lossless: true, ..RxOptions::default() })?;
    let mtu = found.as_ref().map_or(0, |found| found.mtu as usize);
    let longest = tx.queues.iter_mut().filter_map(|queue| queue.live()).map(|live| live.longest()).min();
    let longest = longest.unwrap_or(usize::MAX);
    // Not available for interfaces in other namespaces.
    let is_here = REGISTRY.interface(spec).is_some_and(|at| at.option("netns").is_none());
    let carrier = found.as_ref().filter(|_| is_here).map(|found| format!("/sys/class/net/{}/carrier", found.name));
    let is_up =
        move || carrier.as_ref().is_none_or(|path| !matches!(std::fs::read(path).as_deref(), Ok(b"0\n") | Err(_)));
    Ok(OpenPort {
        name: name.to_owned(),
        spec: spec.to_string(),
        tx,
        rx,
        answers: answers(spec, identity).map_err(|error| format!("{error:#}")),
        line: preflight::line_of(found.as_ref()),
        longest: longest.min(if mtu == 0 { usize::MAX } else { mtu + LINK }),
        is_up: Box::new(is_up),
    })
}

/// Opens the port that sends the answers of devices: a `packet` port of the same interface.
fn answers(spec: &Spec, identity: &Identity) -> anyhow::Result<TxPort> {
    let options = TxOptions { owner: identity.owner(), ..TxOptions::default() };
    open_tx(&packet_port(spec)?, &options).map_err(|error| identity.explain(error))
}

/// Returns cryptographically random bytes.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut bytes).context("/dev/urandom")?;
    Ok(bytes)
}

fn host(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("expected a host name without port and scheme, such as lab.example".to_owned())
    }
}

/// Parses a name and a port; without a name the text of the port is its name.
fn named(text: &str) -> Result<(String, Spec), String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte))
    };
    let (name, spec) = match text.split_once('=') {
        Some((name, spec)) if !name.contains(['?', '@']) => (name, spec),
        _ => (text, text),
    };
    if !is_name(name) {
        return Err("expected NAME=PORT, such as p1=eth1; names consist of letters, digits and -_./:".to_owned());
    }
    Ok((name.to_owned(), Spec::parse(spec).map_err(|error| error.to_string())?))
}
