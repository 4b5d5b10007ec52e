//! Values: the chart accepts or refuses those of the original's chart by name, and refuses misspelt values.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use oz_config::{OzConfiguration, PullPolicy};
use serde_json::Value;

use crate::{configuration_text, name_of, rendered, template};

/// Returns the message with which helm refuses to render.
pub(super) fn refusal(flag: &str) -> Result<String> {
    let output = template(&[flag])?;
    assert!(!output.status.success(), "{flag} was taken");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_value_of_the_originals_that_has_another_name_is_refused_with_it() -> Result<()> {
    for (flag, new) in [
        (
            "controllerManager.replicas=2",
            "operator.replicas and webhook.replicas",
        ),
        (
            "controllerManager.tolerations[0].key=a",
            "operator.tolerations and webhook.tolerations",
        ),
        (
            "controllerManager.nodeSelector.a=b",
            "operator.nodeSelector and webhook.nodeSelector",
        ),
        (
            "controllerManager.manager.image.repository=a",
            "image.repository",
        ),
        ("controllerManager.manager.image.tag=a", "image.tag"),
        (
            "controllerManager.manager.resources.limits.cpu=1",
            "operator.resources",
        ),
        ("controllerManager.other=1", "set operator and webhook"),
        ("metricsService.type=ClusterIP", "metrics.service"),
        ("webhookService.type=ClusterIP", "webhook.service"),
        ("webhook.create=false", "never granted"),
        ("webhook.secret.name=a", "makes its certificates itself"),
        ("webhook.certManager=true", "makes its certificates itself"),
        (
            "webhook.podExecWatcher.create=true",
            "oz.wizardofoz.co/enforce",
        ),
        ("metrics.includeUserLabel=true", "the audit records do"),
    ] {
        let said = refusal(&format!("--set={flag}"))?;
        let old = flag.split(['=', '.']).next().unwrap_or_default();
        assert!(said.contains(new), "{flag}: {said}");
        assert!(said.contains(&format!("  {old}")), "{flag}: {said}");
    }
    Ok(())
}

#[test]
fn a_value_of_the_originals_that_means_the_same_is_taken() -> Result<()> {
    for flag in [
        "webhook.create=true",
        "webhook.certManager=false",
        "metrics.includeUserLabel=false",
        "kubernetesClusterDomain=cluster.local",
        "rbac.create=false",
        "rbac.requestAccess.aggregateTo.a=b",
        "nameOverride=oz",
        "metrics.serviceMonitor.create=true",
    ] {
        rendered(&[&format!("--set={flag}")])?;
    }
    Ok(())
}

#[test]
fn invalid_or_misspelt_chart_value_is_refused() -> Result<()> {
    for (flag, part) in [
        ("operator.replica=2", "replica"),
        ("operator.replicas=0", "replicas"),
        ("operator.keepFinished=1d", "keepFinished"),
        ("image.digest=abc", "digest"),
        ("transient.maxBindingLead=7d", "maxBindingLead"),
        ("transient.maxWaitingBindings=-1", "maxWaitingBindings"),
        ("access.namespaces={Shop}", "namespaces"),
        ("access.nameServers={kube-dns}", "nameServers"),
        ("webhook.extraArgs={verbose}", "extraArgs"),
        ("log.format=xml", "format"),
        ("tickets.checks.jira.accept=true", "url"),
        ("tickets.checks.jira.url=https://jira.test", "jira/url"),
        (
            "tickets.checks.duty.url=https://{user}.test/now",
            "duty/url",
        ),
        ("tickets.checks.jira.failurePolicy=Maybe", "failurePolicy"),
        ("tickets.checks.jira.interval=often", "interval"),
        ("outbound.proxy=socks5://proxy:1080", "outbound/proxy"),
        (
            "outbound.proxy=http://oz:secret@proxy:3128",
            "outbound/proxy",
        ),
        ("outbound.noProxy={a.test b.test}", "noProxy/0"),
        ("audit.http.secret.headers.Host=key", "headers"),
        ("audit.http.secret.headers.content-type=key", "headers"),
        ("composites.hookServers.hooks.secret.token=token", "name"),
        ("gate.recordings.url=file:///tmp", "recordings/url"),
        ("gate.recordings.endpoint=minio:9000", "endpoint"),
        ("gate.recordings.spool.sizeLimit=1Gi", "sizeLimit"),
        ("gate.recordings.recipients={age1abc}", "recipients/0"),
        ("fullnameOverride=1oz", "fullnameOverride"),
        ("rbac.viewAcess.aggregateTo.a=b", "viewAcess"),
        (
            "commonLabels.app\\.kubernetes\\.io/name=a",
            "commonLabels/app.kubernetes.io~1name",
        ),
        (
            "webhook.podLabels.app\\.kubernetes\\.io/component=a",
            "podLabels/app.kubernetes.io~1component",
        ),
    ] {
        let said = refusal(&format!("--set={flag}"))?;
        assert!(said.contains(part), "{flag}: {said}");
    }
    Ok(())
}

#[test]
fn on_call_check_without_ticket_in_its_url_is_rendered() -> Result<()> {
    rendered(&[
        "--set=tickets.checks.duty.url=https://duty.test/now",
        "--set=tickets.checks.duty.accept=requester.user in body.now",
    ])?;
    Ok(())
}

#[test]
fn recordings_need_where_to_be_stored() -> Result<()> {
    for (url, needed) in [
        ("s3://recordings/a", "gate.recordings.secret.name"),
        ("file:///var/lib/oz/recordings", "gate.recordings.volume"),
    ] {
        let said = refusal(&format!(
            "--set=gate.enabled=true,gate.recordings.url={url}"
        ))?;
        assert!(said.contains(needed), "{said}");
    }
    Ok(())
}

/// `helm upgrade --reuse-values` over the original renders with its values alone.
#[test]
fn values_of_the_original_alone_are_refused_with_what_to_write() -> Result<()> {
    let ours = "access transient composites crds audit log priorityClass operator webhook rbac metrics \
                networkPolicy uninstall image imagePullSecrets";
    let none: Vec<String> = ours
        .split_whitespace()
        .map(|it| format!("{it}=null"))
        .collect();
    let none = format!("--set={}", none.join(","));
    // Helm renders templates of one depth in any order.
    for _ in 0..5 {
        let output = template(&[&none, "--set=controllerManager.replicas=2"])?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("set operator.replicas"), "{said}");
    }
    Ok(())
}

