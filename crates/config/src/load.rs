//! Reads a configuration: the file, and the values that flags set instead.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use oz_core::validate::dns_label;
use serde_json::{Map, Value};

use crate::component::{Component, digest};
use crate::{API_VERSION, KIND, LogTarget, OzConfiguration};

/// The configuration of a process.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration, with the values that flags set.
    pub configuration: OzConfiguration,
    /// The digest of the parts of the file that the component reads (SHA-256, in hexadecimal).
    pub digest: String,
    /// The values that flags set instead of the file, as PATH=VALUE.
    pub overrides: Vec<String>,
}

/// The reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read the configuration {}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The text is not YAML, or not an object.
    #[error("the configuration is not valid YAML: {0}")]
    Yaml(String),
    /// A field is unknown, missing or invalid.
    #[error("invalid configuration: {path}: {why}")]
    Field {
        /// The path of the field, such as `transient.maxBindingWindow`.
        path: String,
        /// The reason.
        why: String,
    },
    /// The value of `--set` has another form.
    #[error("{0:?} is not PATH=VALUE, such as transient.maxBindingWindow=8h")]
    Override(String),
}

/// A value that a flag sets instead of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    path: String,
    /// The value; `None` for the default.
    value: Option<Value>,
    text: String,
}

/// The detail of the first record of a process with the digest of its configuration.
pub const DIGEST: &str = "configuration";
/// The detail of the first record of a process with the values that flags set instead of the file.
const OVERRIDES: &str = "overrides";

impl Loaded {
    /// Returns the details of the first record of the process.
    #[must_use]
    pub fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![(DIGEST, self.digest.clone())];
        if !self.overrides.is_empty() {
            details.push((OVERRIDES, self.overrides.join("\n")));
        }
        details
    }
}

impl FromStr for Override {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let invalid = || ConfigError::Override(text.to_owned());
        let (path, value) = text.split_once('=').ok_or_else(invalid)?;
        if path.split('.').any(str::is_empty) {
            return Err(invalid());
        }
        let value = match value {
            "" => Value::String(String::new()),
            value => serde_saphyr::from_str(value)
                .map_err(|error| field(path, &format!("{value:?} is not valid YAML: {error}")))?,
        };
        Ok(Self {
            path: path.to_owned(),
            value: Some(value).filter(|value| !value.is_null()),
            text: text.to_owned(),
        })
    }
}

impl Override {
    /// Creates the override of the field at a path.
    pub(crate) fn new(path: &str, value: Value) -> Self {
        Self {
            path: path.to_owned(),
            text: format!("{path}={value}"),
            value: Some(value).filter(|value| !value.is_null()),
        }
    }

    /// Sets the value in a document.
    pub(crate) fn apply(&self, document: &mut Map<String, Value>) -> Result<(), ConfigError> {
        let (parents, last) = match self.path.rsplit_once('.') {
            Some((parents, last)) => (Some(parents), last),
            None => (None, self.path.as_str()),
        };
        let mut object = document;
        for name in parents.into_iter().flat_map(|parents| parents.split('.')) {
            let child = object
                .entry(name)
                .or_insert_with(|| Value::Object(Map::new()));
            object = child
                .as_object_mut()
                .ok_or_else(|| field(&self.path, &format!("{name} has no fields")))?;
        }
        match &self.value {
            Some(value) => object.insert(last.to_owned(), value.clone()),
            None => object.remove(last),
        };
        Ok(())
    }
}

/// Returns the error for a field.
pub(crate) fn field(path: &str, why: &dyn ToString) -> ConfigError {
    ConfigError::Field {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

impl OzConfiguration {
    /// Reads the configuration in a text.
    ///
    /// # Errors
    /// The path of the field that is unknown, missing or invalid.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        parsed(document(text)?)
    }

    /// Reads the configuration in a text, if there is one, with other values for some fields, as PATH=VALUE.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_with(text: Option<&str>, overrides: &[String]) -> Result<Self, ConfigError> {
        let overrides: Result<Vec<Override>, _> =
            overrides.iter().map(|text| text.parse()).collect();
        configured(
            &text.map(document).transpose()?.unwrap_or_default(),
            &overrides?,
        )
    }

    /// Returns the digest of the parts of a configuration that a component reads.
    ///
    /// # Errors
    /// If the text is no configuration.
    pub fn digest(text: &str, component: Component) -> Result<String, ConfigError> {
        Ok(digest(&document(text)?, component))
    }
}

