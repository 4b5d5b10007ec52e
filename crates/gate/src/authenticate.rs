//! The authentication of a request: the headers of the API server count if the API server has sent them. Requests about
//! open sessions also come from other replicas, with the user that the replica has authenticated.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use oz_admission::{ClientAuthority, ClientCertificate};
use oz_api::Requester;
use oz_core::access::seal::Keys;
use oz_gating::front_proxy::{CONFIG_MAP, FrontProxy, NAMESPACE};
use oz_gating::peer;
use oz_runtime::{Clock, Feeds, Kind, Selection, Store};
use parking_lot::Mutex;

use crate::answer::Refused;

/// The caller of the gate.
pub(crate) struct Caller {
    pub(crate) user: Requester,
    /// True if another replica sends the request, which has authorized it.
    pub(crate) is_replica: bool,
}

/// The authenticator of the [module](self).
pub(crate) struct Authenticator {
    config: Store<ConfigMap>,
    /// The keys that open peer tokens.
    keys: Keys,
    clock: Arc<dyn Clock>,
    /// The configuration that was read, with the version of its ConfigMap.
    read: Mutex<Option<(Option<String>, Arc<Trusted>)>>,
}

struct Trusted {
    proxy: FrontProxy,
    authority: ClientAuthority,
}

impl Authenticator {
    /// Watches the ConfigMap with the trusted authority.
    pub(crate) fn new(feeds: &Feeds, keys: Keys, clock: Arc<dyn Clock>) -> Self {
        let named = Selection::with_name(CONFIG_MAP);
        Self {
            config: feeds.store_in(&Kind::from_type::<ConfigMap>(), NAMESPACE, named),
            keys,
            clock,
            read: Mutex::default(),
        }
    }

    /// Returns the caller: as the API server authenticated it, or, for requests about open sessions only, as another
    /// replica did.
    pub(crate) fn authenticate(&self, request: &Request) -> Result<Caller, Refused> {
        let word = request.headers().get(peer::HEADER);
        // The API server passes on any header of a client: a peer token from there is not from a replica.
        let direct = request
            .extensions()
            .get::<Arc<ClientCertificate>>()
            .is_none();
        let Some(word) = word.filter(|_| direct) else {
            return Ok(Caller {
                user: self.identify(request)?,
                is_replica: false,
            });
        };
        let user = word.to_str().ok().and_then(|word| {
            let (method, now) = (request.method().as_str(), self.clock.now());
            peer::Word::open(&self.keys, word, method, target(request), now)
        });
        let unknown = || Refused::unknown("the peer token of another replica does not permit this");
        Ok(Caller {
            user: user.ok_or_else(unknown)?,
            is_replica: true,
        })
    }

    /// Returns the user of a request from the API server.
    fn identify(&self, request: &Request) -> Result<Requester, Refused> {
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

/// Returns the path and query of a request.
pub(crate) fn target(request: &Request) -> &str {
    let target = request.uri().path_and_query();
    target.map_or_else(|| request.uri().path(), |target| target.as_str())
}
