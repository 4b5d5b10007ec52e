//! Conversion webhooks: custom resources that are read and written in several versions.
//!
//! An extension supplies the function. The module `objects` decides, object by object, which objects the
//! function receives, which fields it may change, and the message of a failure. The module `wire` defines
//! the `ConversionReview`.
//!
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>.

pub(crate) mod objects;
pub(crate) mod wire;

use std::{fmt, future::Future, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::review::Cx;

/// A function that converts the objects of one custom resource from any of its versions to any other.
///
/// The function must return the same result for the same input, and a conversion in both directions must
/// lose no data: store data that one version cannot hold in an annotation. The API server calls the
/// function for every read and write of an object that is not stored in the requested version, so it should
/// make no calls to servers.
pub trait Convert: Send + Sync + 'static {
    /// Converts `object` to the version `to`, such as `example.com/v2`. The object has its `apiVersion`,
    /// which the library sets to `to` afterwards, and no `managedFields`, which the library restores. Of
    /// the metadata, only labels and annotations may change; the `kind` must not change.
    ///
    /// # Errors
    /// The object cannot be converted. The client receives the reason, with the name of the object.
    fn convert(
        &self,
        cx: &Cx,
        object: Value,
        to: &str,
    ) -> impl Future<Output = Result<Value, ConvertError>> + Send;
}

impl<C: Convert> Convert for Arc<C> {
    fn convert(
        &self,
        cx: &Cx,
        object: Value,
        to: &str,
    ) -> impl Future<Output = Result<Value, ConvertError>> + Send {
        C::convert(self, cx, object, to)
    }
}

/// The reason for which an object cannot be converted, for users; the library adds the name of the object.
/// A text or an error of `serde_json` converts into it, also with `?`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConvertError(String);

impl ConvertError {
    /// Creates an error with the problem of the object and the next step.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<&str> for ConvertError {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for ConvertError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<serde_json::Error> for ConvertError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// A conversion that calls a synchronous function: see [`convert_fn`].
pub struct ConvertFn<F>(F);

impl<F> fmt::Debug for ConvertFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConvertFn")
    }
}

/// Creates a conversion from a synchronous function, which makes no calls to servers.
///
/// ```
/// use oz_admission::{Conversion, convert_fn};
/// use serde_json::{Value, json};
///
/// // `spec.size` of v1 is `spec.replicas` of v2.
/// let conversion = Conversion::new("widgets.example.com", convert_fn(|_, mut widget: Value, to| {
///     let (old, new) = if to == "example.com/v2" { ("size", "replicas") } else { ("replicas", "size") };
///     if let Some(spec) = widget["spec"].as_object_mut()
///         && let Some(count) = spec.remove(old)
///     {
///         spec.insert(new.to_owned(), count);
///     }
///     Ok(widget)
/// }));
/// ```
pub fn convert_fn<F>(function: F) -> ConvertFn<F>
where
    F: Fn(&Cx, Value, &str) -> Result<Value, ConvertError> + Send + Sync + 'static,
{
    ConvertFn(function)
}

impl<F> Convert for ConvertFn<F>
where
    F: Fn(&Cx, Value, &str) -> Result<Value, ConvertError> + Send + Sync + 'static,
{
    async fn convert(&self, cx: &Cx, object: Value, to: &str) -> Result<Value, ConvertError> {
        (self.0)(cx, object, to)
    }
}

/// The declaration of a conversion webhook: a CustomResourceDefinition and the function that converts its
/// objects. See [`ManagerBuilder::conversion`](crate::ManagerBuilder::conversion).
#[derive(Clone)]
pub struct Conversion {
    pub(crate) definition: String,
    pub(crate) handler: Arc<dyn ConvertAny>,
}

impl Conversion {
    /// Creates a conversion. `definition` is the name of the CustomResourceDefinition: `<plural>.<group>`.
    pub fn new(definition: &str, handler: impl Convert) -> Self {
        Self {
            definition: definition.to_owned(),
            handler: Arc::new(Converting(handler)),
        }
    }

    /// Returns the path of the conversion.
    pub fn served_path(&self) -> String {
        format!("/convert/{}", self.definition)
    }

    /// Returns the group of the converted versions; `None` if the name of the definition has none.
    pub(crate) fn group(&self) -> Option<&str> {
        let parts = self.definition.split_once('.');
        parts.map(|(_, group)| group)
    }
}

impl fmt::Debug for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Conversion").field(&self.definition).finish()
    }
}

/// A conversion with an erased type.
pub(crate) trait ConvertAny: Send + Sync + 'static {
    fn convert<'a>(
        &'a self,
        cx: &'a Cx,
        object: Value,
        to: &'a str,
    ) -> BoxFuture<'a, Result<Value, ConvertError>>;
}

struct Converting<C>(C);

impl<C: Convert> ConvertAny for Converting<C> {
    fn convert<'a>(
        &'a self,
        cx: &'a Cx,
        object: Value,
        to: &'a str,
    ) -> BoxFuture<'a, Result<Value, ConvertError>> {
        Box::pin(self.0.convert(cx, object, to))
    }
}
