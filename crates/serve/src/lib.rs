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
//! - [`tester`]: ports, configuration, flows and their figures; [`listen`]: reception at a port; [`capture`]: captured
//!   frames; `devices`: emulated devices;
//! - [`api`]: handlers of paths, [`own`]: those below `/api/v1`; `page`: files of the web page;
//! - [`recordings`]: recordings for replay by streams;
//! - [`desk`]: shared state; `history`: the last ten minutes; [`measuring`]: a measurement, run by the caller's
//!   measurer; [`top`]: flows of a port;
//! - [`http`]: the server; [`guard`]: authorisation; `strangers`: rejected clients; `connections`: limits of number and
//!   time;
//! - [`scrape`](mod@scrape): separate server with pages of counters and state, for any run.
//!
//! # Authorisation
//!
//! There are no cookies, and no headers that let pages of other origins read answers. Each request must name this host
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
pub mod desk;
mod devices;
pub mod guard;
mod history;
pub mod http;
pub mod listen;
pub mod measuring;
pub mod own;
mod page;
mod port;
mod rates;
pub mod recordings;
mod running;
pub mod scrape;
mod secure;
mod strangers;
pub mod tester;
pub mod top;

pub use desk::ServeState;
pub use guard::{Guard, Token};
pub use http::serve;
pub use measuring::{Bench, Measurer};
pub use port::OpenPort;
pub use scrape::{Reply, ScrapeListener, scrape};
pub use secure::Secure;
pub use tester::Tester;
