//! The layer of the API client that removes managed fields from every response.

use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use super::Strip;

/// The layer that removes managed fields from every response in JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripLayer;

impl<S> Layer<S> for StripLayer {
    type Service = Stripped<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Stripped(inner)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Stripped<S>(S);

impl<S, B> Service<Request<Body>> for Stripped<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Whole>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Whole>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        async move { answer.await.map(stripped) }.boxed()
    }
}

/// A body of one type, regardless of its original type.
type Whole = UnsyncBoxBody<Bytes, BoxError>;

fn stripped<B>(answer: Response<B>) -> Response<Whole>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let content = answer.headers().get(header::CONTENT_TYPE);
    // Logs and the data of upgraded connections stay unchanged.
    let json = content.is_some_and(|content| content.as_bytes().starts_with(b"application/json"));
    let mut strip = json.then(Strip::default);
    answer.map(|body| {
        let body = body.map_frame(move |frame| {
            frame.map_data(|data: Bytes| match &mut strip {
                Some(strip) => Bytes::from(strip.push(&data)),
                None => data,
            })
        });
        body.map_err(Into::into).boxed_unsync()
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn deeply_nested_managed_fields_do_not_break_client() {
        let fields = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        let pod = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a","managedFields":[{{"manager":"m","fieldsV1":{{"f:a":{fields}}}}}]}}}}"#
        );
        let server = service_fn(move |_: Request<Body>| {
            let pod = pod.clone();
            async move {
                let answer = Response::builder().header(header::CONTENT_TYPE, "application/json");
                Ok::<_, Infallible>(answer.body(Body::from(pod.into_bytes())).unwrap())
            }
        });
        let plain = kube::Client::new(server.clone(), "default");
        assert!(
            Api::<Pod>::default_namespaced(plain)
                .get("a")
                .await
                .is_err()
        );
        let client = kube::Client::new(StripLayer.layer(server), "default");
        let pod = Api::<Pod>::default_namespaced(client)
            .get("a")
            .await
            .unwrap();
        assert_eq!(pod.metadata.managed_fields, None);
    }
}
