//! Options of the output of flow records.

use super::super::inputs::{check_distinct, check_output, span};
use crate::exit::usage;
use crate::signals::{is_forced, opening};
use crate::view::terminal::{fail, records as standard_output};
use clap::builder::PossibleValuesParser;
use linerate_engine::flows;
use linerate_export::export::{DeliveryOptions, Observed, Tls};
use linerate_export::ipfix::Profile;
use linerate_export::{Exporter, Format, Options, export};
use linerate_pcap::Compression;
use linerate_port::Spec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROTATE: f64 = 60.0;

/// Options of the output of flow records.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output of flow records")]
pub(crate) struct WriteArgs {
    /// Write records to null (nowhere), - (standard output), a file (its ending is the format: .jsonl, .csv, .parquet,
    /// .log (Zeek, JSON), .tsv (Zeek), .ipfix), a directory DIR/ (by hour), or a collector: ipfix+udp://HOST:4739,
    /// ipfix+tcp:, ipfix+tls:, netflow9+udp://HOST, kafka://HOST:9092/TOPIC, clickhouse://USER@HOST:8123/TABLE (kafka+tls:,
    /// clickhouse+https:, with --ship spool=DIR); repeatable
    #[arg(short = 'w', long, value_name = "null|-|FILE|DIR/|URL", default_value = "null")]
    pub write: Vec<String>,
    /// Format of records, if names do not give it [default: parquet in a directory, else jsonl]
    #[arg(long, value_parser = PossibleValuesParser::new(Format::names()))]
    format: Option<String>,
    /// Compression, if names do not give it by .gz, .zst or .lz4
    #[arg(long, value_parser = PossibleValuesParser::new(["gzip", "zstd", "lz4"]))]
    compress: Option<String>,
    #[command(flatten)]
    pub export: ExportArgs,
}

/// Options of how records are written, of every verb that can.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Start a new file every S seconds; capture files at multiples of S in UTC [default for records: 60]
    #[arg(short = 'G', long, value_name = "S")]
    rotate: Option<f64>,
    /// Add to a directory that has records already
    #[arg(long)]
    append: bool,
    /// IPFIX settings, separated by commas: biflow (both directions in one record), uniflow (one record each), full (all
    /// fields; otherwise those that all collectors read), enterprise=N (of unregistered elements), domain=N, mtu=N
    /// (bytes), rate=N (records per second over UDP) [default for files: biflow,full; for collectors: uniflow]
    #[arg(long, value_name = "WORD,...")]
    ipfix: Option<String>,
    /// kafka:// and clickhouse:// settings, separated by commas: spool=DIR (required: batches wait there on disk),
    /// size=SIZE (of the spool; 4GiB), full=wait|drop-oldest, rows=N and age=S (of a batch), lanes=N (by flow),
    /// sensor=NAME, password=FILE, sasl=plain|scram-sha-256|scram-sha-512 (login to Kafka), window=S (ClickHouse
    /// detects duplicate batches within it; 3000), rowbinary (ClickHouse before 20), end=S (timeout of the last
    /// delivery)
    #[arg(long, value_name = "WORD,...")]
    ship: Option<String>,
    /// PEM files for ipfix+tls://, kafka+tls:// and clickhouse+https://, separated by commas: ca=FILE (trusted CA
    /// bundle [default: the system's]; for a collector: require client certificates signed by it), cert=FILE and
    /// key=FILE (own certificate; a collector needs one)
    #[arg(long, value_name = "WORD,...")]
    tls: Option<String>,
    /// Threads per target that encode Parquet and batches for --ship [default: half of the processors, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    export_threads: Option<u8>,
}

/// Format and compression, where the name of a target does not give them.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteFormat {
    pub format: Option<&'static Format>,
    pub compression: Option<Compression>,
}

impl WriteArgs {
    /// Returns the targets, none for `null`.
    pub(crate) fn targets(&self) -> &[String] {
        if self.write == ["null"] { &[] } else { &self.write }
    }

    /// Returns whether records go to standard output.
    pub(crate) fn is_on_output(&self) -> bool {
        self.write.iter().any(|target| target == "-")
    }

    /// Returns format and compression, as far as options give them.
    pub(crate) fn how(&self) -> WriteFormat {
        let all = [Compression::Gzip, Compression::Zstd, Compression::Lz4];
        let compression =
            self.compress.as_deref().and_then(|name| all.into_iter().find(|compression| compression.name() == name));
        WriteFormat { format: self.format.as_deref().and_then(Format::named), compression }
    }

    /// Refuses targets that cannot be meant: those that are read (`specs`), or two on standard output. `listens`:
    /// exporters connect by TLS.
    pub(crate) fn check(&self, specs: &[Spec], is_csv: bool, listens: bool) -> anyhow::Result<()> {
        let targets = self.targets();
        for (option, is_given) in [("--format", self.format.is_some()), ("--compress", self.compress.is_some())] {
            if targets.is_empty() && is_given {
                return Err(usage(format!("{option} needs --write FILE, DIR/ or -")));
            }
        }
        if targets.iter().any(|target| target == "null") {
            return Err(usage("--write null writes nothing; leave out either it or the other targets"));
        }
        if is_csv && self.is_on_output() {
            return Err(usage("--csv and --write - both use standard output; write records to a file"));
        }
        targets.iter().try_for_each(|target| check_output(specs, target))?;
        self.export.check_listening(targets, self.how(), false, listens)?;
        check_distinct(targets)
    }
}

