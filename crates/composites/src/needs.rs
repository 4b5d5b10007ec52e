//! The rights that the account of a composite needs, as far as they are known before the composite runs.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use oz_api::composite::Method;
use oz_api::{RBAC_GROUP, RoleKind};
use oz_core::transient::{BindableRoles, on_role};
use serde_json::json;

use super::account::Account;
use super::declared::{Declared, KindName};
use super::related::Rule;

/// Checks whether a composite is held while it has parents: its children may have expiries, or its parents wait for a
/// function.
#[must_use]
pub fn has_ends(declared: &Declared, has_policy: bool) -> bool {
    let has_window = declared.window.is_some() && declared.has_function();
    has_policy || declared.finalize.is_some() || has_window
}

/// Returns the rights with these verbs on a kind.
fn on_kind<'a>(
    kind: &'a KindName,
    subresource: Option<&'a str>,
    verbs: &'a [&'a str],
) -> impl Iterator<Item = ResourceAttributes> + use<'a> {
    verbs.iter().map(move |verb| ResourceAttributes {
        group: Some(kind.group().to_owned()),
        version: Some(kind.version().to_owned()),
        resource: Some(kind.resource.clone()),
        subresource: subresource.map(ToOwned::to_owned),
        verb: Some((*verb).to_owned()),
        ..ResourceAttributes::default()
    })
}

/// Returns the rights that an account needs for the objects that these rules select.
#[must_use]
pub fn needs_of_rules(rules: &[Rule]) -> Vec<ResourceAttributes> {
    let mut kinds: BTreeSet<KindName> = rules.iter().map(|rule| rule.kind.clone()).collect();
    if rules.iter().any(|rule| rule.namespaces.is_some()) {
        kinds.insert(KindName {
            api_version: "v1".to_owned(),
            resource: "namespaces".to_owned(),
        });
    }
    let needs = kinds.iter();
    let needs = needs.flat_map(|kind| on_kind(kind, None, &["list", "watch"]));
    needs.collect()
}

/// Returns the rights of which an account needs one, for the bindings that a composite may create: to bind a role that
/// may be bound. Roles that are listed by a pattern have no known names.
#[must_use]
pub fn binds(declared: &Declared, bindable: &BindableRoles) -> Vec<ResourceAttributes> {
    let has = |plural: &str| {
        let mut kinds = declared.children.iter();
        kinds.any(|(kind, _)| kind.group() == RBAC_GROUP && kind.resource == plural)
    };
    let in_namespaces = has("rolebindings");
    if !in_namespaces && !has("clusterrolebindings") {
        return Vec::new();
    }
    let roles = bindable.named().into_iter().flatten();
    let roles = roles.filter(|(_, role)| in_namespaces || role.kind == RoleKind::ClusterRole);
    roles
        .map(|(namespace, role)| on_role(namespace, &role, "bind"))
        .collect()
}

/// Returns the rights that an account needs to run a composite.
#[must_use]
pub fn needs(declared: &Declared, has_ends: bool) -> Vec<ResourceAttributes> {
    let mut needs = Vec::new();
    let mut need = |kind: &KindName, subresource: Option<&str>, verbs: &[&str]| {
        needs.extend(on_kind(kind, subresource, verbs));
    };
    need(&declared.parent, None, &["get", "list", "watch"]);
    if declared.has_function() {
        need(&declared.parent, Some("status"), &["patch"]);
    }
    if declared.deletes_parents() {
        need(&declared.parent, None, &["delete"]);
    }
    if has_ends || declared.finalize.is_some() {
        need(&declared.parent, None, &["patch"]);
    }
    for (child, method) in &declared.children {
        need(child, None, &["list", "watch", "create", "delete"]);
        if has_ends || *method == Method::InPlace || !declared.generate_selector {
            need(child, None, &["patch"]);
        }
    }
    needs.extend(needs_of_rules(&declared.related));
    needs
}

/// Formats the rules that an account lacks, as in a ClusterRole.
pub(super) fn rules(account: &Account, lacks: &[ResourceAttributes]) -> String {
    let of = |one: &ResourceAttributes| {
        let resource = one.resource.clone()?;
        let resource = match &one.subresource {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource,
        };
        // Rights on named objects are a rule of their own.
        Some((one.group.clone()?, resource, one.name.is_some()))
    };
    let resources: BTreeSet<_> = lacks.iter().filter_map(of).collect();
    let rules = resources.iter().map(|key| {
        let (group, resource, _) = key;
        let of_rule = || lacks.iter().filter(|one| of(one).as_ref() == Some(key));
        let verbs: BTreeSet<_> = of_rule().filter_map(|one| one.verb.clone()).collect();
        let names: BTreeSet<_> = of_rule().filter_map(|one| one.name.clone()).collect();
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule.to_string()
    });
    let rules: Vec<String> = rules.collect();
    format!(
        "{account} lacks these rules of a ClusterRole: {}",
        rules.join(", ")
    )
}
