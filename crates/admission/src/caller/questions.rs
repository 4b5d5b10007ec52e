//! The limit of calls to the API server for reviews of unproven callers. Any client that reaches the port
//! can send reviews, and each call loads the API server and reveals information to the sender.

use std::{sync::Arc, time::Instant};

use axum::http::{Method, Request, Response, StatusCode, header};
use kube::{
    client::{Body, Client},
    core::Status,
};
use parking_lot::Mutex;

/// The burst and the rate per second of reads, which a decision about a connection requires.
const READS: (f64, f64) = (200.0, 10.0);
/// The burst and the rate per second of all other calls, such as access reviews of users.
const OTHERS: (f64, f64) = (60.0, 1.0);

/// Creates the client for unproven callers: calls beyond the budget fail with 429, and are not sent.
pub(crate) fn limited(client: &Client) -> Client {
    let budgets = Arc::new(Budgets::default());
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, budgets) = (inner.clone(), Arc::clone(&budgets));
        async move {
            if budgets.take(request.method(), Instant::now()) {
                return inner.send(request).await;
            }
            Ok(too_many())
        }
    });
    Client::new(service, namespace)
}

fn too_many() -> Response<Body> {
    let code = StatusCode::TOO_MANY_REQUESTS;
    let message = "reviews of callers that are not known as API servers send too many requests; \
                   try again in some seconds";
    let status = Status::failure(message, "TooManyRequests").with_code(code.as_u16());
    let text = serde_json::to_vec(&status).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[derive(Debug)]
struct Budgets {
    reads: Mutex<Bucket>,
    others: Mutex<Bucket>,
}

impl Default for Budgets {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            reads: Mutex::new(Bucket::new(READS, now)),
            others: Mutex::new(Bucket::new(OTHERS, now)),
        }
    }
}

impl Budgets {
    fn take(&self, method: &Method, now: Instant) -> bool {
        let bucket = match *method {
            Method::GET | Method::HEAD => &self.reads,
            _ => &self.others,
        };
        let mut bucket = bucket.lock();
        bucket.take(now)
    }
}

/// A budget that refills.
#[derive(Debug)]
struct Bucket {
    most: f64,
    per_second: f64,
    left: f64,
    since: Instant,
}

impl Bucket {
    fn new((most, per_second): (f64, f64), now: Instant) -> Self {
        Self {
            most,
            per_second,
            left: most,
            since: now,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = passed.mul_add(self.per_second, self.left).min(self.most);
        self.since = now;
        let takes = self.left >= 1.0;
        if takes {
            self.left -= 1.0;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::{
        authorization::v1::SubjectAccessReview,
        core::v1::{Namespace, Pod},
    };
    use kube::{Api, api::PostParams};

    use super::*;
    use crate::testing;

    #[test]
    fn budgets_refill_and_reads_take_nothing_from_others() {
        let budgets = Budgets::default();
        let now = Instant::now();
        let taken = |method: &Method, at: Instant| {
            let taken = (0..1_000).filter(|_| budgets.take(method, at));
            taken.count()
        };
        assert_eq!(taken(&Method::GET, now), 200);
        assert_eq!(taken(&Method::POST, now), 60);
        assert_eq!(taken(&Method::POST, now + Duration::from_secs(4)), 4);
        assert_eq!(taken(&Method::GET, now + Duration::from_secs(1)), 10);
    }

    #[tokio::test]
    async fn question_beyond_the_budget_is_answered_with_429_and_not_asked() {
        let (client, asked) = testing::client();
        let client = limited(&client);
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let parameters = PostParams::default();
        let asked_about = SubjectAccessReview::default();
        for _ in 0..100 {
            let _ = reviews.create(&parameters, &asked_about).await;
        }
        assert_eq!(asked.all().len(), 60);
        let answer = reviews.create(&parameters, &asked_about).await;
        let Err(kube::Error::Api(status)) = answer else {
            panic!("it was answered")
        };
        assert_eq!(status.code, 429);
        let read = Api::<Pod>::namespaced(client.clone(), "shop")
            .get_opt("web")
            .await;
        assert_eq!(read.unwrap(), None);
        assert_eq!(
            Api::<Namespace>::all(client).get_opt("shop").await.unwrap(),
            None
        );
    }
}
