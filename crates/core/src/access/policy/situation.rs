//! The input of an access policy: the variables of its expression, and their content. All values come from
//! the API server or are sealed; labels and annotations of the request itself are excluded, since the
//! requester writes them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;
use oz_api::{Operation, Requester};
use serde::Serialize;
use serde_json::{Value, json};

use crate::access::decide::{self, Ask};
use crate::access::extra::Extra;
use crate::access::grant::Grant;
use crate::access::request::Request;
use crate::kinds::AccessTemplate;
use crate::transient::Binding;

/// The maximum number of grants in `active`.
pub const MAX_ACTIVE: usize = 64;
/// The maximum size of the input of an access policy, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;

/// A variable, and its fields; empty if they are unknown.
pub type Variable = (&'static str, &'static [&'static str]);

/// All variables.
pub const VARIABLES: [Variable; 7] = [
    ("requester", &["user", "uid", "groups", "extra"]),
    (
        "request",
        &[
            "kind",
            "namespace",
            "name",
            "duration",
            "reason",
            "ticket",
            "emergency",
            "template",
            "pod",
            "container",
            "extends",
            "role",
            "subjects",
        ],
    ),
    (
        "template",
        &["kind", "name", "namespace", "labels", "annotations"],
    ),
    ("namespaceLabels", &[]),
    ("operations", &[]),
    ("active", &[]),
    ("now", &[]),
];

/// The input of an access policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// Current instant.
    pub now: Timestamp,
    /// Requested duration of access, or the default duration.
    pub duration: GoDuration,
    /// Every variable but `now`, `request.duration` and the expiries of `active`.
    pub variables: Value,
    /// The requester's live grants.
    pub active: Vec<Active>,
}

/// A harness run, as far as access policies see it.
#[derive(Clone, Copy, Debug)]
pub struct RunRequest<'a> {
    /// Kind of the run.
    pub kind: &'a str,
    /// Metadata of the run.
    pub metadata: &'a ObjectMeta,
    /// Namespace of the run.
    pub namespace: &'a str,
    /// Name of its template.
    pub template: &'a str,
    /// The template, by its kind and metadata, if it exists.
    pub template_found: Option<(&'a str, &'a ObjectMeta)>,
    /// Its reason, its change ticket and its emergency.
    pub ask: Ask<'a>,
}

/// A live grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Active {
    /// Kind of its request.
    pub kind: String,
    /// Namespace of its request.
    pub namespace: String,
    /// Template of its request.
    pub template: String,
    /// Pod.
    pub pod: String,
    /// Name of its request.
    pub request: String,
    /// Expiry.
    #[serde(skip)]
    pub until: Timestamp,
}

impl From<&Grant> for Active {
    fn from(grant: &Grant) -> Self {
        Self {
            kind: grant.request.kind.clone(),
            namespace: grant.request.namespace.clone(),
            template: grant.template.clone(),
            pod: grant.pod.name.clone(),
            request: grant.request.name.clone(),
            until: grant.window.until,
        }
    }
}

impl Situation {
    /// Creates the input for a request, from its requester and the template that it names.
    #[must_use]
    pub fn from_request<T: AccessTemplate>(
        now: Timestamp,
        requester: &Requester,
        request: &Request<'_>,
        template: Option<&T>,
    ) -> Self {
        let metadata = request.metadata;
        let config = template.map(AccessTemplate::config);
        let asked = request.asked().ok().flatten();
        let asked = asked.filter(|asked| asked.is_positive());
        let default = config.and_then(|config| config.default_duration.parse().ok());
        let operations = config.map(decide::operations).into_iter().flatten();
        let operations: Vec<&str> = operations.map(|operation| (&operation).into()).collect();
        let fields = |template: &T| template_fields(T::title(), template.meta());
        let of_template = template.map_or_else(no_template, fields);
        let mut of_request = no_request(request.kind);
        of_request["template"] = json!(request.template);
        fill(&mut of_request, "name", name(metadata));
        fill(&mut of_request, "namespace", metadata.namespace.as_ref());
        fill(&mut of_request, "emergency", Some(request.ask.emergency));
        for (field, text) in [
            ("reason", request.ask.reason),
            ("ticket", request.ask.ticket),
            ("pod", request.target_pod),
            ("container", request.ask.container),
            ("extends", request.extends),
        ] {
            fill(&mut of_request, field, text);
        }
        Self::new(
            now,
            requester,
            asked.or(default).unwrap_or(GoDuration::ZERO),
            (of_request, of_template),
            &operations,
        )
    }

    /// Creates the input for a transient binding, from its requester.
    #[must_use]
    pub fn of_binding(
        now: Timestamp,
        requester: &Requester,
        binding: &Binding<'_>,
        namespace: Option<&str>,
    ) -> Self {
        let metadata = binding.metadata;
        let created = metadata.creation_timestamp.as_ref();
        let created = created.map_or(now, |created| created.0);
        let terms = binding.terms.as_ref().ok();
        let length = terms.map(|terms| terms.length(created));
        // A length that is too long for the type becomes the maximum.
        let nanos = |length: SignedDuration| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        let length = length.map(|length| GoDuration::from_nanos(nanos(length)));
        let length = length.filter(|length| length.is_positive());
        let subject = |subject: &rbac::Subject| {
            let mut told = json!({ "kind": subject.kind, "name": subject.name, "namespace": "" });
            fill(&mut told, "namespace", subject.namespace.as_ref());
            told
        };
        let mut of_request = no_request(binding.kind);
        fill(&mut of_request, "name", name(metadata));
        fill(&mut of_request, "namespace", namespace);
        if let Some(terms) = terms {
            let subjects: Vec<Value> = terms.subjects.iter().map(subject).collect();
            of_request["subjects"] = json!(subjects);
            of_request["role"] =
                json!({ "kind": terms.role.kind.to_string(), "name": terms.role.name });
            fill(&mut of_request, "reason", terms.reason.as_ref());
            fill(&mut of_request, "ticket", terms.ticket.as_ref());
            fill(&mut of_request, "emergency", Some(terms.emergency));
        }
        Self::new(
            now,
            requester,
            length.unwrap_or(GoDuration::ZERO),
            (of_request, no_template()),
            &[],
        )
    }

