//! The window of a parent: fields of the parent that define when it has children. The window applies regardless of the
//! function.

use jiff::Timestamp;
use kube::core::DynamicObject;
use oz_core::lifecycle::window::has_come;
use oz_core::validate::Violation;
use serde_json::Value;

use super::answer::WindowError;

/// The fields with the first instant and with the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    from: Option<Vec<String>>,
    until: Vec<String>,
    /// True if the parent is deleted at the end.
    deletes_parent: bool,
}

/// The path of the annotations of a parent. Its authors write them, unlike the rest of its metadata.
const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];

/// Returns the window by fields of a parent. Each comes with the field of the declaration that names it.
pub(super) fn checked(
    from: Option<(&str, &str)>,
    until: (&str, &str),
    violations: &mut Vec<Violation>,
) -> Window {
    for (field, path) in from.into_iter().chain([until]) {
        let names = path.strip_prefix('.').map(|names| names.split('.'));
        let all: Vec<&str> = names.clone().into_iter().flatten().collect();
        if !names.is_some_and(|mut names| names.all(|name| !name.is_empty())) {
            let message = "is not a path such as .spec.validUntil";
            violations.push(Violation::new(field, message));
        }
        let is_annotation = all.len() == 3 && all.starts_with(&ANNOTATIONS);
        if matches!(all.first(), Some(&("metadata" | "status"))) && !is_annotation {
            let message = "is in metadata or status, which the author of the parent does not write";
            violations.push(Violation::new(field, message));
        }
    }
    if from.is_some_and(|(_, from)| from == until.1) {
        let message = "begins and ends with the same field";
        violations.push(Violation::new(until.0, message));
    }
    Window::new(from.map(|(_, from)| from), until.1)
}

/// The values of these fields in one parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The first instant; `None` for no lower limit.
    pub(super) from: Option<Timestamp>,
    /// The first instant after the window.
    pub(super) until: Option<Timestamp>,
}

impl Bounds {
    /// Checks whether a parent has children now.
    pub(super) fn are_around(self, now: Timestamp) -> bool {
        self.from.is_none_or(|from| has_come(now, from))
            && self.until.is_none_or(|until| !has_come(now, until))
    }
}

impl Window {
    /// Creates a window by paths, such as `.spec.validUntil`.
    #[must_use]
    pub fn new(from: Option<&str>, until: &str) -> Self {
        let path = |text: &str| text.split('.').skip(1).map(ToOwned::to_owned).collect();
        Self {
            from: from.map(path),
            until: path(until),
            deletes_parent: false,
        }
    }

    /// Deletes the parent at the end of the window.
    #[must_use]
    pub fn deleting_parent(mut self) -> Self {
        self.deletes_parent = true;
        self
    }

    /// Checks whether the parent is deleted at the end of the window.
    #[must_use]
    pub const fn deletes_parent(&self) -> bool {
        self.deletes_parent
    }

    /// Returns the window of a parent.
    ///
    /// # Errors
    /// If the parent has no end of the window, or a field is not an instant.
    pub(super) fn bounds(&self, parent: &DynamicObject) -> Result<Bounds, WindowError> {
        let from = self.from.as_deref();
        let from = from.map(|path| instant(parent, path)).transpose()?;
        let until = instant(parent, &self.until)?;
        if until.is_none() {
            let field = name(&self.until);
            return Err(WindowError::NoEnd { field });
        }
        Ok(Bounds {
            from: from.flatten(),
            until,
        })
    }

    /// Returns the end that a parent names, if it can be read.
    pub(super) fn end(&self, parent: &DynamicObject) -> Option<Timestamp> {
        instant(parent, &self.until).ok().flatten()
    }
}

fn name(path: &[String]) -> String {
    path.iter().map(|field| format!(".{field}")).collect()
}

fn instant(parent: &DynamicObject, path: &[String]) -> Result<Option<Timestamp>, WindowError> {
    let not_an_instant = |text: &str| WindowError::NotAnInstant {
        text: text.to_owned(),
        field: name(path),
    };
    let read = |text: &str| text.parse().map(Some).map_err(|_| not_an_instant(text));
    if let [metadata, annotations, key] = path
        && [metadata, annotations] == ANNOTATIONS
    {
        let known = parent.metadata.annotations.as_ref();
        let text = known.and_then(|known| known.get(key));
        return text.map_or(Ok(None), |text| read(text));
    }
    let mut value = &parent.data;
    for field in path {
        value = value.get(field).unwrap_or(&Value::Null);
    }
    match value {
        Value::Null => Ok(None),
        Value::String(text) => read(text),
        _ => Err(WindowError::NotAText { field: name(path) }),
    }
}