impl ExportArgs {
    /// Returns the files for TLS.
    pub(crate) fn tls_files(&self) -> anyhow::Result<Tls> {
        let tls = self.tls.as_deref().map(Tls::parse).transpose();
        Ok(tls.map_err(|error| usage(format!("--tls: {error}")))?.unwrap_or_default())
    }

    /// Checks options against the targets before anything is opened; `captures`: capture files are written too.
    pub(crate) fn check(&self, targets: &[String], how: WriteFormat, captures: bool) -> anyhow::Result<()> {
        self.check_listening(targets, how, captures, false)
    }

    /// Does the same; `listens`: exporters connect by TLS.
    pub(crate) fn check_listening(
        &self,
        targets: &[String],
        how: WriteFormat,
        captures: bool,
        listens: bool,
    ) -> anyhow::Result<()> {
        for (option, is_given) in [("--rotate", self.rotate.is_some() && !captures), ("--append", self.append)] {
            if is_given && !targets.iter().any(|target| export::is_folder(target)) {
                return Err(usage(format!("{option} needs --write DIR/")));
            }
        }
        let options = self.options(how)?;
        let is_ipfix = |target: &String| {
            let format = || Format::of_path(target, how.format).map(|(format, _)| format.name);
            export::is_collector(target) && !export::is_shipped(target)
                || !export::is_folder(target) && format().is_ok_and(|name| name == "ipfix")
        };
        let is_in_folder = how.format.is_some_and(|format| format.name == "ipfix");
        if self.ipfix.is_some() && !is_in_folder && !targets.iter().any(is_ipfix) {
            return Err(usage("--ipfix needs an IPFIX target, such as ipfix+udp://HOST:4739"));
        }
        let is_encoded = |target: &String| {
            let format = || Format::of_path(target, how.format).map(|(format, _)| format);
            export::is_shipped(target)
                || !export::is_collector(target)
                    && match export::is_folder(target) {
                        true => !how.format.unwrap_or_else(Format::of_folder).lines,
                        false => format().is_ok_and(|format| !format.lines),
                    }
        };
        if self.tls.is_some() && !targets.iter().any(|target| export::is_secure(target)) && !listens {
            return Err(usage("--tls needs a TLS target, such as ipfix+tls://HOST or kafka+tls://HOST"));
        }
        if self.export_threads.is_some() && !targets.iter().any(is_encoded) {
            return Err(usage("--export-threads needs a Parquet, kafka:// or clickhouse:// target"));
        }
        if self.ship.is_some() && !targets.iter().any(|target| export::is_shipped(target)) {
            return Err(usage("--ship needs a kafka:// or clickhouse:// target"));
        }
        if how.compression.is_some() && targets.iter().all(|target| export::is_collector(target)) {
            return Err(usage("--compress needs a file or directory to write"));
        }
        export::check(targets, &options).map_err(usage)
    }

    fn options(&self, how: WriteFormat) -> anyhow::Result<Options> {
        let rotate = span("--rotate", self.rotate.unwrap_or(ROTATE))?;
        let profile = self.ipfix.as_deref().map(Profile::parse).transpose();
        let profile = profile.map_err(|error| usage(format!("--ipfix: {error}")))?.unwrap_or_default();
        let ship = self.ship.as_deref().map(DeliveryOptions::parse).transpose();
        let ship = ship.map_err(|error| usage(format!("--ship: {error}")))?.unwrap_or_default();
        let WriteFormat { format, compression } = how;
        Ok(Options {
            format,
            compression,
            profile,
            rotate,
            append: self.append,
            threads: self.export_threads.map_or_else(default_threads, usize::from),
            standard_output: Some(standard_output),
            tls: self.tls_files()?,
            ship,
            notify: Some(fail),
            is_forced: Some(is_forced),
            observed: Observed::default(),
        })
    }

    /// Opens the exporters to the targets.
    pub(crate) fn exporters(&self, targets: &[String], how: WriteFormat) -> anyhow::Result<Vec<Box<dyn Exporter>>> {
        self.exporters_of(targets, how, &Arc::default())
    }

    /// Does the same, with the counters of the run for what no record has.
    pub(crate) fn exporters_of(
        &self,
        targets: &[String],
        how: WriteFormat,
        observed: &Arc<flows::UnmeteredCounters>,
    ) -> anyhow::Result<Vec<Box<dyn Exporter>>> {
        let seen = Arc::clone(observed);
        let counters = move || [&seen.lost, &seen.ignored].map(|count| count.load(Ordering::Relaxed));
        let options = Options { observed: Observed(Arc::new(counters)), ..self.options(how)? };
        let mut exporters = Vec::new();
        for target in targets {
            // Standard output is open already, and a collector no file.
            let path = if target == "-" || export::is_collector(target) { "/" } else { target };
            match opening(path, || export::open(&[target], &options)) {
                Ok(opened) => {
                    #[cfg(feature = "serve")]
                    opened.iter().filter_map(|exporter| exporter.lag()).for_each(crate::view::metrics::watch_lag);
                    exporters.extend(opened);
                }
                Err(error) => {
                    export::abandon(exporters);
                    return Err(error.into());
                }
            }
        }
        Ok(exporters)
    }

    /// Returns the enterprise number of our elements.
    pub(crate) fn enterprise(&self) -> anyhow::Result<u32> {
        Ok(self.options(WriteFormat::default())?.profile.enterprise)
    }

    /// Returns the interval of new files in seconds, if given.
    pub(crate) fn rotate(&self) -> Option<f64> {
        self.rotate
    }
}

/// Returns the default number of encoding threads.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).clamp(1, 4))
}
