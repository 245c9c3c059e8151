//! Measurement that runs next to the server: one at a time, at ports of the tester.
//!
//! The methods and the format of reports are not part of the server: the caller provides a [`Measurer`].

use crate::tester::{DirectionResult, Tester, TrialDirection, TrialObserver, run_trial};
use linerate_engine::Stop;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Runs measurements.
pub trait Measurer: Send + Sync {
    /// Returns the duration of a measurement that this document requests: an object with `seconds` and `tests`.
    ///
    /// # Errors
    /// The document is invalid.
    fn estimate(&self, asked: &Value) -> Result<Value, String>;

    /// Runs a measurement; `notify` receives the report after each trial, as JSON and as HTML.
    ///
    /// # Errors
    /// The cause of the failure.
    fn measure(
        &self,
        asked: &Value,
        bench: &Bench,
        notify: &mut (dyn FnMut(String, String) + Send),
    ) -> Result<(), String>;
}

/// Environment of trials.
pub struct Bench {
    tester: Arc<Mutex<Tester>>,
    /// Stop request: no further trial starts.
    pub stop: Stop,
}

impl Bench {
    /// Runs a trial; `observer` runs in parallel and is joined.
    ///
    /// # Errors
    /// The trial could not be run.
    pub fn trial(
        &self,
        ways: &[TrialDirection],
        quiet: Duration,
        observer: Option<TrialObserver<'_>>,
    ) -> Result<Vec<DirectionResult>, String> {
        run_trial(&self.tester, ways, quiet, &self.stop, observer)
    }

    /// Returns the specification of a port, as given at the start of the server.
    pub fn spec_of(&self, port: &str) -> String {
        self.tester.lock().unwrap_or_else(PoisonError::into_inner).spec_of(port)
    }

    /// Returns the line rate of a port in bits per second, if known.
    pub fn line_of(&self, port: &str) -> Option<f64> {
        self.tester.lock().unwrap_or_else(PoisonError::into_inner).line_of(port)
    }
}

/// State of the measurement.
pub(crate) struct MeasurementState {
    measurer: Option<Arc<dyn Measurer>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_running: bool,
    number: u64,
    asked: Value,
    estimate: Value,
    began: Option<Instant>,
    seconds: f64,
    failure: Option<String>,
    /// Report, as JSON and as HTML.
    report: (String, String),
    stop: Option<Stop>,
}

impl MeasurementState {
    pub(crate) fn new(measurer: Option<Box<dyn Measurer>>) -> Self {
        MeasurementState { measurer: measurer.map(Arc::from), state: Arc::default() }
    }

    /// Returns whether a measurement is running.
    pub(crate) fn is_running(&self) -> bool {
        self.state().is_running
    }

    /// Returns the progress.
    pub(crate) fn brief(&self) -> Value {
        let state = self.state();
        let seconds = if state.is_running {
            state.began.map_or(0.0, |began| began.elapsed().as_secs_f64())
        } else {
            state.seconds
        };
        json!({
            "is_running": state.is_running, "number": state.number, "seconds": seconds, "estimate": state.estimate,
            "failure": state.failure, "has_report": !state.report.0.is_empty(), "length": state.report.0.len()
        })
    }

    /// Returns request, progress and report so far, as text.
    pub(crate) fn whole(&self) -> String {
        let brief = self.brief();
        let state = self.state();
        let report = if state.report.0.is_empty() { "null" } else { &state.report.0 };
        format!("{{\"asked\":{},\"state\":{brief},\"report\":{report}}}", state.asked)
    }

    /// Returns the report as JSON or HTML.
    pub(crate) fn report(&self, is_html: bool) -> Option<String> {
        let state = self.state();
        let text = if is_html { &state.report.1 } else { &state.report.0 };
        (!text.is_empty()).then(|| text.clone())
    }

    /// Returns the estimated duration.
    pub(crate) fn estimate(&self, asked: &Value) -> Result<Value, (u16, String)> {
        self.measurer()?.estimate(asked).map_err(|wrong| (400, wrong))
    }

    /// Starts a measurement.
    pub(crate) fn begin(&self, tester: &Arc<Mutex<Tester>>, asked: &Value) -> Result<(), (u16, String)> {
        let measurer = Arc::clone(self.measurer()?);
        let estimate = measurer.estimate(asked).map_err(|wrong| (400, wrong))?;
        let mut state = self.state();
        if state.is_running {
            return Err((409, "a measurement is already running".to_owned()));
        }
        let stop = Stop::new();
        *state = State {
            is_running: true,
            number: state.number + 1,
            asked: asked.clone(),
            estimate,
            began: Some(Instant::now()),
            stop: Some(stop.clone()),
            ..State::default()
        };
        let (shared, asked, bench) =
            (Arc::clone(&self.state), asked.clone(), Bench { tester: Arc::clone(tester), stop });
        let thread = Builder::new().name("measure".into()).spawn(move || {
            let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
            let measure = || measurer.measure(&asked, &bench, &mut |json, html| lock().report = (json, html));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(measure));
            let mut state = lock();
            state.failure = result.unwrap_or_else(|_| Err("internal error (a bug)".to_owned())).err();
            state.seconds = state.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
            (state.is_running, state.stop) = (false, None);
        });
        thread.map(drop).map_err(|error| {
            state.is_running = false;
            (503, format!("cannot start a thread: {error}"))
        })
    }

    /// Stops the measurement; results so far are kept.
    pub(crate) fn stop(&self) {
        if let Some(stop) = &self.state().stop {
            stop.request();
        }
    }

    fn measurer(&self) -> Result<&Arc<dyn Measurer>, (u16, String)> {
        self.measurer.as_ref().ok_or_else(|| (501, "measurements are not supported here".to_owned()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
