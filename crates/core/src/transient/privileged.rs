//! The privileged kinds: their objects give rights, run as other accounts, or decide about the objects of other users.
//! The list has two uses. A role with a right to write such objects cannot be bound by a pattern of the list of
//! bindable roles, see [`danger`](super::danger()); and a child of a composite that is such an object is written and
//! deleted only if each author of its parent may do that, see `oz_composites::rights`.

use kube::core::{ApiResource, DynamicObject};
use oz_api::{GROUP, RBAC_GROUP, composite, example_com};

/// Verbs that change the content of an object.
const CHANGES: &[&str] = &["create", "update", "patch"];
/// Verbs that change or delete an object.
const WRITES: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];
/// All verbs.
const ANY: &[&str] = &[];

/// The namespace of the ConfigMaps that configure the components of the cluster.
const SYSTEM: &str = "kube-system";

/// The privileged objects of a kind.
#[derive(Clone, Copy)]
enum Objects {
    /// No object: the privilege is a subresource, or a verb that does not write.
    None,
    /// All.
    All,
    /// The objects for which this function returns true.
    Those(fn(&DynamicObject) -> bool),
}

/// Privileged resources of one group. Without a resource: all of the group.
pub struct Privileged {
    group: &'static str,
    resources: &'static [&'static str],
    /// The verbs that are dangerous in a role.
    verbs: &'static [&'static str],
    /// The only namespace in which the objects are privileged. A role that is bound cluster-wide includes it.
    only_in: Option<&'static str>,
    objects: Objects,
    /// Whether a deletion only revokes rights.
    deletion_revokes: bool,
}

/// Creates an entry without privileged objects, or for a group that no composite writes.
const fn resources(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Privileged {
    Privileged {
        group,
        resources,
        verbs,
        only_in: None,
        objects: Objects::None,
        deletion_revokes: false,
    }
}

impl Privileged {
    const fn objects(self, objects: Objects) -> Self {
        Self { objects, ..self }
    }

    const fn only_in(self, namespace: &'static str) -> Self {
        Self {
            only_in: Some(namespace),
            ..self
        }
    }

    const fn revoked_by_deletion(self) -> Self {
        Self {
            deletion_revokes: true,
            ..self
        }
    }
}

/// The privileged resources.
pub(crate) const PRIVILEGED: &[Privileged] = &[
    // Other identities.
    resources("", &["secrets"], ANY)
        .objects(Objects::Those(is_token))
        .revoked_by_deletion(),
    resources("", &["serviceaccounts/token", "nodes/proxy"], ANY),
    resources("", &["serviceaccounts"], CHANGES).objects(Objects::All),
    resources(
        "certificates.k8s.io",
        &["certificatesigningrequests"],
        CHANGES,
    )
    .objects(Objects::All)
    .revoked_by_deletion(),
    resources(
        "certificates.k8s.io",
        &["certificatesigningrequests/approval", "signers"],
        ANY,
    ),
    // What the API server and others believe certificates by.
    resources(
        "certificates.k8s.io",
        &["certificatesigningrequests/status", "clustertrustbundles"],
        WRITES,
    )
    .objects(Objects::All),
    // Rights that last: nobody takes back what somebody bound inside their window.
    resources(
        RBAC_GROUP,
        &[
            "roles",
            "rolebindings",
            "clusterroles",
            "clusterrolebindings",
        ],
        CHANGES,
    )
    .objects(Objects::All)
    .revoked_by_deletion(),
    // Whoever makes a pod, or says what runs in one, has its service account and every Secret of the
    // namespace. A `get` on exec and attach opens a session by WebSocket where Kubernetes is older.
    resources("", &["pods/exec", "pods/attach"], ANY),
    resources("", &["pods/ephemeralcontainers"], CHANGES),
    // Traffic comes to the address that is written there.
    resources("", &["pods/status"], CHANGES),
    resources("", &["pods", "replicationcontrollers"], CHANGES)
        .objects(Objects::Those(is_another_account))
        .revoked_by_deletion(),
    resources(
        "apps",
        &["deployments", "statefulsets", "daemonsets", "replicasets"],
        CHANGES,
    )
    .objects(Objects::Those(is_another_account))
    .revoked_by_deletion(),
    resources("batch", &["jobs", "cronjobs"], CHANGES)
        .objects(Objects::Those(is_another_account))
        .revoked_by_deletion(),
    resources("argoproj.io", &["rollouts"], CHANGES)
        .objects(Objects::Those(is_another_account))
        .revoked_by_deletion(),
    // What others make pods and everything else of, with their own rights.
    resources(
        "argoproj.io",
        &[
            "workflows",
            "cronworkflows",
            "workflowtemplates",
            "clusterworkflowtemplates",
            "workfloweventbindings",
            "workflowtasksets",
            "applications",
            "applicationsets",
            "appprojects",
            "experiments",
            "analysisruns",
            "analysistemplates",
            "clusteranalysistemplates",
            "sensors",
            "eventsources",
            "eventbus",
        ],
        WRITES,
    )
    .objects(Objects::All),
    resources("paddock.dev", ANY, WRITES).objects(Objects::All),
    resources(composite::GROUP, ANY, WRITES).objects(Objects::All),
    // A volume may be a directory of the node.
    resources("", &["persistentvolumes"], CHANGES).objects(Objects::All),
    // Where pods run, and what is believed of that.
    resources("", &["nodes", "nodes/status"], CHANGES).objects(Objects::All),
    // What else may be done in a namespace hangs on its labels: what its pods may be, whether only
    // grants let into them. Its subresources write them too.
    resources(
        "",
        &["namespaces", "namespaces/status", "namespaces/finalize"],
        CHANGES,
    )
    .objects(Objects::All),
    // Who reaches whom: traffic comes to who is written here, with what others send to a Service.
    resources("", &["endpoints"], CHANGES).objects(Objects::All),
    resources("discovery.k8s.io", &["endpointslices"], CHANGES).objects(Objects::All),
    resources("networking.k8s.io", &["networkpolicies"], WRITES).objects(Objects::All),
    // Who leads: whoever holds a component's lease stops it.
    resources("coordination.k8s.io", &["leases"], WRITES).objects(Objects::All),
    // What the cluster's own components believe: who is in which group, which addresses are whose.
    resources("", &["configmaps"], WRITES)
        .only_in(SYSTEM)
        .objects(Objects::All),
    // What decides over everybody's requests, and sees them.
    resources("admissionregistration.k8s.io", ANY, WRITES).objects(Objects::All),
    resources("apiextensions.k8s.io", ANY, WRITES).objects(Objects::All),
    resources("apiregistration.k8s.io", ANY, WRITES).objects(Objects::All),
    // Access that outlives the window, and the record of it.
    resources(GROUP, ANY, WRITES).objects(Objects::All),
    resources(
        example_com::GROUP,
        &["transientrolebindings", "transientclusterrolebindings"],
        WRITES,
    )
    .objects(Objects::All)
    .revoked_by_deletion(),
];

/// The property of a role that makes it dangerous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Danger {
    /// It permits everything.
    #[error("it permits everything")]
    Everything,
    /// A rule has this wildcard.
    #[error("a rule of it has {0:?}")]
    Wildcard(String),
    /// A rule permits this verb.
    #[error("a rule of it permits {0}")]
    Verb(String),
    /// A rule permits a verb on a privileged resource.
    #[error("a rule of it permits {verb} {resource}")]
    Resource {
        /// Verb.
        verb: String,
        /// Plural name and group of the resource.
        resource: String,
    },
}