#[test]
fn a_value_set_to_null_is_as_good_as_empty() -> Result<()> {
    for flag in [
        "operator.nodeSelector=null,webhook.nodeSelector=null",
        "operator.tolerations=null,operator.affinity=null",
        "operator.podLabels=null,commonLabels=null",
        "audit.http=null",
        "audit.http.url=https://collector.example,audit.http.secret=null",
        "rbac.viewAccess=null",
        "transient.bindableRoles=null,access.namespaces=null",
        "gate.enabled=true,gate.recordings=null",
        // `helm upgrade --reuse-values` over a version without these sections.
        "gate=null,composites=null,harness=null",
        "notifications=null,tickets=null,outbound=null",
        "outbound.secret=null,outbound.noProxy=null",
    ] {
        configuration(&[&format!("--set={flag}")])?;
    }
    Ok(())
}

/// Returns the configuration of an installation with these flags.
fn configuration(flags: &[&str]) -> Result<OzConfiguration> {
    Ok(OzConfiguration::read(&configuration_text(&rendered(
        flags,
    )?)?)?)
}

#[test]
fn a_group_may_have_any_character_in_its_name() -> Result<()> {
    for group in [
        "on call: #1",
        "a #b",
        "{c}",
        "d\"e",
        "a,b",
        "yes",
        "1e3",
        " ",
        "<&>",
    ] {
        let groups = serde_json::to_string(&[group])?;
        let flag = format!("--set-json=webhook.breakGlassGroups={groups}");
        let configuration = configuration(&[&flag])?;
        assert_eq!(configuration.webhook.break_glass_groups, [group]);
    }
    Ok(())
}

