//! The watched kinds, and the processing of an object of each kind.

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::Role;
use kube::core::ApiResource;
use oz_api::{TransientClusterRoleBinding, TransientRoleBinding};
use oz_core::access::exec::ExecAccess;
use oz_core::access::kind::KeepFinished;
use oz_core::access::pod::PodAccess;
use oz_core::access::seal::Keys;
use oz_core::access::template::{ExecTemplate, PodTemplate};
use oz_core::confine::NameServer;
use oz_core::connect::pod::PodIdentity;
use oz_core::controller::{Controller, Live, Outcome};
use oz_core::mutate::RenderCache;
use oz_core::transient::{BindableRoles, Policy, Transient};
use oz_engine::Packed;
use oz_runtime::raw::{RawObject, decode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::objects::honest;

/// Decodes an object, as a child of another one if requested, and returns whether it can be
/// decoded.
type Judge = Box<dyn Fn(&RawObject, bool) -> bool>;

/// A kind: the fields of an honest object, and the processing of an object.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) spec: Value,
    pub(crate) judge: Judge,
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(490_000)
}

/// Does the same as the engine with a child of another object: stores it packed, and unpacks it for a
/// decision about its owner.
fn child(object: &RawObject) -> Option<(Packed, Live)> {
    let kept = decode::<Packed>(object).ok()?;
    let resource = ApiResource::erase::<Role>(&());
    let object = kept.unpack()?;
    Some((kept, Live { resource, object }))
}

/// Makes the engine's decision about an object: about the object itself, or about an honest owner of
/// it.
fn decided<C: Controller>(
    controller: &C,
    honest: &C::Object,
    object: &RawObject,
    facts: &C::Facts,
    as_child: bool,
) -> bool
where
    C::Object: DeserializeOwned,
{
    if as_child {
        let Some((_kept, live)) = child(object) else {
            return false;
        };
        let live = [live];
        controller.is_decided(honest, &live);
        controller.lasts_until(None, &live);
        let gone = controller.orphaned(now(), None, &live);
        let decided = controller.decide(now(), honest, facts, &live).decided();
        let plan = decided.map(|decision| decision.plan).unwrap_or_default();
        return gone.steps().chain(plan.steps()).count() < usize::MAX;
    }
    let Ok(object) = decode::<C::Object>(object) else {
        return false;
    };
    controller.is_decided(&object, &[]);
    controller.lasts_until(Some(&object), &[]);
    let Some(decision) = controller.decide(now(), &object, facts, &[]).decided() else {
        // The decision would read more, from other objects.
        return true;
    };
    let status = controller.status(now(), &object, &decision, &Outcome::default());
    let before = controller.current_status(&object);
    controller.transitions(&object, before.as_ref(), &status);
    decision.plan.steps().count() < usize::MAX
}

fn kept(name: &'static str, spec: Value) -> Kind {
    Kind {
        name,
        spec,
        judge: Box::new(|object, _| child(object).is_some()),
    }
}

fn plain<K: DeserializeOwned>(name: &'static str, spec: Value) -> Kind {
    Kind {
        name,
        spec,
        judge: Box::new(|object, _| decode::<K>(object).is_ok()),
    }
}

fn controlled<C: Controller>(
    name: &'static str,
    spec: Value,
    controller: C,
    facts: C::Facts,
) -> Result<Kind>
where
    C::Object: DeserializeOwned,
{
    let owner: C::Object = serde_json::from_value(honest(name, &spec))?;
    Ok(Kind {
        name,
        spec,
        judge: Box::new(move |object, as_child| {
            decided(&controller, &owner, object, &facts, as_child)
        }),
    })
}

/// Returns all kinds.
pub(crate) fn kinds() -> Result<Vec<Kind>> {
    let keys = Keys::with_every_owner([[7; 32]]);
    let hour = SignedDuration::from_hours(1);
    let request = json!({ "templateName": "shell", "duration": "1h", "reason": "why" });
    let template = json!({
        "accessConfig": {
            "allowedGroups": ["devs"], "defaultDuration": "1h", "maxDuration": "2h",
            "accessCommand": "kubectl exec {{ .Metadata.Name }}",
        },
        "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
    });
    let mut pod_template = template.clone();
    pod_template["controllerTargetMutationConfig"] = json!({ "patchSpecOperations": [
        { "op": "add", "path": "/spec/containers/0/env", "value": [{ "name": "a" }] },
    ] });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "view" });
    let binding = json!({ "roleRef": role, "subjects": [], "duration": "1h" });
    let policy = std::sync::Arc::new(Policy {
        roles: BindableRoles::default(),
        longest: hour,
        longest_in: std::collections::BTreeMap::default(),
        longest_lead: SignedDuration::from_hours(168),
        most_waiting: 20,
        own_namespace: "oz-system".to_owned(),
    });
    let exec = ExecAccess {
        keys: keys.clone(),
        keep_finished: KeepFinished::all(hour),
        gate: None,
    };
    let pod = PodAccess {
        keys: keys.clone(),
        keep_finished: KeepFinished::all(hour),
        gate: None,
        ready_timeout: hour,
        rendered: RenderCache::default(),
        name_servers: vec![NameServer::usual()],
        as_author: false,
    };
    let bindings = Transient::<TransientRoleBinding>::new(keys.clone(), policy.clone());
    let cluster_bindings = Transient::<TransientClusterRoleBinding>::new(keys, policy);
    let interval = hour;
    // Children and Roles are stored unchanged.
    Ok(vec![
        plain::<PodIdentity>("Pod", json!({ "containers": [{ "name": "a", "env": [] }] })),
        kept("Role", json!({})),
        kept("RoleBinding", json!({})),
        kept("NetworkPolicy", json!({ "podSelector": {} })),
        controlled(
            "ExecAccessRequest",
            request.clone(),
            exec,
            Default::default(),
        )?,
        controlled("PodAccessRequest", request, pod, Default::default())?,
        controlled(
            "ExecAccessTemplate",
            template,
            ExecTemplate { interval },
            Some(Ok(Vec::new())),
        )?,
        controlled(
            "PodAccessTemplate",
            pod_template,
            PodTemplate { interval },
            Some(Ok(None)),
        )?,
        controlled(
            "TransientRoleBinding",
            binding.clone(),
            bindings,
            Default::default(),
        )?,
        controlled(
            "TransientClusterRoleBinding",
            binding,
            cluster_bindings,
            Default::default(),
        )?,
    ])
}
