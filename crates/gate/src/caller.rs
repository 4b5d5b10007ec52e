//! The user of a request: the headers of the API server count if the API server has sent them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use oz_admission::{ClientAuthority, ClientCertificate};
use oz_api::Requester;
use oz_gating::front_proxy::{CONFIG_MAP, FrontProxy, NAMESPACE};
use oz_runtime::{Clock, Feeds, Kind, Selection, Store};
use parking_lot::Mutex;

use crate::answer::Refused;

/// Identifies users by the headers of the API server.
pub(crate) struct Callers {
    config: Store<ConfigMap>,
    clock: Arc<dyn Clock>,
    /// The configuration that was read, with the version of its ConfigMap.
    read: Mutex<Option<(Option<String>, Arc<Trusted>)>>,
}

struct Trusted {
    proxy: FrontProxy,
    authority: ClientAuthority,
}

impl Callers {
    /// Watches the ConfigMap with the trusted authority.
    pub(crate) fn new(feeds: &Feeds, clock: Arc<dyn Clock>) -> Self {
        let named = Selection::with_name(CONFIG_MAP);
        Self {
            config: feeds.store_in(&Kind::from_type::<ConfigMap>(), NAMESPACE, named),
            clock,
            read: Mutex::default(),
        }
    }

    /// Returns the user of a request.
    pub(crate) fn identify<B>(&self, request: &Request<B>) -> Result<Requester, Refused> {
        let trusted = self.trusted()?;
        let shown = request.extensions().get::<Arc<ClientCertificate>>();
        let shown = shown.ok_or_else(|| Refused::unknown("no client certificate was presented"))?;
        let proven = trusted.authority.verify(shown, self.clock.now());
        proven.map_err(|why| Refused::unknown(&why.to_string()))?;
        let headers: &HeaderMap = request.headers();
        let user = trusted.proxy.user(|name| {
            let values = headers.get_all(name).iter();
            values.map(axum::http::HeaderValue::as_bytes).collect()
        });
        user.ok_or_else(|| Refused::unknown("it names no user, or several"))
    }

    /// Returns the configuration of the current ConfigMap.
    fn trusted(&self) -> Result<Arc<Trusted>, Refused> {
        let not_known = |why: String| Refused::unavailable("FrontProxyUnknown", why);
        let Some(map) = self.config.get(Some(NAMESPACE), CONFIG_MAP) else {
            let why = format!("ConfigMap {NAMESPACE}/{CONFIG_MAP} was not read yet");
            return Err(not_known(why));
        };
        let version = map.metadata.resource_version.clone();
        let mut read = self.read.lock();
        if let Some((_, trusted)) = read
            .as_ref()
            .filter(|(of, _)| of.is_some() && *of == version)
        {
            return Ok(Arc::clone(trusted));
        }
        let empty = BTreeMap::new();
        let data = map.data.as_ref().unwrap_or(&empty);
        let proxy = FrontProxy::read(data).map_err(|error| not_known(error.to_string()))?;
        let authority = ClientAuthority::new(proxy.authorities.as_bytes(), proxy.names.clone())
            .map_err(|why| {
                not_known(format!(
                    "requestheader-client-ca-file cannot be used: {why}"
                ))
            })?;
        let trusted = Arc::new(Trusted { proxy, authority });
        *read = Some((version, Arc::clone(&trusted)));
        Ok(trusted)
    }
}
