//! An HTTP server that drives traffic at the ports that it was started with: the Open Traffic Generator API, one of its own beside it,
//! and a page for a browser.
//!
//! ```text
//!  client ── http: who may ask, how much, how long ──> api: a path, a document ──> tester ──> Transmitter (a thread a port)
//!            (hyper, one thread)                       (answers in a thread of     │    └──> Listener    (a thread a port)
//!                                                       its own)                   └ crate otg: what a document means
//! ```
//!
//! Frames never meet the server: ports have threads of their own, whose counters are read, and which commands are handed to. Whoever
//! holds a port's account (`Listener::heard`) holds up its receiver, so it is held for a row at a time.
//!
//! - [`tester`]: ports, configuration, flows and their figures; [`listen`]: what comes at a port; [`capture`]: what is kept of it; `devices`: who answers there;
//! - [`api`]: what each path does, [`own`]: those below `/api/v1`; `page`: what a browser is handed;
//! - [`recordings`]: what streams replay;
//! - [`desk`]: what connections share; `history`: the last ten minutes; [`measuring`]: a measurement beside all that, which somebody else makes; [`top`]: flows of a port;
//! - [`http`]: the server; [`guard`]: who may ask; `strangers`: who may not; `connections`: how many, and how slow;
//! - [`scrape`](mod@scrape): beside all that, pages of counters and of what goes on, of any run.
//!
//! # Who may ask
//!
//! There are no cookies, and no headers that let pages of other origins read answers. Each request names this host by an address or a
//! name of it (against DNS rebinding), has no `Origin` but that, and brings the token, as a bearer or as the password that clients put
//! into an address. JSON comes as `application/json` alone, which no form of a page can send. Bodies are bounded, and the values in
//! them before they are read, and so are headers in time and connections in number.
//!
//! What a browser is handed at first holds no secret and needs no token: the page brings it from then on, out of the fragment of its
//! address, which reaches no server and no log. It puts names and payloads into text nodes alone.
//!
//! hyper is used as it is: a dozen paths need no router, and the time that headers may take is its own setting.
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

pub use desk::Desk;
pub use guard::{Guard, Token};
pub use http::serve;
pub use measuring::{Bench, Measurer};
pub use port::Opened;
pub use scrape::{Door, Reply, scrape};
pub use secure::Secure;
pub use tester::Tester;
