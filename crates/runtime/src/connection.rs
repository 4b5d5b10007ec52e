//! Connections to an API server instead of kube's connections, for two reasons. kube leaves Nagle's algorithm on: data written
//! right after the handshake waits for the acknowledgement of the other side, which Linux delays by 40 ms. A session
//! opens its own connection, and so does each of many simultaneous requests. And kube rejects a server with a certificate
//! that is itself a root of the kubeconfig.

use std::sync::Arc;

use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::rt::{Read, Write};
use hyper_rustls::{
    DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName,
};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody, RustlsTlsError};
use kube::{Client, Config};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tower::util::BoxService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use crate::roots::Roots;

type Connected = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Creates a client with connections that send at once, through the proxy that `config` names, if any. The client
/// does not retry requests, regardless of `config`: kube would repeat a request up to 15 times, with pauses of up to
/// 1,000 s.
///
/// # Errors
/// When the configuration is not valid for a client, such as for an unreadable certificate.
pub fn connect(config: Config) -> kube::Result<Client> {
    Ok(connecting(&config)?.build())
}

/// Does the same as [`connect`], for a caller that adds layers to the client.
pub(crate) fn connecting(config: &Config) -> kube::Result<ClientBuilder<Connected>> {
    let tls = Arc::new(tls_config(config)?);
    let mut sockets = HttpConnector::new();
    sockets.enforce_http(false);
    sockets.set_nodelay(true);
    let Some(proxy) = &config.proxy_url else {
        return through(sockets, config, tls);
    };
    let unsupported = || kube::Error::ProxyProtocolUnsupported {
        proxy_url: Box::new(proxy.clone()),
    };
    // The matcher separates the credentials from the address. The proxy is for every destination.
    let matcher = Matcher::builder().all(proxy.to_string()).build();
    let found = matcher.intercept(&Uri::from_static("https://kubernetes"));
    let found = found.ok_or_else(unsupported)?;
    let address = found.uri().clone();
    match proxy.scheme_str() {
        Some("http" | "https") => {
            let mut tunnel =
                Tunnel::new(address, HttpsConnector::from((sockets, Arc::clone(&tls))));
            if let Some(credentials) = found.basic_auth() {
                tunnel = tunnel.with_auth(credentials.clone());
            }
            through(tunnel, config, tls)
        }
        Some("socks5") => {
            let mut tunnel = SocksV5::new(address, sockets);
            if let Some((user, password)) = found.raw_auth() {
                tunnel = tunnel.with_auth(user.to_owned(), password.to_owned());
            }
            through(tunnel, config, tls)
        }
        _ => Err(unsupported()),
    }
}

/// Returns the TLS of a client: the certificate of its user, and the verification of the API server's certificate.
pub(crate) fn tls_config(config: &Config) -> kube::Result<ClientConfig> {
    // The provider may be installed already.
    #[cfg(feature = "aws-lc-rs")]
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut tls = config.rustls_client_config()?;
    // The roots of a service account are in a file that changes; kube's verifier reads it again.
    let fixed = config.root_cert_file.is_none() && !config.accept_invalid_certs;
    let roots = config
        .root_cert
        .as_deref()
        .filter(|roots| !roots.is_empty());
    if let Some(roots) = roots.filter(|_| fixed) {
        let roots = Roots::new(roots, tls.crypto_provider()).map_err(kube::Error::RustlsTls)?;
        tls.dangerous().set_certificate_verifier(Arc::new(roots));
    }
    Ok(tls)
}

/// Creates a client whose connections to the API server, or to its proxy, are those of `connector`.
fn through<C>(
    connector: C,
    config: &Config,
    tls: Arc<ClientConfig>,
) -> kube::Result<ClientBuilder<Connected>>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let name: Arc<dyn ResolveServerName + Send + Sync> = match &config.tls_server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone());
            let name = name.map_err(RustlsTlsError::InvalidServerName);
            Arc::new(FixedServerNameResolver::new(
                name.map_err(kube::Error::RustlsTls)?,
            ))
        }
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    let connector = HttpsConnector::new(connector, tls, false, name);
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build::<_, Body>(connector))
        .map_response(|response| {
            response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
        });
    Ok(ClientBuilder::new(
        service.boxed(),
        config.default_namespace.clone(),
    ))
}
