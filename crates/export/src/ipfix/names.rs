//! Decoding of names found in payload. 0 and empty texts stand for absent values.

use crate::fields::names;
use linerate_meter::Names;
use linerate_meter::names::http::Request;
use linerate_meter::names::quic;
use linerate_meter::names::tls::{self, ClientHello, ServerHello};
use linerate_meter::names::value::{Dns, Http, Tls, sanitise};

/// Returns the index in [`names`] of the field for an element of another enterprise, if any.
pub(super) fn place_of(enterprise: u32, element: u16) -> Option<u8> {
    let place = names().iter().position(|field| field.elements(0).any(|known| known == (enterprise, element)))?;
    u8::try_from(place).ok()
}

/// Sets the value of a field.
pub(super) fn set(names: &mut Names, path: &str, value: &[u8]) {
    let number = value.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let text = || Some(sanitise(value)).filter(|text| !text.is_empty());
    if value.iter().all(|byte| *byte == 0) {
        return;
    }
    match path {
        "tls.server_name" => client(names).server_name = text(),
        "tls.alpn" => client(names).alpn = text(),
        "tls.client_version" => client(names).version = tls::version_named(&sanitise(value)),
        "tls.ja4" => client(names).ja4 = sanitise(value),
        // RFC 7011, 6.1.5: 1 is true.
        "tls.ech" if number == 1 => client(names).ech = true,
        "tls.version" => server(names).version = tls::version_named(&sanitise(value)),
        "tls.cipher" => server(names).cipher = number as u16,
        "tls.server_alpn" => server(names).alpn = text(),
        "quic.version" => names.quic = quic::version_named(&sanitise(value)),
        "dns.query" => dns(names).name = text(),
        "dns.qtype" => dns(names).kind = number as u16,
        "dns.rcode" => dns(names).rcode = Some(number as u8),
        "dns.answers" => {
            let dns = dns(names);
            (dns.rcode, dns.answers) = (dns.rcode.or(Some(0)), Some(number as u16));
        }
        "dns.addresses" => dns(names).addresses = text(),
        "http.method" => request(names).method = sanitise(value),
        "http.host" => request(names).host = text(),
        "http.target" => request(names).target = sanitise(value),
        "http.user_agent" => request(names).user_agent = text(),
        "http.status" => http(names).status = Some(number as u16),
        "resp.resolved" => names.resolved[0] = text().map(Into::into),
        "ssh.client" | "ssh.server" => {
            names.ssh.get_or_insert_default()[usize::from(path == "ssh.server")] = text();
        }
        _ => {}
    }
}

fn tls(names: &mut Names) -> &mut Tls {
    names.tls.get_or_insert_default()
}

pub(crate) fn client(names: &mut Names) -> &mut ClientHello {
    tls(names).client.get_or_insert_default()
}

pub(crate) fn server(names: &mut Names) -> &mut ServerHello {
    tls(names).server.get_or_insert_default()
}

pub(crate) fn dns(names: &mut Names) -> &mut Dns {
    names.dns.get_or_insert_default()
}

pub(crate) fn http(names: &mut Names) -> &mut Http {
    names.http.get_or_insert_default()
}

pub(crate) fn request(names: &mut Names) -> &mut Request {
    http(names).request.get_or_insert_default()
}
