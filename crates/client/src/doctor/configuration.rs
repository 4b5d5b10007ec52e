//! The check that the configuration is valid, and that all pods of oz started with it. A process reads its configuration
//! only at its start, and records the digest of the parts that it reads.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use oz_config::{Component, DIGEST, OzConfiguration};
use oz_trail::{Action, Entry, Query};

use super::finding::{Check, Finding, Object};
use super::site::Site;
use crate::explain::operator::{self, Found, Source};
use crate::failure::Result;
use crate::{printable, trail};

const CHECK: Check = Check::Configuration;

/// A running pod of oz.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    component: Component,
    pod: String,
    /// The start of the container, in whole seconds.
    started: Option<Timestamp>,
}

/// Checks the configuration, and the pods that started with another one.
pub(super) async fn configuration(site: &Site<'_>) -> Vec<Finding> {
    let found = match &site.found {
        Ok(found) => found,
        Err(failure) if failure.is_not_found() => {
            let fix = "upgrade the release again, which writes the ConfigMap";
            let text = format!("{}: the next start of the pods fails", failure.message());
            return vec![CHECK.wrong(text, fix)];
        }
        Err(failure) => return vec![CHECK.unknown(failure.message())],
    };
    let valid = valid(site.oz, found);
    let (Some(text), false) = (&found.text, valid.is_wrong()) else {
        return vec![valid];
    };
    let pods = match pods(site).await {
        Ok(pods) => pods,
        Err(failure) => return vec![valid, CHECK.unknown(failure.message())],
    };
    let query = Query {
        action: Some(Action::WriterStarted),
        ..Query::default()
    };
    let entries = match trail::entries(site.cluster, &query).await {
        Ok(entries) => entries,
        Err(failure) => return vec![valid, CHECK.unknown(failure.message())],
    };
    let replicas = replicas(text, &pods, &entries, |component| restart(site, component));
    std::iter::once(valid).chain(replicas).collect()
}

/// Judges the text of the configuration, and the values that flags set instead.
fn valid(oz: &str, found: &Found) -> Finding {
    let (name, note) = match &found.source {
        Source::ConfigMap(name) => (name, String::new()),
        Source::ConfigMapAlone { name, why } => {
            let note = format!("; the values that flags set instead are unknown: {why}");
            (name, note)
        }
        Source::Deployment(name) => {
            let text =
                format!("it is in the flags of Deployment {name}, which mounts no ConfigMap");
            return judged(found, &text, &format!("correct --set in Deployment {name}"));
        }
        Source::Given | Source::Defaults(_) => return CHECK.unknown("it is unknown"),
    };
    let map = name.rsplit_once('/').map_or(name.as_str(), |(_, map)| map);
    let object = Object::in_namespace("ConfigMap", oz, map);
    let text = found.text.as_deref();
    let finding = match text.map(OzConfiguration::read) {
        Some(Err(error)) => CHECK.wrong(
            format!(
                "{object}: {}: the next start of the pods fails",
                printable::line(&error.to_string())
            ),
            format!("correct the values of the release and upgrade it, or: kubectl edit configmap -n {oz} {map}"),
        ),
        _ => judged(
            found,
            &format!("{object} is valid{note}"),
            "correct --set in the operator's Deployment",
        ),
    };
    finding.about(object)
}

/// Judges the configuration together with the values that flags set.
fn judged(found: &Found, good: &str, fix: &str) -> Finding {
    match found.config() {
        Ok(_) => CHECK.good(good),
        Err(failure) => CHECK.wrong(
            format!("{}: the next start of the pods fails", failure.message()),
            fix,
        ),
    }
}

/// Lists the running pods of oz.
async fn pods(site: &Site<'_>) -> Result<Vec<Process>> {
    let pods: Api<Pod> = Api::namespaced(site.cluster.client.clone(), site.oz);
    let selected = ListParams::default().labels("app.kubernetes.io/name=oz");
    let list = site.cluster.answer(pods.list(&selected)).await?;
    Ok(list.items.iter().filter_map(process).collect())
}

/// Returns the process in a pod, if it is a running one of a component with a configuration.
fn process(pod: &Pod) -> Option<Process> {
    let of_pod = operator::component(&pod.metadata)?;
    let component = Component::from_name(of_pod)?;
    let status = pod.status.as_ref()?;
    let is_running = status.phase.as_deref() == Some("Running");
    if !is_running || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut containers = status.container_statuses.iter().flatten();
    let container = containers.find(|one| one.name == component.name());
    let running = container.and_then(|one| one.state.as_ref()?.running.as_ref());
    Some(Process {
        component,
        pod: pod.metadata.name.clone()?,
        started: running.and_then(|running| Some(running.started_at.as_ref()?.0)),
    })
}

