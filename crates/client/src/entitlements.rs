//! Reads from a cluster the users who could get access to pods. Objects that the user may not read become gaps of the
//! list; they are never omitted silently.

use std::collections::BTreeSet;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Resource};
use oz_api::harness::{ClusterHarnessTemplate, HarnessRun, HarnessTemplate};
use oz_api::{AccessPolicy, Phase, RoleKind};
use oz_compliance::entitlements::standing::{Key, Rbac};
use oz_compliance::entitlements::{Entitlement, Entitlements, sources};
use oz_config::OzConfiguration;
use oz_core::access::grant::shared_name;
use oz_core::for_each_kind;
use oz_core::kinds::Kind as _;
use oz_core::transient::{self, Kind as _, RolePattern};
use oz_trail::RequestRef;
use serde::de::DeserializeOwned;

use crate::cluster::Cluster;
use crate::explain::operator::{Found, deployments, is_of_component};
use crate::failure::Result;

/// The maximum number of objects of a kind that are read.
const LOOKED_AT: usize = 50_000;

/// Returns the users who could get access, by the oz in the namespace `oz` and by RBAC.
///
/// # Errors
/// The cluster cannot be read at all.
pub async fn entitlements(cluster: &Cluster, oz: &str) -> Result<Entitlements> {
    let mut reading = Reading {
        cluster,
        gaps: BTreeSet::new(),
    };
    let mut found: Vec<Entitlement> = Vec::new();
    for_each_kind!(templates T => {
        let templates = reading.all::<T>(T::title()).await?;
        for template in &templates {
            found.extend(sources::of_template(template)?);
        }
    });
    let has_runs = reading.rules(&mut found).await?;
    for_each_kind!(bindings B => { reading.waiting::<B>(B::title(), &mut found).await? });
    let rbac = reading.rbac().await?;
    found.extend(rbac.into_pods());
    if has_runs {
        let (group, plural) = (HarnessRun::group(&()), HarnessRun::plural(&()));
        let holders = rbac.holders("create", &group, &plural);
        found.extend(holders.iter().map(sources::startable));
    }
    reading.configuration(&rbac, oz, &mut found).await?;
    Ok(Entitlements::new(found.into_iter().collect(), reading.gaps))
}

/// The reader of the cluster, and the gaps.
pub(crate) struct Reading<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) gaps: BTreeSet<String>,
}

