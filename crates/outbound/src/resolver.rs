//! Name resolution without the addresses that must not receive requests.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

use crate::Allowed;

/// A resolver that returns only allowed addresses. A name without an allowed address is not found.
#[derive(Clone)]
pub struct Resolver {
    inner: GaiResolver,
    allowed: Allowed,
}

impl Resolver {
    pub(crate) fn new(allowed: Allowed) -> Self {
        Self {
            inner: GaiResolver::new(),
            allowed,
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let host = name.as_str().to_owned();
        let found = self.inner.call(name);
        let allowed = self.allowed.clone();
        Box::pin(async move {
            let mut fine = Vec::new();
            let mut refused = None;
            for address in found.await? {
                match allowed.check(&host, address.ip()) {
                    Ok(()) => fine.push(address),
                    Err(error) => refused = Some(error),
                }
            }
            match refused {
                Some(error) if fine.is_empty() => {
                    Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
                }
                _ => Ok(fine.into_iter()),
            }
        })
    }
}