#[test]
fn values_become_fields_with_their_types() -> Result<()> {
    // Helm reads numbers in files as floating-point numbers.
    let flags = [
        "--set=audit.maxEvents=10000000,operator.keepFinished=,operator.workers=7",
        "--set-json=webhook.limits={\"waiting\": 3000000}",
        "--set=fullnameOverride=team-oz,policies.create=false",
        "--set=composites.enabled=true,composites.selector.team=,composites.selector.part=a",
        "--set=harness.enabled=true,harness.image.pullPolicy=Never,harness.image.tag=v1",
        "--set=harness.gitImage.repository=,harness.seedDeniedRanges={10.0.0.0/8,10.96.0.0/12}",
        "--set=webhook.extraArgs={--log=debug},transient.maxBindingWindowByNamespace.prod=1h",
    ];
    let read = configuration(&flags)?;
    assert_eq!(read.audit.max_events, 10_000_000);
    assert_eq!(read.webhook.limits.waiting, 3_000_000);
    assert_eq!(read.webhook.limits.active, 20);
    assert_eq!(read.operator.keep_finished, None);
    assert_eq!(read.operator.workers.get(), 7);
    assert_eq!(read.installation.name, "team-oz");
    assert!(!read.installation.policies);
    let selector = [("part", "a"), ("team", "")];
    let selector = selector.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(read.composites.selector, BTreeMap::from(selector));
    assert_eq!(read.harness.image, "localhost/oz-harness:v1");
    assert_eq!(read.harness.pull_policy, PullPolicy::Never);
    assert_eq!(read.harness.git_image, "");
    assert_eq!(read.harness.seed_denied_ranges.len(), 2);
    let component = read
        .harness
        .broker
        .labels
        .get("app.kubernetes.io/component");
    assert_eq!(component.map(String::as_str), Some("broker"));
    assert_eq!(read.transient.max_binding_window_by_namespace.len(), 1);
    Ok(())
}

#[test]
fn a_pod_of_the_webhook_gets_the_time_that_it_drains_and_finishes() -> Result<()> {
    for (drain, seconds) in [("0s", 40), ("5s", 45), ("1m30s", 130), ("500ms", 40)] {
        let all = rendered(&[&format!("--set=webhook.drain={drain}")])?;
        let webhook = all
            .iter()
            .find(|it| name_of(it) == "Deployment oz-webhook")
            .context("there is no webhook")?;
        let grace = &webhook["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
        assert_eq!(*grace, seconds, "{drain}");
    }
    Ok(())
}

#[test]
fn any_name_of_a_release_makes_names_of_services_and_labels_that_are_text() -> Result<()> {
    for (release, expected) in [
        ("oz", "oz-webhook"),
        ("team.oz", "team-oz-webhook"),
        ("1", "oz-1-oz-webhook"),
        ("1e3", "oz-1e3-oz-webhook"),
    ] {
        let mut helm = crate::helm()?;
        helm.args(["template", release]).arg(crate::chart());
        let documents: Vec<Value> = serde_saphyr::from_multiple(&oz_e2e::run(helm)?)?;
        let service = documents
            .iter()
            .find(|it| it["kind"] == "Service" && it["metadata"]["name"] == expected)
            .with_context(|| format!("{release}: there is no Service {expected}"))?;
        let selector = &service["spec"]["selector"]["app.kubernetes.io/instance"];
        assert_eq!(*selector, release);
    }
    Ok(())
}

#[test]
fn a_priority_class_is_made_unless_one_is_named() -> Result<()> {
    for (flag, made, used) in [
        ("priorityClass.value=7", Some("oz-7"), Some("oz-7")),
        (
            "priorityClass.name=system-cluster-critical",
            None,
            Some("system-cluster-critical"),
        ),
        ("priorityClass.create=false", None, None),
    ] {
        let all = rendered(&[&format!("--set={flag}")])?;
        let class = all.iter().find(|it| it["kind"] == "PriorityClass");
        let class = class.map(|it| &it["metadata"]["name"]);
        assert_eq!(class.and_then(Value::as_str), made, "{flag}");
        for object in all.iter().filter(|it| it["kind"] == "Deployment") {
            let name = &object["spec"]["template"]["spec"]["priorityClassName"];
            assert_eq!(name.as_str(), used, "{flag}");
        }
    }
    Ok(())
}

#[test]
fn role_without_labels_is_not_aggregated() -> Result<()> {
    let aggregated = |flag: &str| -> Result<usize> {
        let all = rendered(&[flag])?;
        let role = all
            .iter()
            .find(|it| name_of(it) == "ClusterRole oz-view-access")
            .context("there is no role")?;
        let labels = role["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten();
        Ok(labels
            .filter(|(key, _)| key.contains("aggregate-to"))
            .count())
    };
    assert_eq!(aggregated("--set=rbac.create=true")?, 3);
    assert_eq!(aggregated("--set=rbac.viewAccess.aggregateTo=null")?, 0);
    assert_eq!(aggregated("--set=rbac.viewAccess=null")?, 0);
    Ok(())
}
