//! The registration of the hooks that prevent copies of the rights of a grant, for so few writes of
//! RBAC that those of other users are hardly ever checked.

use oz_admission::{FailurePolicy, Hook, NamespaceScope, SideEffects};

use super::{Grounds, SYSTEM, in_groups, quoted};
use crate::guard_copies::{BindingGuard, RoleGuard};

/// The resources of rules that hand out rights which a grant can give.
const GIVEN: &str = "'pods/exec', 'pods/attach', 'pods/portforward', '*/exec', '*/attach', \
                     '*/portforward', '*'";

/// Returns the hook for Roles that name objects and hand out access to pods, if their rules change.
pub(super) fn roles(grounds: &Grounds) -> Hook {
    let hook = Hook::mutating("guard-copied-role", RoleGuard(grounds.copies.clone()));
    guard_copies(grounds, hook, "role", "resource('roles')", "escalate").when(
        "into-pods-by-name",
        &format!(
            "has(object.rules) && object.rules != null \
             && (request.operation == 'CREATE' || object.rules != oldObject.rules) \
             && object.rules.exists(r, has(r.resourceNames) && has(r.resources) \
             && r.resources.exists(x, x in [{GIVEN}]))"
        ),
    )
}

/// Returns the hook for RoleBindings with new subjects, by ordinary users, since a binding does not
/// contain the rights of its Role. For a user without a grant, the hook responds at once.
/// Cluster-wide bindings hand out no rights of a grant, which is limited to one namespace.
pub(super) fn bindings(grounds: &Grounds) -> Hook {
    let hook = Hook::mutating("guard-copied-binding", BindingGuard(grounds.copies.clone()));
    let role = "resource(object.roleRef.kind == 'ClusterRole' ? 'clusterroles' : 'roles')\
                .name(object.roleRef.name)";
    guard_copies(grounds, hook, "rolebinding", role, "bind").when(
        "of-others-than-before",
        "has(object.subjects) && (request.operation == 'CREATE' || !has(oldObject.subjects) \
         || object.subjects != oldObject.subjects)",
    )
}

/// Configures a hook for copies. A user who may exec into every pod of the namespace, or hand out
/// rights that they do not have, has nothing to copy.
fn guard_copies(grounds: &Grounds, hook: Hook, kind: &str, role: &str, verb: &str) -> Hook {
    // The timeout is the default of the library: it must exceed the hook's own timeouts, or no
    // alarm would be raised.
    let system = [&SYSTEM.map(ToOwned::to_owned)[..], &grounds.break_glass].concat();
    hook.failure(FailurePolicy::Ignore)
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::NoneOnDryRun)
        .path(&format!("/guard-copied-{kind}"))
        .webhook_name(&format!("guard-copied-{kind}.kb.io"))
        .when(
            "not-by-oz-the-system-or-break-glass",
            &format!(
                "!(request.userInfo.username == {} || {})",
                quoted(&grounds.operator),
                in_groups(&system)
            ),
        )
        .when(
            "by-who-may-not-exec-everywhere",
            "!authorizer.group('').resource('pods').subresource('exec')\
             .namespace(request.namespace).check('create').allowed()",
        )
        .when(
            "by-who-may-not-hand-out-more",
            &format!(
                "!authorizer.group('rbac.authorization.k8s.io').{role}\
                 .namespace(request.namespace).check('{verb}').allowed()"
            ),
        )
}
