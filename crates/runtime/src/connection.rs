//! Connections to an API server. kube's own leave Nagle's algorithm on: what is written right after the handshake waits
//! for the other side to say that it has read that, which Linux puts off for 40 ms. A session opens a connection of its
//! own, and so does each of many requests at once.

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use kube::{Client, Config};
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

type Connected = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// A client whose connections send at once, as far as `config` names no proxy. It repeats nothing by itself,
/// whatever `config` says.
///
/// # Errors
/// When the configuration does not make a client, such as for an unreadable certificate.
pub fn connect(config: Config) -> kube::Result<Client> {
    Ok(connecting(config)?.build())
}

/// The same, for one that has more to do with each request.
pub(crate) fn connecting(mut config: Config) -> kube::Result<ClientBuilder<Connected>> {
    // kube would repeat a request up to 15 times, with pauses of up to 1,000 s.
    config.default_retry = false;
    if config.proxy_url.is_some() {
        return ClientBuilder::try_from(config);
    }
    // Whoever comes second finds one chosen.
    #[cfg(feature = "aws-lc-rs")]
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut sockets = HttpConnector::new();
    sockets.enforce_http(false);
    sockets.set_nodelay(true);
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(sockets)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build(connector))
        .map_response(|response| {
            response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
        });
    Ok(ClientBuilder::new(
        service.boxed(),
        config.default_namespace,
    ))
}