/// Compares the digests with which the pods started with those of the configuration. `restart` returns the command that
/// restarts a component.
fn replicas(
    text: &str,
    pods: &[Process],
    entries: &[Entry],
    restart: impl Fn(Component) -> String,
) -> Vec<Finding> {
    let (mut others, mut restarts, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for one in pods {
        let expected = OzConfiguration::digest(text, one.component).ok();
        match (digest(one, entries), expected) {
            (Some(digest), Some(expected)) if *digest == expected => {}
            (Some(_), Some(_)) => {
                others.push(one.pod.as_str());
                let restart = restart(one.component);
                if !restarts.contains(&restart) {
                    restarts.push(restart);
                }
            }
            _ => unknown.push(one.pod.as_str()),
        }
    }
    let mut findings = Vec::new();
    if !others.is_empty() {
        findings.push(CHECK.wrong(
            format!("not the one that {} started with", others.join(", ")),
            format!("restart them: {}", restarts.join("; ")),
        ));
    }
    if !unknown.is_empty() {
        findings.push(CHECK.unknown(format!(
            "no audit record in the cluster names the one that {} started with",
            unknown.join(", ")
        )));
    }
    if pods.is_empty() {
        findings.push(CHECK.unknown("no pod runs that could have started with another one"));
    } else if findings.is_empty() {
        let count = pods.len();
        findings.push(CHECK.good(format!("all {count} running pods started with it")));
    }
    findings
}

/// Returns the digest in the first record of the process that runs in a pod. A record from before the start of the
/// container is of an earlier process.
fn digest<'a>(process: &Process, entries: &'a [Entry]) -> Option<&'a String> {
    let entries = entries.iter().filter(|entry| {
        let writer = &entry.link.writer;
        entry.record.action == Action::WriterStarted
            && writer.component == process.component.program()
            && writer.replica == process.pod
    });
    let latest = entries.max_by_key(|entry| (entry.record.time, &entry.link.writer.chain))?;
    let is_earlier = (process.started).is_some_and(|started| latest.record.time < started);
    let digest = latest.record.details.get(DIGEST);
    digest.filter(|_| !is_earlier)
}