impl Reading<'_> {
    /// Lists all objects of a kind, page by page; records a gap if they cannot be listed, or are too many.
    pub(crate) async fn all<K>(&mut self, title: &str) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api = Api::<K>::all(self.cluster.client.clone());
        self.listed(&api, title, ListParams::default()).await
    }

    /// Lists some objects in the same way.
    pub(crate) async fn listed<K>(
        &mut self,
        api: &Api<K>,
        title: &str,
        parameters: ListParams,
    ) -> Result<Vec<K>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let found = self.known(api, title, parameters).await?;
        Ok(found.unwrap_or_else(|| {
            self.gap(title, "the cluster does not know the kind");
            Vec::new()
        }))
    }

    /// Lists some objects in the same way; `None` if the cluster does not know the kind.
    async fn known<K>(
        &mut self,
        api: &Api<K>,
        title: &str,
        parameters: ListParams,
    ) -> Result<Option<Vec<K>>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        match self.cluster.pages(api, parameters, LOOKED_AT).await {
            Ok((found, cut_short)) => {
                if cut_short {
                    self.gaps
                        .insert(format!("{title}: only the first {} were read", found.len()));
                }
                Ok(Some(found))
            }
            // The gap does not contain the failure's text: that names the user, and the same gap must be the same for
            // all.
            Err(failure) if failure.is_forbidden() => {
                self.gap(title, "the user who made this may not list them");
                Ok(Some(Vec::new()))
            }
            Err(failure) if failure.is_unknown_kind() => Ok(None),
            Err(failure) => Err(failure.during(&format!("failed to list {title}"))),
        }
    }

    /// Adds the approval rules and emergencies of harness templates and access policies. Returns whether the cluster knows
    /// the kinds of harness runs: if not, no run exists, and nothing is missing.
    async fn rules(&mut self, found: &mut Vec<Entitlement>) -> Result<bool> {
        let api = Api::<HarnessTemplate>::all(self.cluster.client.clone());
        let (all, title) = (ListParams::default(), HarnessTemplate::title());
        let templates = self.known(&api, title, all).await?;
        for template in templates.iter().flatten() {
            found.extend(sources::of_harness_template(template)?);
        }
        let api = Api::<ClusterHarnessTemplate>::all(self.cluster.client.clone());
        let (all, title) = (ListParams::default(), ClusterHarnessTemplate::title());
        for template in self.known(&api, title, all).await?.iter().flatten() {
            found.extend(sources::of_cluster_harness_template(template)?);
        }
        for policy in &self.all::<AccessPolicy>(AccessPolicy::title()).await? {
            found.extend(sources::of_policy(policy)?);
        }
        Ok(templates.is_some())
    }

    /// Adds the transient bindings of a kind with windows that have yet to open.
    async fn waiting<B: transient::Kind>(
        &mut self,
        title: &str,
        found: &mut Vec<Entitlement>,
    ) -> Result<()> {
        let now = Timestamp::now();
        let bindings = self.all::<B>(title).await?;
        for binding in &bindings {
            match binding.stored() {
                Ok(binding) => found.extend(sources::waiting(&binding, now)),
                Err(error) => self.gap(title, &error.to_string()),
            }
        }
        Ok(())
    }

    /// Returns a configuration that was found, and its values; records a gap if it cannot be read, or is not valid.
    fn configured(&mut self, found: Result<Found>) -> Option<(Found, OzConfiguration)> {
        let read = found.and_then(|found| {
            let config = found.config()?;
            Ok((found, config))
        });
        let why = match read {
            Ok(read) => return Some(read),
            Err(failure) if failure.is_forbidden() => {
                "the user who made this may not read oz's configuration there".to_owned()
            }
            Err(failure) => failure.message().to_owned(),
        };
        self.gap("break-glass groups and bindable roles", &why);
        None
    }

    fn gap(&mut self, what: &str, why: &str) {
        self.gaps.insert(format!("{what}: not read: {why}"));
    }

    async fn rbac(&mut self) -> Result<Rbac> {
        let mut rbac = Rbac::default();
        rbac.roles(self.all::<Role>("Role").await?)?;
        rbac.cluster_roles(&self.all::<ClusterRole>("ClusterRole").await?)?;
        rbac.role_bindings(self.all::<RoleBinding>("RoleBinding").await?)?;
        let bindings = self.all::<ClusterRoleBinding>("ClusterRoleBinding").await?;
        rbac.cluster_role_bindings(bindings)?;
        let key = |metadata: &ObjectMeta| -> Option<Key> {
            Some((metadata.namespace.clone(), metadata.name.clone()?))
        };
        for_each_kind!(requests R => {
            let requests = self.all::<R>(R::title()).await?;
            let names = requests.iter().map(|request| {
                let metadata = request.meta();
                let request = RequestRef::new_object(R::title(), metadata);
                (metadata.namespace.clone(), shared_name(&request))
            });
            rbac.granted(names);
        });
        for_each_kind!(bindings B => {
            let bindings = self.all::<B>(B::title()).await?;
            let is_active = |one: &&B| one.status().is_some_and(|status| status.phase == Phase::Active);
            let active = bindings.iter().filter(is_active);
            rbac.granted(active.filter_map(|one| key(one.meta())));
        });
        Ok(rbac)
    }

    /// Adds the data that only the configuration contains: groups for emergencies, roles that may be bound
    /// temporarily, and whether the published kinds of transient bindings are served.
    async fn configuration(
        &mut self,
        rbac: &Rbac,
        oz: &str,
        found: &mut Vec<Entitlement>,
    ) -> Result<()> {
        let deployments = match deployments(self.cluster, oz).await {
            Err(failure) if !failure.is_forbidden() => return Err(failure),
            deployments => deployments,
        };
        let read = Found::read(self.cluster, oz, deployments.as_deref()).await;
        let Some((read, config)) = self.configured(read) else {
            return Ok(());
        };
        if deployments.is_err() {
            let what = "values that flags set instead of the configuration";
            self.gap(
                what,
                "the user who made this may not list Deployments there",
            );
        }
        found.extend(break_glass(&read, &config));
        // The webhook admits these groups, and its flags may name others than those of the operator.
        let deployments = deployments.iter().flatten();
        for webhook in deployments.filter(|one| is_of_component(one, "webhook")) {
            let read = Found::from_deployment(self.cluster, oz, webhook).await;
            let configured = self.configured(read);
            found.extend(
                configured
                    .iter()
                    .flat_map(|(read, config)| break_glass(read, config)),
            );
        }
        if config.transient.serve_example_com {
            for_each_kind!(published B => {
                let title = format!("{} of {}", B::title(), B::group(&()));
                self.waiting::<B>(&title, found).await?;
            });
        }
        let field = read.place("transient.bindableRoles");
        let policy = config.policy(oz);
        let roles = &policy.roles.0;
        for_each_kind!(bindings B => {
            let plural = B::plural(&());
            for holder in rbac.holders("create", &B::group(&()), &plural) {
                let rows = roles.iter().map(|role| {
                    sources::bindable(&holder, &titled(role), &field)
                });
                found.extend(rows);
            }
        });
        Ok(())
    }
}

/// Returns the entitlements of the break-glass groups.
fn break_glass(found: &Found, config: &OzConfiguration) -> Vec<Entitlement> {
    let place = found.place("webhook.breakGlassGroups");
    let groups = config.webhook.break_glass_groups.iter();
    groups
        .map(|group| sources::break_glass(group, &place))
        .collect()
}

/// Returns `ClusterRole view` or `Role shop/deployer`.
fn titled(role: &RolePattern) -> String {
    let text = role.to_string();
    let kind = match text.contains('/') {
        true => RoleKind::Role,
        false => RoleKind::ClusterRole,
    };
    format!("{kind} {text}")
}
