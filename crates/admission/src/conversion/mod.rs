//! Conversion webhooks: custom resources that are read and written in several versions.
//!
//! The function is somebody else's; which objects it is given, what it may change of them and what is said
//! when it fails is decided here, object by object, in `objects`. `wire` knows the `ConversionReview`.

pub(crate) mod objects;
pub(crate) mod wire;

use std::{fmt, future::Future, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::review::Cx;

/// A function that converts the objects of one custom resource from any of its versions to any other.
///
/// It must give the same whenever it is called with the same, and lose nothing on the way there and back:
/// what one version cannot hold belongs into an annotation. It is called for every read and write of an
/// object that is not stored in the version asked for, so it should ask nobody.
pub trait Convert: Send + Sync + 'static {
    /// `object` in the version `to`, such as `example.com/v2`. It comes with its `apiVersion`, which is set
    /// to `to` afterwards, and without `managedFields`, which are put back. Of its metadata only labels and
    /// annotations may change; the `kind` may not.
    ///
    /// # Errors
    /// The object cannot be converted. Whoever asked for it is told why, with its name.
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

/// Why an object cannot be converted, for people: the library says which one it is. Made of a text or of
/// an error of `serde_json`, also by `?`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConvertError(String);

impl ConvertError {
    /// What is wrong with the object, and what to do about it.
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

/// A conversion made of a function that asks nobody: see [`convert_fn`].
pub struct ConvertFn<F>(F);

impl<F> fmt::Debug for ConvertFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConvertFn")
    }
}

/// A conversion made of a function that asks nobody.
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
    /// `definition` is the name of the CustomResourceDefinition: `<plural>.<group>`.
    pub fn new(definition: &str, handler: impl Convert) -> Self {
        Self {
            definition: definition.to_owned(),
            handler: Arc::new(Converting(handler)),
        }
    }

    /// The path it is served under.
    pub fn served_path(&self) -> String {
        format!("/convert/{}", self.definition)
    }

    /// The group whose versions it converts between.
    pub(crate) fn group(&self) -> &str {
        let parts = self.definition.split_once('.');
        parts.map_or("", |(_, group)| group)
    }
}

impl fmt::Debug for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Conversion").field(&self.definition).finish()
    }
}

/// A conversion whose type has been forgotten.
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
