//! A measurement that runs beside the server: one at a time, at ports of the tester.
//!
//! What is measured, and how a report looks, is nothing that a server knows: whoever starts it brings a [`Measurer`].

use crate::tester::{Beside, Came, Tester, Way, run_trial};
use linerate_engine::Stop;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Makes measurements.
pub trait Measurer: Send + Sync {
    /// How long a measurement will take, of which this document says what is asked for: an object with `seconds` and `tests`.
    ///
    /// # Errors
    /// What is wrong with the document.
    fn estimate(&self, asked: &Value) -> Result<Value, String>;

    /// Measures; `tell` gets the report after each trial, as JSON and as HTML.
    ///
    /// # Errors
    /// What went wrong.
    fn measure(
        &self,
        asked: &Value,
        bench: &Bench,
        tell: &mut (dyn FnMut(String, String) + Send),
    ) -> Result<(), String>;
}

/// Where trials are made.
pub struct Bench {
    tester: Arc<Mutex<Tester>>,
    /// Asked for, nothing more is begun.
    pub stop: Stop,
}

impl Bench {
    /// Makes a trial; `beside` goes on beside it, and is waited for.
    ///
    /// # Errors
    /// Why it could not be made.
    pub fn trial(&self, ways: &[Way], quiet: Duration, beside: Option<Beside<'_>>) -> Result<Vec<Came>, String> {
        run_trial(&self.tester, ways, quiet, &self.stop, beside)
    }

    /// What a port is, as whoever started the server wrote it.
    pub fn spec_of(&self, port: &str) -> String {
        self.tester.lock().unwrap_or_else(PoisonError::into_inner).spec_of(port)
    }

    /// Bits per second of the line of a port, where they are known.
    pub fn line_of(&self, port: &str) -> Option<f64> {
        self.tester.lock().unwrap_or_else(PoisonError::into_inner).line_of(port)
    }
}

/// The measurement, if there is one.
pub(crate) struct Measuring {
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
    /// The report, as JSON and as HTML.
    report: (String, String),
    stop: Option<Stop>,
}

impl Measuring {
    pub(crate) fn new(measurer: Option<Box<dyn Measurer>>) -> Self {
        Measuring { measurer: measurer.map(Arc::from), state: Arc::default() }
    }

    /// Whether one runs.
    pub(crate) fn is_running(&self) -> bool {
        self.state().is_running
    }

    /// How far it is.
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

    /// What was asked for, how far it is, and the report so far, as text.
    pub(crate) fn whole(&self) -> String {
        let brief = self.brief();
        let state = self.state();
        let report = if state.report.0.is_empty() { "null" } else { &state.report.0 };
        format!("{{\"asked\":{},\"state\":{brief},\"report\":{report}}}", state.asked)
    }

    /// The report as JSON, or as HTML.
    pub(crate) fn report(&self, is_html: bool) -> Option<String> {
        let state = self.state();
        let text = if is_html { &state.report.1 } else { &state.report.0 };
        (!text.is_empty()).then(|| text.clone())
    }

    /// How long it would take.
    pub(crate) fn estimate(&self, asked: &Value) -> Result<Value, (u16, String)> {
        self.measurer()?.estimate(asked).map_err(|wrong| (400, wrong))
    }

    /// Begins one.
    pub(crate) fn begin(&self, tester: &Arc<Mutex<Tester>>, asked: &Value) -> Result<(), (u16, String)> {
        let measurer = Arc::clone(self.measurer()?);
        let estimate = measurer.estimate(asked).map_err(|wrong| (400, wrong))?;
        let mut state = self.state();
        if state.is_running {
            return Err((409, "a measurement is running already".to_owned()));
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
            state.failure = result.unwrap_or_else(|_| Err("it went wrong here: a bug".to_owned())).err();
            state.seconds = state.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
            (state.is_running, state.stop) = (false, None);
        });
        thread.map(drop).map_err(|error| {
            state.is_running = false;
            (503, format!("there can be no more threads: {error}"))
        })
    }

    /// Ends it, with what is known by then.
    pub(crate) fn stop(&self) {
        if let Some(stop) = &self.state().stop {
            stop.request();
        }
    }

    fn measurer(&self) -> Result<&Arc<dyn Measurer>, (u16, String)> {
        self.measurer.as_ref().ok_or_else(|| (501, "nothing can be measured here".to_owned()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
