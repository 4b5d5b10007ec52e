//! Values: those of the original's chart are kept or refused by name, and what is misspelt is
//! refused.

use anyhow::Result;

use crate::{rendered, template};

/// What helm says when it refuses to render.
fn refusal(flag: &str) -> Result<String> {
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
fn a_value_that_is_misspelt_or_makes_no_sense_is_refused() -> Result<()> {
    for (flag, part) in [
        ("operator.replica=2", "replica"),
        ("operator.replicas=0", "replicas"),
        ("operator.keepFinished=1d", "keepFinished"),
        ("image.digest=abc", "digest"),
        ("access.namespaces={Shop}", "namespaces"),
        ("webhook.extraArgs={verbose}", "extraArgs"),
        ("log.format=xml", "format"),
    ] {
        let said = refusal(&format!("--set={flag}"))?;
        assert!(said.contains(part), "{flag}: {said}");
    }
    Ok(())
}
