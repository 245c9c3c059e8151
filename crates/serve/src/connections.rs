//! Limits of the number of connections and of the time in which a client must read.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Maximum number of connections.
const ALL: usize = 64;
/// Maximum per client.
const OF_ONE: usize = 16;
/// Maximum for the local host: its programs and tunnels share one address, and leave room for one other client.
const OF_HOST: usize = ALL - OF_ONE;

/// Open connections per client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Slot of a connection, freed on drop.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Connections,
    address: IpAddr,
}

/// Returns the client of an address: for IPv6 the /64 network (RFC 4291, section 2.5.4), for the local host all of
/// 127/8.
pub(crate) fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

impl Connections {
    /// Takes a slot, if one is free.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<Connection> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = client(address);
        let own = open.get(&address).copied().unwrap_or(0);
        let most = if address.is_loopback() { OF_HOST } else { OF_ONE };
        if open.values().sum::<usize>() >= ALL || own >= most {
            return None;
        }
        open.insert(address, own + 1);
        Some(Connection { all: self.clone(), address })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.address) {
            *own -= 1;
        }
        open.retain(|_, own| *own > 0);
    }
}

/// Connection that fails with a timeout if the peer does not read.
pub(crate) struct TimedStream<S> {
    inside: S,
    limit: Duration,
    /// Deadline of a blocked write.
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    /// Wraps a connection with a write timeout.
    pub(crate) fn new(inside: S, limit: Duration) -> Self {
        TimedStream { inside, limit, late: None }
    }

    fn bound<T>(&mut self, polled: Poll<Result<T>>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if polled.is_ready() {
            self.late = None;
            return polled;
        }
        let limit = self.limit;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "client does not read the answer")))
    }
}

impl<S: Read + Unpin> Read for TimedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inside).poll_read(context, into)
    }
}

impl<S: Write + Unpin> Write for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let polled = Pin::new(&mut self.inside).poll_write(context, bytes);
        self.bound(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = Pin::new(&mut self.inside).poll_flush(context);
        self.bound(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = Pin::new(&mut self.inside).poll_shutdown(context);
        self.bound(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn one_address_leaves_room_for_others() {
        let (all, address) = (Connections::default(), |last| IpAddr::from([10, 0, 0, last]));
        let mut open: Vec<Connection> = (0..OF_ONE).map(|_| all.enter(address(1)).unwrap()).collect();
        assert!(all.enter(address(1)).is_none() && all.enter("::ffff:10.0.0.1".parse().unwrap()).is_none());
        open.pop();
        open.push(all.enter(address(1)).unwrap());
        let host = |last| IpAddr::from([127, 0, 0, last]);
        open.extend((0..OF_HOST).map(|last| all.enter(host(last as u8 + 1)).unwrap()));
        assert!(all.enter(address(2)).is_none());
        open.drain(..OF_ONE);
        assert!(all.enter(host(1)).is_none() && all.enter("::1".parse().unwrap()).is_none(), "others have room");
        drop(open);
        // A /64 network is one client.
        let network = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, last, last, last, last]);
        let open: Vec<Connection> = (0..OF_ONE).map(|last| all.enter(network(last as u16)).unwrap()).collect();
        assert!(all.enter(network(999)).is_none());
        all.enter("2001:db8:0:1::1".parse().unwrap()).unwrap();
        drop(open);
        assert!(all.0.lock().unwrap().is_empty());
    }

    /// Peer that reads a number of bytes and no more.
    struct Full(usize);

    impl Write for Full {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn clients_that_do_not_read_are_disconnected() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut taking = TimedStream::new(Full(100), Duration::from_millis(20));
        let mut write = || runtime.block_on(poll_fn(|context| Pin::new(&mut taking).poll_write(context, &[0; 60])));
        assert_eq!((write().unwrap(), write().unwrap()), (60, 40));
        assert_eq!(write().unwrap_err().kind(), ErrorKind::TimedOut);
        let mut shut = || runtime.block_on(poll_fn(|context| Pin::new(&mut taking).poll_shutdown(context)));
        assert_eq!(shut().unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
