//! `linerate serve`: other programs drive traffic, and people in a browser, over HTTP.

mod files;

use super::generate::answer::beside;
use super::generate::guard;
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::signals::{opening, read_text, stop_on_signals};
use crate::verbs::inputs::are_live;
use crate::verbs::measure::reset::Helper;
use crate::verbs::show::MetricsArgs;
use crate::view::rates::grouped;
use crate::view::terminal::{fail, show, shown, tell};
use anyhow::{Context, bail};
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::text::quoted;
use linerate_burst::{LinkType, input};
use linerate_engine::Stop;
use linerate_port::{RxOptions, Spec, TxOptions, TxPort};
use linerate_serve::{Desk, Guard, Opened, Secure, Tester, Token};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Options of `linerate serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # two ports; clients name them as locations: p1, p2
  linerate serve --port p1=eth1 --port p2=eth2
  # a client: pip install snappi, then
  #   snappi.api(location='http://:TOKEN@127.0.0.1:8443')
  curl -u :TOKEN http://127.0.0.1:8443/capabilities/version
  # a person: open the page whose address is printed at the start
  # from other hosts too: plain HTTP, so a network that nobody else is in
  linerate serve --port p1=eth1 --listen 0.0.0.0:8443 --token token.txt
  # they call it by a name
  linerate serve --port p1=eth1 --listen 0.0.0.0:8443 --name lab.example
  # by HTTPS, over any network
  linerate serve --port p1=eth1 --tls-cert lab.pem --tls-key lab.key
The page has all in a browser: streams with a live check, captures, flows,
measurements. /api/v1 has the same for programs (docs/serve-api.md), beside the
Open Traffic Generator API (docs/otg.md says what of it is supported).
Only ports named here can be used. They are opened at the start, then rights are
given up. docs/guide/serve.md begins with a test of two ports.")]
pub struct Args {
    /// A port that clients may use, and the location by which they call it; several times
    #[arg(long = "port", value_name = "NAME=PORT", required = true, value_parser = named)]
    ports: Vec<(String, Spec)>,
    /// The address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// A name that clients call this host by, beside its addresses; several times
    #[arg(long = "name", value_name = "HOST", value_parser = host)]
    names: Vec<String>,
    /// Streams that are there from the start, stopped: a stream file, commands, or a snappi script
    #[arg(long, value_name = "FILE")]
    streams: Option<PathBuf>,
    /// A file whose first line clients have to bring; none asks for nothing, on this host alone [default: one that is
    /// drawn and printed]
    #[arg(long, value_name = "FILE")]
    token: Option<String>,
    /// Capture files of this folder may be replayed by their names; without it those that clients bring
    #[arg(long, value_name = "FOLDER")]
    files: Option<PathBuf>,
    /// Resets the device that is measured: a command of the shell, run with the rights of whoever starts the server when a client asks
    /// for the test reset of RFC 2544
    #[arg(long, value_name = "COMMAND")]
    reset_with: Option<String>,
    /// A certificate in PEM, with those between it and its CA behind it: HTTPS in place of HTTP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM, which nobody else may read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Send into the interface of the default route too
    #[arg(long)]
    yes: bool,
    /// Say nothing but errors, and the line that says where it listens
    #[arg(short, long)]
    quiet: bool,
    /// Go on as this user once ports are open (default: whoever called sudo, doas or pkexec; of root at interfaces linerate,
    /// or nobody)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Tokens shorter than this can be tried.
const SHORTEST_TOKEN: usize = 16;
/// Bytes of its file that are read.
const MAX_TOKEN_FILE: u64 = 64 << 10;
/// What a link adds to the MTU: an Ethernet header with a VLAN tag.
const LINK: usize = 18;

/// Serves until it is stopped.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (token, streams) = (args.token()?, args.streams()?);
    let secure = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(Secure::new(cert, key).context("--tls-cert, --tls-key")?),
        _ => None,
    };
    let specs: Vec<&Spec> = args.ports.iter().map(|(_, spec)| spec).collect();
    for (index, (name, spec)) in args.ports.iter().enumerate() {
        if args.ports[..index].iter().any(|(other, other_spec)| other == name || other_spec == spec) {
            return Err(usage(format!("--port {name}: it is there twice")));
        }
        if REGISTRY.file(spec).is_some() {
            return Err(usage(format!("--port {name}: {spec} is a file; a tester sends and receives at interfaces")));
        }
        guard::check_route(spec, args.yes)?;
    }
    if let Some(folder) = args.files.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(usage(format!("--files {}: this is no folder", folder.display())));
    }
    // Loaded while that is allowed: filters of captures are compiled by it. Where there is none they say so.
    let _ = linerate_filter::Filter::compile("ip", 1);
    let helper = |command: &String| Helper::start(command).map(Arc::new).context("--reset-with: there is no shell");
    let resets = args.reset_with.as_ref().map(helper).transpose()?;
    let identity = Identity::choose(args.user.as_deref(), are_live(specs.iter().copied()))?;
    let opened =
        args.ports.iter().map(|(name, spec)| open(name, spec, &identity)).collect::<anyhow::Result<Vec<_>>>()?;
    let listening = || {
        format!("--listen {}: cannot listen there: another program may, or it is no address of this host", args.listen)
    };
    let listener = TcpListener::bind(args.listen).with_context(listening)?;
    let address = listener.local_addr().with_context(listening)?;
    // The call for it is not left to a run.
    listener.set_nonblocking(true).with_context(listening)?;
    let seed = u64::from_le_bytes(random()?);
    for note in identity.assume()?.confine(&[]).into_iter().filter(|_| !args.quiet) {
        tell(format_args!("{}\n", shown(&note)));
    }
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    let tester = Arc::new(Mutex::new(Tester::new(opened, seed).context("cannot start threads for the ports")?));
    if let (Some(path), Some(text)) = (&args.streams, &streams) {
        let set = tester.lock().unwrap_or_else(PoisonError::into_inner).load(text);
        set.map_err(|wrong| usage(format!("--streams {}: {}", path.display(), wrong.lines().join("; "))))?;
    }
    args.announce(address, &token);
    let _told = args.metrics.tell(args.quiet);
    let is_quiet = args.quiet;
    let told = move |text: &str| {
        if !is_quiet {
            tell(format_args!("{}\n", shown(text)));
        }
    };
    let guard = Guard::new(token, address, args.names.clone());
    let measurer: Box<dyn linerate_serve::Measurer> = Box::new(super::measure::served::Served { resets });
    let files = files::Files { folder: args.files.clone() };
    let desk = Arc::new(Desk::new(Arc::clone(&tester), Some(measurer)).reading(Box::new(files)));
    linerate_serve::serve(listener, desk, guard, secure, &stop, told).context("the server ended")?;
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
                return Err(usage("--token none is for this host alone: listen on 127.0.0.1, or give a token"));
            }
            return Ok(Token::None);
        }
        let text = self.token_file(path).with_context(|| format!("--token {path}"))?;
        let line = text.lines().next().unwrap_or_default().trim();
        if line.len() < SHORTEST_TOKEN || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(usage(format!(
                "--token {path}: the first line is the token, {SHORTEST_TOKEN} visible characters or more, as made by: \
                 openssl rand -hex 16"
            )));
        }
        Ok(Token::Text(line.to_owned()))
    }

    /// The text of the token file, which others may not read: as those of keys and passwords.
    fn token_file(&self, path: &str) -> anyhow::Result<String> {
        let file = opening(path, || input::open(path))?;
        let data = file.metadata()?;
        if data.is_file() && data.mode() & 0o007 != 0 {
            bail!("anybody may read it: chmod 600 {}", quoted(path));
        }
        let mut text = String::new();
        file.take(MAX_TOKEN_FILE).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The text of the streams that are there from the start.
    fn streams(&self) -> anyhow::Result<Option<String>> {
        let read =
            |path: &PathBuf| read_text(path).with_context(|| format!("--streams {}: cannot be read", path.display()));
        self.streams.as_ref().map(read).transpose()
    }

    /// Where it listens, and what a client has to say.
    fn announce(&self, address: SocketAddr, token: &Token) {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        show(format_args!("listening on {scheme}://{address}\n"));
        if let (Token::Text(token), None) = (token, &self.token) {
            show(format_args!("token {token}, as in {scheme}://:{token}@{address}\n"));
            show(format_args!("page {scheme}://{address}/#token={token}\n"));
        } else {
            show(format_args!("page {scheme}://{address}/\n"));
        }
        if !self.quiet && self.tls_cert.is_none() && !address.ip().is_loopback() {
            tell("plain HTTP: whoever can read the network can read the token\n");
        }
    }
}

/// Opens a port to send and to receive.
fn open(name: &str, spec: &Spec, identity: &Identity) -> anyhow::Result<Opened> {
    let found = guard::interface(spec);
    let link = LinkType::ETHERNET;
    let options = TxOptions { queues: 1, stamped: true, owner: identity.owner(), link };
    let mut tx = open_tx(spec, &options).map_err(|error| identity.explain(error))?;
    let receiving = if REGISTRY.only_sends(spec) { beside(spec)? } else { spec.clone() };
    let rx = open_rx(&receiving, &RxOptions { promiscuous: true, lossless: true, ..RxOptions::default() })?;
    let mtu = found.as_ref().map_or(0, |found| found.mtu as usize);
    let longest = tx.queues.iter_mut().filter_map(|queue| queue.live()).map(|live| live.longest()).min();
    let longest = longest.unwrap_or(usize::MAX);
    // Of interfaces in other namespaces this says nothing.
    let is_here = REGISTRY.interface(spec).is_some_and(|at| at.option("netns").is_none());
    let carrier = found.as_ref().filter(|_| is_here).map(|found| format!("/sys/class/net/{}/carrier", found.name));
    let is_up =
        move || carrier.as_ref().is_none_or(|path| !matches!(std::fs::read(path).as_deref(), Ok(b"0\n") | Err(_)));
    Ok(Opened {
        name: name.to_owned(),
        spec: spec.to_string(),
        tx,
        rx,
        answers: answers(spec, identity).map_err(|error| format!("{error:#}")),
        line: guard::line_of(found.as_ref()),
        longest: longest.min(if mtu == 0 { usize::MAX } else { mtu + LINK }),
        is_up: Box::new(is_up),
    })
}

/// The port that answers of devices leave by: beside the one that sends, where that is an interface.
fn answers(spec: &Spec, identity: &Identity) -> anyhow::Result<TxPort> {
    let options = TxOptions { owner: identity.owner(), ..TxOptions::default() };
    open_tx(&beside(spec)?, &options).map_err(|error| identity.explain(error))
}

/// Bytes that nobody can know.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut bytes).context("/dev/urandom")?;
    Ok(bytes)
}

/// A name of a host.
fn host(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("a name of this host, as in lab.example; no port, no scheme".to_owned())
    }
}

/// A name, and a port; the port's own text is its name where none is given.
fn named(text: &str) -> Result<(String, Spec), String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte))
    };
    let (name, spec) = match text.split_once('=') {
        Some((name, spec)) if !name.contains(['?', '@']) => (name, spec),
        _ => (text, text),
    };
    if !is_name(name) {
        return Err("write NAME=PORT, as in p1=eth1; a name has letters, digits and -_./: ".to_owned());
    }
    Ok((name.to_owned(), Spec::parse(spec).map_err(|error| error.to_string())?))
}
