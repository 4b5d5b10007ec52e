//! Any operator of this API, oz or another, that is installed on a cluster of `cargo xtask cluster up`: the
//! duration of its grants, the delay of their end, and their cost. It is identified by its process and its
//! user alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use oz_testkit::{AuditMark, Cluster};
use serde_json::json;

use super::grants::PAUSE;
use super::process::{processor_time, resident};
use super::report::{Budget, Report};
use super::scene::CHANGE_TIMEOUT;
use super::stats::{Values, number};
use crate::changes::{Change, Watching};

/// The duration of the grants of which the end is measured.
const SHORT: SignedDuration = SignedDuration::from_secs(30);

/// The measurements, and the cluster.
#[derive(Args)]
#[group(skip)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: super::Options,
    /// Directory of the cluster, as `cargo xtask cluster up` names it.
    #[arg(long, value_name = "DIRECTORY")]
    cluster: PathBuf,
    /// Namespace of the template.
    #[arg(long, short, value_name = "NAME")]
    namespace: String,
    /// The template that is asked by.
    #[arg(long, value_name = "NAME")]
    template: String,
    /// Kind of the requests.
    #[arg(long, default_value = "ExecAccessRequest", value_name = "KIND")]
    kind: String,
    /// The requester; the cluster must have a kubeconfig of this user.
    #[arg(long, default_value = "admin", value_name = "USER")]
    user: String,
    /// PID of the operator, for its processor time and memory.
    #[arg(long, value_name = "PID")]
    operator_pid: Option<u32>,
    /// User name of the operator: its calls are counted by the API server's audit log.
    #[arg(long, value_name = "USER")]
    operator_user: Option<String>,
    /// The most requests that the user may have: as many are made one after the other, and at once.
    #[arg(long, value_name = "COUNT")]
    most: Option<usize>,
    /// The maximum time from the expiry of a grant to its end, in seconds.
    #[arg(long, default_value = "600", value_name = "SECONDS")]
    end_timeout: u64,
}

/// A requester of the operator.
struct Peer<'a> {
    options: &'a Options,
    cluster: Cluster,
    requests: Api<DynamicObject>,
    resource: ApiResource,
    watch: Watching<DynamicObject>,
    bindings: Api<RoleBinding>,
    asked: usize,
}

pub(super) async fn measure(
    options: &Options,
    size: super::Size,
    report: &mut Report,
) -> Result<()> {
    let mut peer = Peer::new(options).await?;
    let most = |count: usize| options.most.map_or(count, |most| count.min(most));
    for _ in 0..size.runs {
        peer.one_by_one(most(size.one_by_one), report).await?;
        peer.at_once(most(size.at_once), report).await?;
        peer.ends(most(size.endings), report).await?;
    }
    if let Some(pid) = options.operator_pid {
        let what = "memory of the operator";
        report.add(what, "MiB", Budget::None, resident(pid)?);
    }
    Ok(())
}

fn is_ready(change: &Change<DynamicObject>) -> bool {
    change.object.data["status"]["ready"] == true
}

impl<'a> Peer<'a> {
    async fn new(options: &'a Options) -> Result<Self> {
        let cluster = Cluster::attach(&options.cluster)?;
        let kind = GroupVersionKind::gvk("crds.wizardofoz.co", "v1alpha1", &options.kind);
        let resource = ApiResource::from_gvk(&kind);
        let (client, admin) = (
            cluster.client(&options.user).await?,
            cluster.client("admin").await?,
        );
        let requests = Api::namespaced_with(client, &options.namespace, &resource);
        Ok(Self {
            options,
            cluster,
            watch: Watching::start(requests.clone()).await?,
            requests,
            resource,
            bindings: Api::namespaced(admin, &options.namespace),
            asked: 0,
        })
    }

    /// Requests access under a separate name.
    async fn ask(&self, name: &str, duration: &str) -> Result<DynamicObject> {
        let mut request = DynamicObject::new(name, &self.resource);
        let template = &self.options.template;
        request.data = json!({"spec": {"templateName": template, "duration": duration}});
        let parameters = PostParams::default();
        let created = self.requests.create(&parameters, &request).await;
        created.with_context(|| format!("failed to create {} {name}", self.options.kind))
    }

    fn names(&mut self, count: usize) -> Vec<String> {
        let first = self.asked;
        self.asked += count;
        let process = std::process::id();
        let names = (first..self.asked).map(|number| format!("peer-{process}-{number}"));
        names.collect()
    }

    /// Waits until all of these are ready; returns the time of the last.
    async fn ready(&mut self, names: &[String]) -> Result<Instant> {
        let mut missing: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut last = Instant::now();
        while !missing.is_empty() {
            let seen = self.watch.next(CHANGE_TIMEOUT).await;
            let seen = seen.with_context(|| format!("not ready: {missing:?}"))?;
            if is_ready(&seen) && missing.remove(seen.object.name_any().as_str()) {
                last = seen.at;
            }
        }
        Ok(last)
    }

    async fn over(&self, names: &[String]) -> Result<()> {
        let all = names.iter().map(async |name| {
            let deleted = self.requests.delete(name, &DeleteParams::default()).await;
            deleted.with_context(|| format!("failed to delete {name}"))
        });
        try_join_all(all).await.map(drop)
    }