    /// Creates the input for a harness run, from its requester and the template that it names. `duration` is the timeout of
    /// the run.
    #[must_use]
    pub fn of_run(
        now: Timestamp,
        requester: &Requester,
        run: &RunRequest<'_>,
        duration: GoDuration,
    ) -> Self {
        let found = run.template_found;
        let of_template = found.map_or_else(no_template, |(kind, it)| template_fields(kind, it));
        let mut of_request = no_request(run.kind);
        fill(&mut of_request, "name", name(run.metadata));
        fill(&mut of_request, "emergency", Some(run.ask.emergency));
        for (field, text) in [
            ("namespace", Some(run.namespace)),
            ("template", Some(run.template)),
            ("reason", run.ask.reason),
            ("ticket", run.ask.ticket),
        ] {
            fill(&mut of_request, field, text);
        }
        Self::new(now, requester, duration, (of_request, of_template), &[])
    }

    fn new(
        now: Timestamp,
        requester: &Requester,
        duration: GoDuration,
        (request, template): (Value, Value),
        operations: &[&str],
    ) -> Self {
        Self {
            now,
            duration,
            variables: json!({
                "requester": {
                    "user": requester.user, "uid": requester.uid, "groups": requester.groups,
                    "extra": {},
                },
                "request": request,
                "template": template,
                "namespaceLabels": {},
                "operations": operations,
            }),
            active: Vec::new(),
        }
    }

    /// Adds the extra attributes of the requester.
    #[must_use]
    pub fn with_extra(mut self, extra: &Extra) -> Self {
        self.variables["requester"]["extra"] = json!(extra);
        self
    }

    /// Adds the labels of the namespace.
    #[must_use]
    pub fn in_namespace(mut self, labels: &BTreeMap<String, String>) -> Self {
        self.variables["namespaceLabels"] = json!(labels);
        self
    }

    /// Adds the requester's live grants; of more than [`MAX_ACTIVE`] those that last longest.
    #[must_use]
    pub fn having(mut self, mut active: Vec<Active>) -> Self {
        active.sort_by(|one, other| {
            (other.until, &one.namespace, &one.request).cmp(&(
                one.until,
                &other.namespace,
                &other.request,
            ))
        });
        active.truncate(MAX_ACTIVE);
        self.active = active;
        self
    }

    /// Returns an example for the trial of an expression: it does not represent a request.
    #[must_use]
    pub fn example(now: Timestamp) -> Self {
        Self {
            now,
            duration: GoDuration::from_secs(60 * 60),
            variables: json!({
                "requester": { "user": "alice", "uid": "", "groups": ["devs"], "extra": {} },
                "request": {
                    "kind": "ExecAccessRequest", "namespace": "shop", "name": "debug", "reason": "", "ticket": "",
                    "emergency": false,
                    "template": "shell", "pod": "", "container": "", "extends": "",
                    "role": { "kind": "", "name": "" }, "subjects": [],
                },
                "template": {
                    "kind": "ExecAccessTemplate", "name": "shell", "namespace": "shop", "labels": {},
                    "annotations": {},
                },
                "namespaceLabels": {},
                "operations": [<&str>::from(Operation::Exec)],
            }),
            active: Vec::new(),
        }
    }
}

/// Returns the name of an object, or the prefix of a name that the API server generates.
fn name(metadata: &ObjectMeta) -> Option<&String> {
    let named = metadata.name.as_ref().filter(|name| !name.is_empty());
    named.or(metadata.generate_name.as_ref())
}

/// Returns the value of `request` with the fields that every request of this kind has.
fn no_request(kind: &str) -> Value {
    json!({
        "kind": kind, "namespace": "", "name": "", "reason": "", "ticket": "", "emergency": false,
        "template": "", "pod": "",
        "container": "", "extends": "", "role": { "kind": "", "name": "" }, "subjects": [],
    })
}

/// Sets a field, if it has a value.
fn fill(object: &mut Value, field: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        object[field] = json!(value);
    }
}

/// Returns the value of `template` for a template of this kind.
fn template_fields(kind: &str, metadata: &ObjectMeta) -> Value {
    let mut fields = no_template();
    fields["kind"] = json!(kind);
    fill(&mut fields, "name", metadata.name.as_ref());
    fill(&mut fields, "namespace", metadata.namespace.as_ref());
    fill(&mut fields, "labels", metadata.labels.as_ref());
    fill(&mut fields, "annotations", metadata.annotations.as_ref());
    fields
}

/// Returns the value of `template` if there is no template.
fn no_template() -> Value {
    json!({ "kind": "", "name": "", "namespace": "", "labels": {}, "annotations": {} })
}