impl Privileged {
    /// Returns the permission for this resource that a rule gives, if it is bound in this namespace or, with `None`,
    /// cluster-wide.
    pub(super) fn permitted(
        &self,
        groups: &[String],
        resources: &[String],
        verbs: &[String],
        namespace: Option<&str>,
    ) -> Option<Danger> {
        let reaches = |only: &str| namespace.is_none_or(|namespace| namespace == only);
        if !groups.iter().any(|group| group == self.group) || !self.only_in.is_none_or(reaches) {
            return None;
        }
        let among = |list: &[&str], text: &String| list.is_empty() || list.contains(&text.as_str());
        let resource = resources.iter().find(|text| among(self.resources, text))?;
        let verb = verbs.iter().find(|text| among(self.verbs, text))?;
        Some(Danger::Resource {
            verb: verb.clone(),
            resource: match self.group {
                "" => resource.clone(),
                group => format!("{resource}.{group}"),
            },
        })
    }

    fn is_of(&self, group: &str, plural: &str) -> bool {
        self.group == group && (self.resources.is_empty() || self.resources.contains(&plural))
    }
}

/// Checks whether a kind can have privileged objects.
#[must_use]
pub fn has_privileged(group: &str, plural: &str) -> bool {
    let mut all = PRIVILEGED.iter();
    all.any(|kind| kind.is_of(group, plural) && !matches!(kind.objects, Objects::None))
}

/// Returns the entry of the list that makes an object privileged; `None` if there is none.
#[must_use]
pub fn privileged(resource: &ApiResource, object: &DynamicObject) -> Option<&'static Privileged> {
    let mut all = PRIVILEGED.iter();
    all.find(|kind| {
        let namespace = object.metadata.namespace.as_deref();
        let is_here = kind.only_in.is_none_or(|only| namespace == Some(only));
        kind.is_of(&resource.group, &resource.plural)
            && is_here
            && match kind.objects {
                Objects::None => false,
                Objects::All => true,
                Objects::Those(is_one) => is_one(object),
            }
    })
}

impl Privileged {
    /// Checks whether a deletion only revokes rights.
    #[must_use]
    pub const fn is_revoked_by_deletion(&self) -> bool {
        self.deletion_revokes
    }
}

/// Checks whether a Secret is a token of a service account, which Kubernetes fills in, or a bootstrap token.
fn is_token(secret: &DynamicObject) -> bool {
    let types = [
        "kubernetes.io/service-account-token",
        "bootstrap.kubernetes.io/token",
    ];
    let of = secret.data["type"].as_str();
    of.is_some_and(|of| types.contains(&of))
}

/// Checks whether the pods of a workload run as another service account than `default`.
fn is_another_account(workload: &DynamicObject) -> bool {
    let paths = [
        "/spec",
        "/spec/template/spec",
        "/spec/jobTemplate/spec/template/spec",
    ];
    paths.iter().any(|path| {
        // The second name is that of old.
        ["serviceAccountName", "serviceAccount"].iter().any(|name| {
            let account = workload.data.pointer(&format!("{path}/{name}"));
            account
                .and_then(serde_json::Value::as_str)
                .is_some_and(|account| !matches!(account, "" | "default"))
        })
    })
}
