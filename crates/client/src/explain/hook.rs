//! A server that is called for the functions behind HTTP, in place of the hosts that composites name.

use http::header::CONTENT_TYPE;
use http::{Request, Uri};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::core::ObjectMeta;
use kube::{Client, Config};
use oz_composites::declared::Call;
use oz_composites::protocol::Answer;
use oz_composites::related::{self, Rule};
use oz_composites::{AnswerError, Called};
use oz_core::controller::Failure as CoreFailure;
use serde_json::Value;
use tokio::time::timeout;

use crate::failure::{Failure, Result};

/// The maximum size of a response, in bytes: that of the operator.
const MAX_ANSWER: usize = 8 << 20;

/// A server for the functions behind HTTP.
pub(crate) struct Hook {
    client: Client,
    address: String,
}

impl Hook {
    /// Returns the server at HOST:PORT.
    ///
    /// # Errors
    /// The text is no address.
    pub(crate) fn at(address: &str) -> Result<Self> {
        let invalid = |why: &dyn std::fmt::Display| {
            Failure::new(format!("{address} is not the address of a hook: {why}"))
                .next("write HOST:PORT, such as localhost:8080")
        };
        let url: Uri = format!("http://{address}")
            .parse()
            .map_err(|error| invalid(&error))?;
        let client = Client::try_from(Config::new(url)).map_err(|error| invalid(&error))?;
        let address = address.to_owned();
        Ok(Self { client, address })
    }

    /// Calls a function for the children of a parent.
    pub(crate) async fn call(&self, call: &Call, request: &Value) -> Result<Called, CoreFailure> {
        let read = |response: &Value| Answer::read(response, call.strict);
        Ok(Called {
            answer: self.read(call, request, read).await?,
            ahead: Vec::new(),
            look_again: None,
            policy: None,
        })
    }

    /// Calls a function for the related objects of a parent.
    pub(crate) async fn rules(
        &self,
        call: &Call,
        request: &Value,
        parent: &ObjectMeta,
    ) -> Result<Vec<Rule>, CoreFailure> {
        let read = |response: &Value| related::rules(response, call.version, parent);
        self.read(call, request, read).await
    }

    async fn read<T>(
        &self,
        call: &Call,
        request: &Value,
        read: impl FnOnce(&Value) -> Result<T, AnswerError>,
    ) -> Result<T, CoreFailure> {
        let (url, address) = (&call.url, &self.address);
        let what = |why: String| format!("failed to ask {url} at {address}: {why}");
        let response = timeout(call.timeout, self.ask(url, request)).await;
        let response = response.unwrap_or_else(|_| Err("it does not respond".to_owned()));
        let failed = |why| CoreFailure::transient("HookFailed", what(why));
        read(&response.map_err(failed)?).map_err(|error| {
            let message = what(format!("its response {error}"));
            CoreFailure::invalid("ResponseInvalid", message)
        })
    }

    async fn ask(&self, url: &str, request: &Value) -> Result<Value, String> {
        let url: Uri = url.parse().map_err(|error| format!("{error}"))?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(request.to_string().into_bytes()))
            .map_err(|error| error.to_string())?;
        let response = self.client.send(request).await;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        if status != http::StatusCode::OK {
            return Err(format!("the server responded {status}, not 200"));
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect();
        let body = body.await.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| format!("the response is not JSON: {error}"))
    }
}
