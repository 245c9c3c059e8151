//! HTTP server that controls traffic at its ports: the Open Traffic Generator API, an API of its own, and a web page.
//!
//! ```text
//!  client ── http: authorisation, limits ──> api: path, document ──> tester ──> Transmitter (one thread per port)
//!            (hyper, one thread)             (answers on its own     │    └──> Listener    (one thread per port)
//!                                             thread)                └ crate otg: meaning of documents
//! ```
//!
//! Frames never pass the server: ports have their own threads, which publish counters and receive commands. Locking the
//! account of a port (`Listener::reception`) blocks its receiver, so locks are held for one row at a time.
//!
//! - [`tester`]: ports, configuration, flows and their figures; [`reception`]: reception at a port; [`capture`]: captured
//!   frames; `devices`: emulated devices;
//! - [`api`]: handlers of paths, [`native_api`]: those below `/api/v1`; `page`: files of the web page;
//! - [`recordings`]: recordings for replay by streams;
//! - [`state`]: shared state; `history`: the last ten minutes; [`measurement`]: a measurement, run by the caller's
//!   measurer; [`top`]: flows of a port;
//! - [`http`]: the server; [`guard`]: authorisation; `rejected_clients`: rejected clients; `connections`: limits of number and
//!   time;
//! - [`scrape`](mod@scrape): separate server with pages of counters and state, for any run.
//!
//! # Authorisation
//!
//! Cookies are not used, nor headers that let pages of other origins read answers. Each request must name this host
//! by an address or host name (against DNS rebinding), have no other `Origin`, and send the token, as a bearer or as a
//! password in the URL. JSON must be `application/json`, which no HTML form can send. Limits apply to bodies, to the
//! values in them before parsing, to the time of headers and to the number of connections.
//!
//! The files of the page hold no secret and need no token: the page sends it from then on, taken from the fragment of
//! its URL, which reaches no server and no log. It puts names and payloads only into text nodes.
//!
//! hyper is used directly: a dozen paths need no router, and it has a timeout for headers.
#![forbid(unsafe_code)]

pub mod api;
pub mod capture;
mod connections;
mod devices;
pub mod guard;
mod history;
pub mod http;
pub mod measurement;
pub mod native_api;
mod page;
mod port;
mod rates;
pub mod reception;
pub mod recordings;
mod rejected_clients;
mod running_flow;
pub mod scrape;
mod secure;
pub mod state;
pub mod tester;
pub mod top;

pub use guard::{Guard, Token};
pub use http::serve;
pub use measurement::{Bench, Measurer};
pub use port::OpenPort;
pub use scrape::{Reply, ScrapeListener, scrape};
pub use secure::Secure;
pub use state::ServeState;
pub use tester::Tester;
