//! Streams whose frames the port generates.

use super::control::{Control, SenderControl};
use super::watch::WatchWriter;
use super::{StreamRun, StreamsReport, listeners};
use crate::clock;
use crate::sender::Sender;
use linerate_generate::StreamEvent;
use linerate_port::{LiveControl, TxPort};

/// Runs the port's generator, and passes commands to it.
pub(super) fn run(
    port: TxPort,
    live: &dyn LiveControl,
    streams: usize,
    run: &StreamRun,
    control: Option<&Control>,
) -> StreamsReport {
    let mut listener = listeners(control, 1).pop().flatten();
    let mut sender = Sender::new(vec![port], run.limits());
    let mut showing = run.watch.show(streams);
    let failure = sender.run_live(live, || {
        if let Some(listener) = &mut listener {
            serve_control(listener, live, &mut showing, streams);
        }
        let now = clock::now();
        if showing.is_asked(now) {
            showing.show(&live.made(), now);
        }
    });
    if let Some(listener) = &mut listener {
        serve_control(listener, live, &mut showing, streams);
    }
    let (made, progress) = (live.made(), live.progress());
    showing.publish_blocking(&made);
    let mut report = StreamsReport::new(streams);
    report.add(&sender.finish(0), &made, failure.err());
    report.behind = (progress.late_max, progress.late_mean);
    (report.late, report.timing.shifted) = (progress.late, progress.shifted);
    report
}

/// Passes commands to the port, and applied ones back to their controllers.
fn serve_control(listener: &mut SenderControl, live: &dyn LiveControl, showing: &mut WatchWriter, streams: usize) {
    let elapsed = u64::try_from(live.elapsed().as_nanos()).unwrap_or(u64::MAX);
    listener.receive(elapsed, |command| live.command(&command));
    let done = live.done();
    let mut sent = vec![0; streams];
    for begun in done.begun {
        sent[begun.stream as usize] = begun.made;
        let (stream, number) = (begun.stream, begun.number);
        listener.report([StreamEvent::Begun { stream, number }].into_iter(), &sent);
    }
    if !done.ended.is_empty() {
        listener.report(done.ended.into_iter().map(|stream| StreamEvent::Ended { stream }), &sent);
    }
    if listener.has_applied(done.commands) {
        // Totals are published before the command is reported as applied.
        showing.publish_blocking(&live.made());
        listener.publish(done.commands, done.until);
    }
}
