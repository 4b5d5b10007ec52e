//! Replicas: one authority and one key for all; each is ready once it has the data for its
//! decisions, and ends on request.

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Config, ResourceExt};
use oz_api::labels;
use oz_core::access::seal::{self, Purpose};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::support::*;

#[tokio::test]
async fn a_second_replica_is_trusted_and_seals_with_the_same_key() -> Result<()> {
    let cluster = cluster().await?;
    let admin = cluster.client("admin").await?;
    let secrets = Api::<Secret>::namespaced(admin.clone(), NAMESPACE);
    let versions = async || -> Result<Vec<Option<String>>> {
        let authority = secrets.get("oz-admission-ca").await?.resource_version();
        Ok(vec![
            authority,
            secrets.get("oz-webhook-key").await?.resource_version(),
        ])
    };
    let before = versions().await?;

    let flags = [
        "--set=webhook.url=https://127.0.0.1:0",
        "--set=webhook.register=false",
        "--replica=oz-1",
    ];
    let mut second = start(cluster, &flags).await?;

    assert_eq!(versions().await?, before);
    // The API server would trust it, by the registration of the first one.
    let configurations = Api::<MutatingWebhookConfiguration>::all(admin);
    let registered = configurations
        .get("oz")
        .await?
        .webhooks
        .context("no webhooks")?;
    let path = "/mutate-crds-wizardofoz-co-v1alpha1-execaccessrequest";
    let (url, bundle) = registered
        .into_iter()
        .find_map(|webhook| {
            let told = webhook.client_config;
            Some((told.url?, told.ca_bundle?.0)).filter(|(url, _)| url.ends_with(path))
        })
        .context("the hook is not registered")?;
    let url: http::Uri = url.parse()?;
    let mut config = Config::new(format!("https://127.0.0.1:{}", second.port).parse()?);
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bundle).collect();
    config.root_cert = Some(roots?.into_iter().map(|root| root.to_vec()).collect());
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review", "operation": "CREATE", "namespace": "shop", "name": "mine",
            "kind": { "group": "crds.wizardofoz.co", "version": "v1alpha1", "kind": "ExecAccessRequest" },
            "resource": {
                "group": "crds.wizardofoz.co", "version": "v1alpha1", "resource": "execaccessrequests",
            },
            "userInfo": { "username": "alice", "groups": ["devs"] },
            "object": request("mine", "shell"),
        },
    });
    let call = http::Request::post(url.path())
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&review)?)?;
    let answer: Value = Client::try_from(config)?.request(call).await?;
    let patch: k8s_openapi::ByteString =
        serde_json::from_value(answer["response"]["patch"].clone())?;
    let mut stamped = review["request"]["object"].clone();
    let patch: json_patch::Patch = serde_json::from_slice(&patch.0)?;
    json_patch::patch(&mut stamped, &patch)?;
    let stamp = stamped["metadata"]["annotations"][labels::REQUESTER]
        .as_str()
        .context("no stamp")?;
    let sealed: Value = seal::open(&keys(cluster).await?, Purpose::Stamp, stamp)?;
    assert_eq!(sealed["user"], "alice");

    let metrics = get(&second.probes, "/metrics")?;
    assert!(metrics.contains("admission"), "{metrics}");

    assert!(second.process.terminate(CONDITION_TIMEOUT).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_replica_is_not_ready_before_it_knows_the_templates() -> Result<()> {
    let cluster = cluster().await?;
    let blind = "system:serviceaccount:oz-system:blind";
    cluster.issue_kubeconfig(blind, &["system:serviceaccounts"])?;
    // The right to its Secrets, and none of the rights of the ClusterRole.
    let account = "--serviceaccount=oz-system:blind";
    let arguments = [
        "create",
        "rolebinding",
        "blind",
        "--role=oz-webhook",
        account,
        "-n",
        NAMESPACE,
    ];
    kubectl(cluster, "admin", &arguments)?;

    let flags = [
        "--set=webhook.url=https://127.0.0.1:0",
        "--set=webhook.register=false",
    ];
    let webhook = spawn(cluster, blind, &flags).await?;

    eventually(
        "only the lists to be missing",
        CONDITION_TIMEOUT,
        async || {
            let answer = get(&webhook.probes, "/readyz")?;
            let missing = ["ExecAccessTemplate list", "PodAccessTemplate list"];
            let named = missing.iter().all(|name| answer.contains(name));
            anyhow::ensure!(named && !answer.contains("certificate"), "{answer}");
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            Ok(Some(()))
        },
    )
    .await?;
    assert!(get(&webhook.probes, "/healthz")?.starts_with("HTTP/1.1 200"));
    Ok(())
}