    async fn one_by_one(&mut self, count: usize, report: &mut Report) -> Result<()> {
        for (how, pause) in [
            ("back to back", Duration::ZERO),
            ("0.8 s between two", PAUSE),
        ] {
            let (names, mark) = (self.names(count), self.cluster.audit().mark()?);
            let mut took = Vec::new();
            for name in &names {
                tokio::time::sleep(pause).await;
                let began = Instant::now();
                self.ask(name, "1h").await?;
                took.push(self.ready(std::slice::from_ref(name)).await? - began);
            }
            let took: Values = took.into_iter().collect();
            for (which, value) in [("p50", took.median()), ("p99", took.percentile(99))] {
                let what = format!("create to Ready, {how}, {which}");
                report.add(&what, "ms", Budget::None, value);
            }
            self.calls(mark, count, report)?;
            self.over(&names).await?;
        }
        Ok(())
    }

    /// Counts the operator's API calls for each of these grants.
    fn calls(&self, mark: AuditMark, grants: usize, report: &mut Report) -> Result<()> {
        let Some(user) = &self.options.operator_user else {
            return Ok(());
        };
        let calls = self.cluster.audit().since(mark)?.by_user(user);
        let calls = calls.in_namespace(&self.options.namespace);
        let calls = calls.filter(|entry| entry.resource != "events");
        ensure!(
            !calls.is_empty(),
            "{user} asked nothing of the API server: see --operator-user"
        );
        let writes = calls.clone().writes();
        let reads = calls.filter(|entry| ["get", "list"].contains(&entry.verb.as_str()));
        for (what, calls) in [
            ("API writes for a grant", writes),
            ("API reads for a grant", reads),
        ] {
            report.add(
                what,
                "",
                Budget::None,
                number(calls.len())? / number(grants)?,
            );
        }
        Ok(())
    }

    async fn at_once(&mut self, count: usize, report: &mut Report) -> Result<()> {
        let pid = self.options.operator_pid;
        let before = pid.map(processor_time).transpose()?;
        let (names, began) = (self.names(count), Instant::now());
        try_join_all(names.iter().map(|name| self.ask(name, "1h"))).await?;
        let took = self.ready(&names).await? - began;
        let what = format!("{count} requests at once");
        report.add(
            &what,
            "/s",
            Budget::None,
            number(count)? / took.as_secs_f64(),
        );
        if let Some((pid, before)) = pid.zip(before) {
            let spent = processor_time(pid)?.saturating_sub(before);
            let each = spent.as_secs_f64() * 1000.0 / number(count)?;
            report.add("operator CPU for a grant", "ms", Budget::None, each);
        }
        self.over(&names).await
    }

    /// Measures the delay of the deletion of the RoleBindings of some grants.
    async fn ends(&mut self, count: usize, report: &mut Report) -> Result<()> {
        let mut bindings = Watching::start(self.bindings.clone()).await?;
        let names = self.names(count);
        let mut ends = BTreeMap::new();
        for name in &names {
            let duration = format!("{}s", SHORT.as_secs());
            let request = self.ask(name, &duration).await?;
            let created = request.creation_timestamp().context("created at no time")?;
            let uid = request.uid().context("a request without a UID")?;
            ends.insert(name.as_str(), (uid, created.0 + SHORT));
        }
        self.ready(&names).await?;
        let within = Duration::try_from(SHORT)? + Duration::from_secs(self.options.end_timeout);
        let mut late = Vec::new();
        while !ends.is_empty() {
            let seen = bindings.next(within).await?;
            let gone = ends
                .iter()
                .find(|(name, (uid, _))| belongs(&seen.object, name, uid));
            let Some((name, (_, until))) = gone.filter(|_| seen.deleted) else {
                continue;
            };
            late.push(lag(seen.time, *until));
            let name = *name;
            ends.remove(name);
        }
        let late: Values = late.into_iter().collect();
        for (which, value) in [("p50", late.median()), ("max", late.max())] {
            let what = format!("RoleBinding gone after its end, {which}");
            report.add(&what, "ms", Budget::None, value);
        }
        self.over(&names).await
    }
}

/// Checks whether a RoleBinding belongs to a request, by any convention of its operator.
fn belongs(binding: &RoleBinding, name: &str, uid: &str) -> bool {
    let owners = binding.owner_references();
    binding.name_any().starts_with(&format!("{name}-"))
        || binding.name_any() == name
        || owners.iter().any(|owner| owner.uid == uid)
        || binding.labels().values().any(|value| value == uid)
}

fn lag(seen: Timestamp, until: Timestamp) -> f64 {
    seen.duration_since(until).as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_binding_belongs_to_its_request_by_name_owner_or_label() {
        let binding = |metadata: serde_json::Value| -> RoleBinding {
            serde_json::from_value(json!({
                "metadata": metadata,
                "roleRef": {"apiGroup": "", "kind": "Role", "name": "any"},
            }))
            .unwrap()
        };
        let owner = json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u-1"}]);
        for (metadata, expected) in [
            (json!({"name": "peer-1"}), true),
            (json!({"name": "peer-1-abc"}), true),
            (json!({"name": "peer-11"}), false),
            (json!({"name": "x", "ownerReferences": owner}), true),
            (json!({"name": "x", "labels": {"owner-uid": "u-1"}}), true),
            (json!({"name": "x", "labels": {"owner-uid": "u-2"}}), false),
        ] {
            let found = belongs(&binding(metadata.clone()), "peer-1", "u-1");
            assert_eq!(found, expected, "{metadata}");
        }
    }
}
