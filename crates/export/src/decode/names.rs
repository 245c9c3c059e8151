//! Setters of names found in payload.

use super::{Setter, Value};
use crate::ipfix::names::{client, dns, http, request, server};
use linerate_meter::names::{quic, tls};
use linerate_meter::{Flow, Names};
use std::sync::Arc;

/// Like [`set`](super::set), for names.
pub(super) fn of_names(path: &str) -> Option<Setter> {
    fn names(flow: &mut Flow) -> &mut Names {
        Arc::make_mut(flow.names.get_or_insert_default())
    }
    fn text(value: Value<'_>) -> Box<str> {
        value.text().into()
    }
    Some(match path {
        "tls.server_name" => |flow, _, value| client(names(flow)).server_name = Some(text(value)),
        "tls.alpn" => |flow, _, value| client(names(flow)).alpn = Some(text(value)),
        "tls.client_version" => |flow, _, value| client(names(flow)).version = tls::version_named(value.text()),
        "tls.ja4" => |flow, _, value| client(names(flow)).ja4 = text(value),
        "tls.ech" => |flow, _, value| client(names(flow)).ech = value.is(),
        "tls.version" => |flow, _, value| server(names(flow)).version = tls::version_named(value.text()),
        "tls.cipher" => |flow, _, value| server(names(flow)).cipher = value.small(),
        "tls.server_alpn" => |flow, _, value| server(names(flow)).alpn = Some(text(value)),
        "quic.version" => |flow, _, value| names(flow).quic = quic::version_named(value.text()),
        "dns.query" => |flow, _, value| dns(names(flow)).name = Some(text(value)),
        "dns.qtype" => |flow, _, value| dns(names(flow)).kind = value.small(),
        "dns.rcode" => |flow, _, value| dns(names(flow)).rcode = Some(value.small()),
        "dns.answers" => |flow, _, value| dns(names(flow)).answers = Some(value.small()),
        "dns.addresses" => |flow, _, value| dns(names(flow)).addresses = Some(text(value)),
        "http.method" => |flow, _, value| request(names(flow)).method = text(value),
        "http.host" => |flow, _, value| request(names(flow)).host = Some(text(value)),
        "http.target" => |flow, _, value| request(names(flow)).target = text(value),
        "http.user_agent" => |flow, _, value| request(names(flow)).user_agent = Some(text(value)),
        "http.status" => |flow, _, value| http(names(flow)).status = Some(value.small()),
        "resp.resolved" => |flow, _, value| names(flow).resolved[0] = Some(value.text().into()),
        "ssh.client" => |flow, _, value| names(flow).ssh.get_or_insert_default()[0] = Some(text(value)),
        "ssh.server" => |flow, _, value| names(flow).ssh.get_or_insert_default()[1] = Some(text(value)),
        _ => return None,
    })
}
