//! Conversion requests without a cluster.

use serde_json::{Value, json};

use crate::manager::Manager;

/// A conversion request, as the API server sends it.
///
/// ```
/// # use oz_admission::{Conversion, Endpoint, Manager, convert_fn, testing};
/// # use serde_json::json;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let same = Conversion::new("widgets.example.com", convert_fn(|_, widget, _| Ok(widget)));
/// let manager = Manager::builder(testing::client().0, "acme")
///     .endpoint(Endpoint::Url("https://hooks.example.com".into()))
///     .conversion(same)
///     .build()?;
/// let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
/// let answer = testing::ConversionRequest::to("example.com/v2")
///     .object(&widget)
///     .send(&manager, "widgets.example.com")
///     .await;
/// assert_eq!(answer.objects()?[0]["apiVersion"], "example.com/v2");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConversionRequest(Value);

impl ConversionRequest {
    /// Creates a request for objects in this version, such as `example.com/v2`.
    pub fn to(version: &str) -> Self {
        Self(json!({
            "uid": "00000000-0000-4000-8000-000000000000",
            "desiredAPIVersion": version,
            "objects": [],
        }))
    }

    /// Adds an object to convert.
    #[must_use]
    pub fn object(mut self, object: &Value) -> Self {
        if let Some(objects) = self.0["objects"].as_array_mut() {
            objects.push(object.clone());
        }
        self
    }

    /// Returns the `ConversionReview`, as bytes.
    pub fn body(&self) -> Vec<u8> {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": self.0,
        });
        review.to_string().into_bytes()
    }

    /// Sends the request to the conversion of this CustomResourceDefinition.
    pub async fn send(&self, manager: &Manager, definition: &str) -> Converted {
        let path = format!("/convert/{definition}");
        let reply = manager.review(&path, &self.body()).await;
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        Converted {
            status: reply.status,
            response: body["response"].clone(),
        }
    }
}

/// The response of a conversion.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The HTTP status: 200 for converted objects, and for objects that could not be converted.
    pub status: u16,
    /// The `response` of the `ConversionReview`.
    pub response: Value,
}

impl Converted {
    /// Returns the objects, in the order of the request.
    ///
    /// # Errors
    /// The reason for which an object could not be converted.
    pub fn objects(&self) -> Result<Vec<Value>, String> {
        if self.response["result"]["status"] == "Success" {
            let objects = self.response["convertedObjects"].as_array();
            return Ok(objects.cloned().unwrap_or_default());
        }
        let message = self.response["result"]["message"].as_str();
        Err(message.unwrap_or_default().to_owned())
    }
}
