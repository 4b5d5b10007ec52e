//! Checks whether oz works in a cluster, for the current user: each check, each problem and its repair. A check that
//! the user may not make is reported as unknown, and is not a problem.

mod audit_keys;
mod checks;
mod composites;
mod configuration;
mod finding;
mod harness;
mod installed;
mod name_servers;
mod outlived;
mod policies;
mod registrations;
mod signing_keys;
mod site;
mod standing;
mod windows;

pub use self::finding::{Check, Finding, Object, Verdict};
use self::site::Site;
use crate::cluster::Cluster;

/// Runs all checks. `oz` is the namespace of oz.
pub async fn examine(cluster: &Cluster, oz: &str) -> Vec<Finding> {
    let mut findings = examine_installation(cluster, oz).await;
    if !findings.iter().any(Finding::ends_the_examination) {
        let standing = standing::rights(cluster, oz).await;
        findings.push(Check::StandingRights.concluded(standing));
        let windows = windows::windows(cluster).await;
        findings.push(Check::WaitingWindows.concluded(windows));
    }
    findings
}

/// Runs the checks that name no users and none of their rights, in the order of their dependencies.
pub async fn examine_installation(cluster: &Cluster, oz: &str) -> Vec<Finding> {
    let mut findings = checks::api_server(cluster).await;
    if findings.iter().any(Finding::ends_the_examination) {
        return findings;
    }
    let kinds = Check::Kinds.concluded(checks::kinds(cluster).await);
    let there = !kinds.is_wrong();
    findings.push(kinds);
    if there {
        findings.extend(checks::rights(cluster).await);
        findings.push(Check::Webhook.concluded(checks::stamp(cluster, oz).await));
        findings.push(Check::Templates.concluded(checks::templates(cluster).await));
        findings.extend(checks::unreadable(cluster).await);
    }
    let registrations = registrations::read(cluster).await;
    findings.extend(installed::webhooks(&registrations));
    findings.extend(outlived::registrations(cluster, &registrations).await);
    findings.push(Check::Operator.concluded(installed::operator(cluster, oz).await));
    let site = Site::read(cluster, oz).await;
    findings.extend(configuration::configuration(&site).await);
    findings.push(Check::OperatorsRights.concluded(installed::operator_rights(&site).await));
    findings.extend(name_servers::name_servers(&site).await);
    findings.push(Check::Policies.concluded(policies::policies(&site).await));
    findings.push(Check::AuditKeys.concluded(audit_keys::audit_keys(cluster, oz).await));
    findings.push(Check::SigningKeys.concluded(signing_keys::signing_keys(cluster, oz).await));
    findings.extend(composites::composites(&site).await);
    findings.extend(harness::harness(&site, &registrations).await);
    findings.push(installed::versions(&site));
    findings
}
