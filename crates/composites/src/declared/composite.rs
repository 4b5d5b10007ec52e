//! The checked declaration of a CompositeController. One check reports all fields that are invalid or not supported
//! yet.

use std::time::Duration;

use jiff::SignedDuration;
use oz_api::composite::{
    CompositeController, CompositeControllerSpec, Hook, HookVersion, MAX_CHILDREN, Method, Mode,
    Webhook,
};
use oz_api::duration::GoDuration;
use oz_core::validate::Violation;

use super::checks::{as_told, name_of, parents, reserved, reserved_parent};
use super::{Call, Declared, MOST_KINDS};
use crate::kind::KindName;

/// The default timeout of a function.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum timeout of a function.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

impl Declared {
    /// Returns the declaration of a CompositeController.
    ///
    /// # Errors
    /// All fields that are invalid or not supported yet.
    pub fn from_composite(composite: &CompositeController) -> Result<Self, Vec<Violation>> {
        let spec = &composite.spec;
        let mut violations = Vec::new();
        let parent = KindName::from(&spec.parent_resource);
        reserved_parent(&parent, "spec.parentResource", &mut violations);
        let selector = parents(
            spec.parent_resource.label_selector.as_ref(),
            "spec.parentResource.labelSelector",
            &mut violations,
        );
        let children = children(spec, &mut violations);
        let name = name_of(&composite.metadata, &mut violations);
        let hooks = spec.hooks.as_ref();
        let sync_hook = hooks.and_then(|hooks| hooks.sync.as_ref());
        let mut call = |hook: Option<&Hook>, name: &str| {
            let field = format!("spec.hooks.{name}");
            hook.and_then(|hook| Call::from_hook(hook, &field, &mut violations))
        };
        let sync = call(sync_hook, "sync");
        let finalize = call(hooks.and_then(|it| it.finalize.as_ref()), "finalize");
        let customize = call(hooks.and_then(|it| it.customize.as_ref()), "customize");
        if sync_hook.is_none() {
            let message = "is missing: a composite requires a hook that returns the children of a \
                parent";
            violations.push(Violation::new("spec.hooks.sync", message));
        }
        not_yet(
            spec.endpoint_configs.is_some(),
            "spec.endpointConfigs",
            &mut violations,
        );
        let seconds = spec.resync_period_seconds.filter(|seconds| *seconds > 0);
        match (name, sync) {
            (Some(name), Some(sync)) if violations.is_empty() => Ok(Self {
                finalizer: format!("metacontroller.io/compositecontroller-{name}"),
                name,
                uid: composite.metadata.uid.clone(),
                controller: as_told(composite),
                parent,
                selector,
                ignores_status: spec.parent_resource.ignore_status_changes == Some(true),
                children,
                generate_selector: spec.generate_selector == Some(true),
                adopts_as_original: false,
                resync: seconds.map(|seconds| SignedDuration::from_secs(seconds.into())),
                sync,
                finalize,
                related: Vec::new(),
                customize,
                window: None,
                most_children: MAX_CHILDREN,
                most_deletions: None,
                dry_run: false,
                run_as: None,
            }),
            _ => Err(violations),
        }
    }
}

fn children(
    spec: &CompositeControllerSpec,
    violations: &mut Vec<Violation>,
) -> Vec<(KindName, Method)> {
    let mut children: Vec<(KindName, Method)> = Vec::new();
    if spec.child_resources.len() > MOST_KINDS {
        let message = format!("has more than {MOST_KINDS} kinds");
        violations.push(Violation::new("spec.childResources", message));
    }
    for (index, child) in spec.child_resources.iter().take(MOST_KINDS).enumerate() {
        let field = format!("spec.childResources[{index}]");
        let name = KindName {
            api_version: child.api_version.clone(),
            resource: child.resource.clone(),
        };
        reserved(&name, &field, violations);
        if children.iter().any(|(known, _)| *known == name) {
            violations.push(Violation::new(
                field.clone(),
                format!("{name} exists twice"),
            ));
        }
        let method = child.update_strategy.as_ref();
        let method = method
            .and_then(|strategy| strategy.method)
            .unwrap_or_default();
        if matches!(method, Method::RollingRecreate | Method::RollingInPlace) {
            let message = format!(
                "{method:?} is not supported yet; the methods are OnDelete, Recreate and InPlace"
            );
            let field = format!("{field}.updateStrategy.method");
            violations.push(Violation::new(field, message));
        }
        children.push((name, method));
    }
    children
}

fn not_yet(is_there: bool, field: &str, violations: &mut Vec<Violation>) {
    if is_there {
        violations.push(Violation::new(field, "is not supported yet"));
    }
}

impl Call {
    fn from_hook(hook: &Hook, field: &str, violations: &mut Vec<Violation>) -> Option<Self> {
        let Some(webhook) = &hook.webhook else {
            violations.push(Violation::new(format!("{field}.webhook"), "is missing"));
            return None;
        };
        let field = format!("{field}.webhook");
        for (is_there, name) in [
            (webhook.etag.is_some(), "etag"),
            (webhook.ca_bundle.is_some(), "caBundle"),
            (webhook.client_tls.is_some(), "clientTLS"),
            (webhook.authorization.is_some(), "authorization"),
            (webhook.basic_auth.is_some(), "basicAuth"),
        ] {
            not_yet(is_there, &format!("{field}.{name}"), violations);
        }
        let Some(url) = address(webhook) else {
            violations.push(Violation::new(field, "has neither url nor service"));
            return None;
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            violations.push(Violation::new(field, "must begin with http:// or https://"));
            return None;
        }
        let asked = webhook.timeout.as_deref().map(str::parse::<GoDuration>);
        let timeout = match asked {
            Some(Err(error)) => {
                violations.push(Violation::new(
                    format!("{field}.timeout"),
                    error.to_string(),
                ));
                return None;
            }
            Some(Ok(asked)) if asked.is_positive() => {
                Duration::try_from(SignedDuration::from(asked)).unwrap_or(TIMEOUT)
            }
            _ => TIMEOUT,
        };
        let strict = match webhook.response_un_marshall_mode {
            Some(mode) => mode == Mode::Strict,
            None => hook.version == HookVersion::V2,
        };
        Some(Self {
            url,
            version: hook.version,
            strict,
            timeout: timeout.min(LONGEST_TIMEOUT),
            in_process: None,
        })
    }
}

/// Returns the URL of a function; `None` if the webhook has neither a URL nor a service.
#[must_use]
pub fn address(webhook: &Webhook) -> Option<String> {
    if let Some(url) = webhook.url.as_ref().filter(|url| !url.is_empty()) {
        return Some(url.clone());
    }
    let service = webhook.service.as_ref()?;
    let protocol = service.protocol.as_deref().unwrap_or("http");
    let (name, namespace) = (&service.name, &service.namespace);
    let port = service.port.unwrap_or(80);
    let mut url = format!("{protocol}://{name}.{namespace}:{port}/");
    let path = webhook.path.as_deref();
    url.extend(path.map(|path| path.strip_prefix('/').unwrap_or(path)));
    Some(url)
}
