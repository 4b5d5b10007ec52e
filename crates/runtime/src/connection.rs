//! Connections to an API server. kube's own connections leave Nagle's algorithm on: data written right after the
//! handshake waits for the acknowledgement of the other side, which Linux delays by 40 ms. A session opens its own
//! connection, and so does each of many simultaneous requests.

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

/// Creates a client with connections that send at once, unless `config` names a proxy. The client does not
/// retry requests, regardless of `config`.
///
/// # Errors
/// When the configuration is not valid for a client, such as for an unreadable certificate.
pub fn connect(config: Config) -> kube::Result<Client> {
    Ok(connecting(config)?.build())
}

/// Does the same as [`connect`], for a caller that adds layers to the client.
pub(crate) fn connecting(mut config: Config) -> kube::Result<ClientBuilder<Connected>> {
    // kube would repeat a request up to 15 times, with pauses of up to 1,000 s.
    config.default_retry = false;
    if config.proxy_url.is_some() {
        return ClientBuilder::try_from(config);
    }
    // The provider may be installed already.
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
