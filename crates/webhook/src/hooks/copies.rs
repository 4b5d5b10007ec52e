//! Which writes of RBAC are asked about, so that nobody copies the rights of a grant: so few that other
//! people's hardly ever are.

use oz_admission::{FailurePolicy, Hook, NamespaceScope, SideEffects};

use super::{Grounds, SYSTEM, in_groups, quoted};
use crate::guard_copies::{BindingGuard, RoleGuard};

/// Resources of rules that hand out what a grant can give.
const GIVEN: &str = "'pods/exec', 'pods/attach', 'pods/portforward', '*/exec', '*/attach', \
                     '*/portforward', '*'";

/// Only Roles are asked about that name objects and hand out a way into pods, once their rules become
/// others.
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

/// A binding does not say what its Role hands out: those by ordinary people are asked about, when
/// they bind others than before, and answered at once for who has no grant. Cluster-wide bindings hand
/// out nothing that somebody has by a grant, which is of one namespace.
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

/// Whoever may exec into every pod of the namespace, or hand out what they do not have, has nothing to
/// copy.
fn guard_copies(grounds: &Grounds, hook: Hook, kind: &str, role: &str, verb: &str) -> Hook {
    // Its timeout is the library's: longer than what it waits for itself, or no alarm would be given.
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