/// Returns the command that restarts the pods of a component.
fn restart(site: &Site<'_>, component: Component) -> String {
    let (oz, label) = (site.oz, component.name());
    let deployments = site.readable().iter();
    let mut deployments = deployments.filter(|one| operator::is_of_component(one, label));
    match deployments
        .next()
        .and_then(|one| one.metadata.name.as_ref())
    {
        Some(name) => format!("kubectl rollout restart -n {oz} deployment/{name}"),
        None => format!(
            "kubectl rollout restart -n {oz} deployment -l \
             app.kubernetes.io/name=oz,app.kubernetes.io/component={label}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use oz_trail::{AuditKey, Chain, Writer};
    use serde_json::{Value, json};

    use super::super::Verdict;
    use super::*;

    /// A source of the configuration, its fields, the values of `--set`, whether it is valid, and a part of the message.
    type Case<'a> = (Source, Option<&'a str>, &'a [&'a str], bool, &'a str);

    const HEAD: &str = "apiVersion: config.oz.wizardofoz.co/v1alpha1\nkind: OzConfiguration\n";
    const NOW: Timestamp = Timestamp::constant(1_790_000_000, 0);

    fn text(fields: &str) -> String {
        format!("{HEAD}{fields}")
    }

    fn found(source: Source, text: Option<String>, sets: &[&str]) -> Found {
        Found {
            source,
            deployment: Some("oz-system/oz-operator".to_owned()),
            text,
            sets: sets.iter().map(ToString::to_string).collect(),
        }
    }

    /// The first record of a process, with the digest of this configuration if there is one.
    fn started(component: Component, pod: &str, seconds: i64, text: Option<&str>) -> Entry {
        let now = NOW + SignedDuration::from_secs(seconds);
        let writer = Writer::new(component.program(), pod, now, 1);
        let digest = text.map(|text| OzConfiguration::digest(text, component).unwrap());
        let details: Vec<_> = digest.into_iter().map(|it| (DIGEST, it)).collect();
        Chain::begin_with(writer, now, &[], &details, &AuditKey::new(&[7; 32])).1
    }

    fn running(component: Component, pod: &str, seconds: Option<i64>) -> Process {
        Process {
            component,
            pod: pod.to_owned(),
            started: seconds.map(|seconds| NOW + SignedDuration::from_secs(seconds)),
        }
    }

    #[test]
    fn invalid_configuration_is_reported_with_path() {
        let map = || Source::ConfigMap("access/access-oz-configuration".to_owned());
        let alone = Source::ConfigMapAlone {
            name: "access/access-oz-configuration".to_owned(),
            why: "alice may not".to_owned(),
        };
        let deployment = Source::Deployment("access/oz-operator".to_owned());
        let cases: [Case<'_>; 7] = [
            (map(), Some("gate: {maxSessions: 7}"), &[], true, "is valid"),
            (
                map(),
                Some("gate: {maxSession: 7}"),
                &[],
                false,
                "gate.maxSession",
            ),
            (map(), Some("gate: ["), &[], false, "not valid YAML"),
            (
                map(),
                Some(""),
                &["gate.maxSessions=0"],
                false,
                "gate.maxSessions",
            ),
            (alone, Some(""), &[], true, "unknown: alice may not"),
            (deployment.clone(), None, &[], true, "mounts no ConfigMap"),
            (deployment, None, &["gate.max=1"], false, "gate.max"),
        ];
        for (source, fields, sets, good, says) in cases {
            let found = found(source, fields.map(text), sets);
            let finding = valid("access", &found);
            assert_eq!(!finding.is_wrong(), good, "{finding:?}");
            assert!(finding.message.contains(says), "{finding:?}");
            assert_eq!(finding.message.contains("next start"), !good, "{finding:?}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn pods_with_another_configuration_are_named() {
        use Component::{Gate, Operator};

        let (old, new) = (
            text("gate: {maxSessions: 7}"),
            text("gate: {maxSessions: 8}"),
        );
        let of = |pod: &str, seconds, text: &str| started(Gate, pod, seconds, Some(text));
        let gate = |pod: &str| running(Gate, pod, Some(0));
        let without_digest = || started(Gate, "g-0", 1, None);
        let cases = [
            // No pod, or none with a record.
            (vec![], vec![], ["", "", "no pod runs"]),
            (vec![gate("g-0")], vec![], ["", "", "g-0 started"]),
            // One that started with it.
            (
                vec![gate("g-0")],
                vec![of("g-0", 1, &new)],
                ["all 1", "", ""],
            ),
            (
                vec![running(Gate, "g-0", None)],
                vec![of("g-0", -9, &new)],
                ["all 1", "", ""],
            ),
            // Another one; the latest record counts, in any order.
            (
                vec![gate("g-0")],
                vec![of("g-0", 1, &old)],
                ["", "that g-0 started", ""],
            ),
            (
                vec![gate("g-0")],
                vec![of("g-0", 2, &new), of("g-0", 1, &old)],
                ["all 1", "", ""],
            ),
            (
                vec![gate("g-0")],
                vec![of("g-0", 1, &new), of("g-0", 2, &old)],
                ["", "g-0", ""],
            ),
            // The records of other pods and other components do not count.
            (
                vec![gate("g-0")],
                vec![of("g-1", 1, &old)],
                ["", "", "g-0 started"],
            ),
            (
                vec![gate("g-0")],
                vec![started(Component::Webhook, "g-0", 1, Some(&old))],
                ["", "", "g-0 started"],
            ),
            // A record of an earlier process in the same pod, and one without a digest.
            (
                vec![gate("g-0")],
                vec![of("g-0", -1, &old)],
                ["", "", "g-0 started"],
            ),
            (
                vec![gate("g-0")],
                vec![without_digest()],
                ["", "", "g-0 started"],
            ),
            // Several pods.
            (
                vec![
                    gate("g-0"),
                    gate("g-1"),
                    gate("g-2"),
                    running(Operator, "o-0", None),
                ],
                vec![
                    of("g-0", 1, &old),
                    of("g-1", 1, &old),
                    started(Operator, "o-0", 1, Some(&new)),
                ],
                ["", "g-0, g-1 started", "g-2 started"],
            ),
        ];
        for (pods, entries, [good, wrong, unknown]) in cases {
            let findings = replicas(&new, &pods, &entries, |component| {
                format!("restart {}", component.name())
            });
            let of = |is: fn(&Verdict) -> bool| {
                let of = findings.iter().filter(|one| is(&one.verdict));
                of.map(|one| one.message.as_str()).collect::<String>()
            };
            let said = [
                of(|verdict| *verdict == Verdict::Good),
                of(|verdict| matches!(verdict, Verdict::Wrong { .. })),
                of(|verdict| *verdict == Verdict::Unknown),
            ];
            for (said, expected) in said.iter().zip([good, wrong, unknown]) {
                assert_eq!(said.is_empty(), expected.is_empty(), "{findings:?}");
                assert!(said.contains(expected), "{findings:?}");
            }
            for finding in &findings {
                if let Verdict::Wrong { fix } = &finding.verdict {
                    assert_eq!(fix, "restart them: restart gate");
                }
            }
        }
    }

    #[test]
    fn only_running_pods_of_components_are_compared() {
        let pod = |label: &str, status: Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "labels": {"app.kubernetes.io/component": label}},
                "status": status,
            }))
            .unwrap()
        };
        let status = json!({"phase": "Running", "containerStatuses": [
            {"name": "proxy", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"running": {"startedAt": "2026-01-01T13:00:00Z"}}},
            {"name": "gate", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"running": {"startedAt": "2026-01-01T12:00:00Z"}}},
        ]});
        let found = process(&pod("gate", status.clone())).unwrap();
        let started: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        assert_eq!((found.pod.as_str(), found.started), ("a", Some(started)));
        assert_eq!(found.component, Component::Gate);
        let unready = process(&pod("broker", json!({"phase": "Running"}))).unwrap();
        assert_eq!(unready.started, None);
        assert_eq!(process(&pod("gate", json!({"phase": "Pending"}))), None);
        assert_eq!(process(&pod("scoreboard", status.clone())), None);
        let mut ending = pod("gate", status);
        ending.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T14:00:00Z")).unwrap();
        assert_eq!(process(&ending), None);
    }
}