/// Reads the configuration of a component.
pub(crate) fn load(
    text: Option<&str>,
    overrides: &[Override],
    component: Component,
) -> Result<Loaded, ConfigError> {
    let document = text.map(document).transpose()?.unwrap_or_default();
    Ok(Loaded {
        configuration: configured(&document, overrides)?,
        digest: digest(&document, component),
        overrides: overrides.iter().map(|one| one.text.clone()).collect(),
    })
}

/// Returns the configuration in a document, with the values that flags set instead.
fn configured(
    document: &Map<String, Value>,
    overrides: &[Override],
) -> Result<OzConfiguration, ConfigError> {
    // First without the flags: a mistake in the file is reported as such.
    let configuration = parsed(document.clone())?;
    if overrides.is_empty() {
        return Ok(configuration);
    }
    let mut document = document.clone();
    for one in overrides {
        one.apply(&mut document)?;
    }
    parsed(document)
}

/// Returns the document in a text, with its version and kind.
fn document(text: &str) -> Result<Map<String, Value>, ConfigError> {
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| ConfigError::Yaml(error.to_string()))?;
    let Value::Object(document) = value else {
        return Err(ConfigError::Yaml("it is not an object".to_owned()));
    };
    for (name, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        if document.get(name).and_then(Value::as_str) != Some(expected) {
            return Err(field(name, &format!("must be {expected}")));
        }
    }
    Ok(document)
}

fn parsed(document: Map<String, Value>) -> Result<OzConfiguration, ConfigError> {
    let read = serde_path_to_error::deserialize(Value::Object(document));
    let configuration: OzConfiguration =
        read.map_err(|error| field(&error.path().to_string(), error.inner()))?;
    configuration.check()?;
    Ok(configuration)
}

impl OzConfiguration {
    /// Checks the rules that concern several fields.
    fn check(&self) -> Result<(), ConfigError> {
        if let Err(why) = dns_label(&self.installation.name) {
            return Err(field("installation.name", &why));
        }
        if self.audit.log.0 == LogTarget::None && !self.audit.objects {
            return Err(field(
                "audit.log",
                &"must not be none without audit.objects: oz would keep no audit trail",
            ));
        }
        if !self.audit.http.url.is_empty()
            && let Err(why) = self.audit.http.uri()
        {
            return Err(field("audit.http.url", &why));
        }
        if self.audit.http.required && self.audit.http.url.is_empty() {
            return Err(field("audit.http.required", &"needs audit.http.url"));
        }
        let outbound = self.outbound.check();
        outbound.map_err(|(name, why)| field(&format!("outbound.{name}"), &why))?;
        let (collector, recordings) = (&self.audit.http, &self.gate.recordings);
        if let Err((name, why)) = collector.secret.check(collector.public_roots) {
            return Err(field(&format!("audit.http.{name}"), &why));
        }
        if recordings.public_roots && !recordings.secret.ca.is_empty() {
            let why = "excludes secret.ca: set one of them";
            return Err(field("gate.recordings.publicRoots", &why));
        }
        self.composites
            .check()
            .map_err(|error| field(&format!("composites.{}", error.at), &error.why))?;
        if self.harness.enabled && self.harness.image.is_empty() {
            return Err(field("harness.image", &"is required if harness.enabled"));
        }
        let routes = self.notifications.check();
        routes.map_err(|error| field(&format!("notifications.{}", error.at), &error.why))?;
        let checks = self.tickets.check();
        checks.map_err(|error| field(&format!("tickets.{}", error.at), &error.why))
    }
}
