//! The users who pass the gate, their identity behind it, the requests that it passes on, and their expiry.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use oz_api::{AccessLock, Phase};
use oz_core::gate::prefix;
use oz_e2e::{GATED, Scene, Session, System, exec_request, gate_template, records_in};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{Action, Record};
use serde_json::json;

use crate::{TURN, Whole, cluster};

pub(crate) fn said(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams
        .map(|stream| String::from_utf8_lossy(stream))
        .concat()
}

/// Returns the output of a command with this `input`.
fn fed(mut command: Command, input: Vec<u8>) -> Result<Output> {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    let written = writing
        .join()
        .map_err(|_| anyhow::anyhow!("writing broke off"))?;
    written.context("not all was read")?;
    Ok(output)
}

/// Returns the reason why a command of kubectl is refused; repeats the command until it is.
async fn refused(what: &str, command: impl Fn() -> Command) -> Result<String> {
    eventually(what, CONDITION_TIMEOUT, async || {
        let output = command().output()?;
        Ok((!output.status.success()).then(|| said(&output)))
    })
    .await
}

/// Returns the records of an action about a request of a scene.
fn records(records: &[Record], scene: &Scene, action: Action) -> Vec<Record> {
    let of_it = |record: &&Record| {
        record.action == action
            && record.request.namespace == scene.name()
            && record.request.name == "mine"
    };
    records.iter().filter(of_it).cloned().collect()
}

#[tokio::test]
async fn a_granted_user_gets_in_with_kubectl_as_it_is_and_by_no_other_way() -> Result<()> {
    let whole = Whole::start("passing").await?;
    let scene = &whole.scene;
    scene.enforce().await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "5m")).await?;
    let pod = granted.pod();
    let gate = |arguments: &[&str]| scene.through_gate("alice", "mine", arguments);

    // The binding names the gate, and no other subject.
    let binding = scene
        .api::<RoleBinding>()
        .get(&granted.object_name())
        .await?;
    let bound = binding.subjects.unwrap_or_default();
    let names: Vec<_> = bound
        .iter()
        .map(|one| (one.kind.as_str(), one.name.as_str()))
        .collect();
    assert_eq!(names, [("ServiceAccount", "oz-gate")]);

    let echo = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let output = gate(&["exec", &pod, "--", "echo", "a b", ""]).output()?;
        Ok(output.status.success().then_some(output))
    })
    .await?;
    assert_eq!(String::from_utf8(echo.stdout)?, "a b \n");
    let input: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    // kwok's nodes do not forward the end of input to a command.
    let length = input.len().to_string();
    let cat = ["exec", "-i", &pod, "--", "head", "-c", &length];
    let cat = fed(gate(&cat), input.clone())?;
    ensure!(cat.stdout == input, "{} bytes came back", cat.stdout.len());
    let name = gate(&["get", "pod", &pod, "-o", "name"]).output()?;
    assert_eq!(said(&name).trim(), format!("pod/{pod}"));

    // Past the gate all connections are denied, those of alice and those of the gate without a session token.
    let direct = scene.exec("alice", &[&pod, "--", "true"]).output()?;
    assert!(said(&direct).contains("forbidden"), "{}", said(&direct));
    let account = "system:serviceaccount:oz-system:oz-gate";
    let groups = ["system:serviceaccounts", "system:serviceaccounts:oz-system"];
    scene.cluster.issue_kubeconfig(account, &groups)?;
    let itself = scene.exec(account, &[&pod, "--", "true"]).output()?;
    assert!(said(&itself).contains("has no grant"), "{}", said(&itself));

    let opened = records(
        &records_in(&whole.system.webhook.process)?,
        scene,
        Action::SessionOpened,
    );
    let of = |key: &str| {
        opened
            .first()
            .and_then(|record| record.details.get(key).cloned())
    };
    assert!(opened.len() >= 2, "{opened:?}");
    assert!(
        opened
            .iter()
            .all(|one| one.user.as_ref().is_some_and(|user| user.user == "alice"))
    );
    assert_eq!(of("gate").as_deref(), Some(account));
    let ended = eventually("the ends to be on record", CONDITION_TIMEOUT, async || {
        let ended = records(
            &records_in(&whole.gate.process)?,
            scene,
            Action::SessionEnded,
        );
        Ok((ended.len() >= 2).then_some(ended))
    })
    .await?;
    let most = ended
        .iter()
        .filter_map(|record| record.details.get("bytesIn")?.parse().ok());
    assert!(most.max() >= Some(input.len()), "{ended:?}");
    assert!(
        whole
            .gate
            .metrics()
            .await?
            .contains("oz_gate_sessions_ended_total")
    );
    Ok(())
}

#[tokio::test]
async fn others_other_pods_and_other_paths_are_refused() -> Result<()> {
    let whole = Whole::start("refusing").await?;
    let scene = &whole.scene;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "5m")).await?;
    let pod = granted.pod();
    let echo = || scene.through_gate("alice", "mine", &["exec", &pod, "--", "true"]);
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Ok(echo().output()?.status.success().then_some(()))
    })
    .await?;

    // The response is the same for a user without the request and for a request that does not exist.
    for (user, request) in [("bob", "mine"), ("mallory", "mine"), ("alice", "yours")] {
        let refused = scene
            .through_gate(user, request, &["exec", &pod, "--", "true"])
            .output()?;
        let (refused, expected) = (
            said(&refused),
            format!("{user} has no grant by request {request}"),
        );
        assert!(refused.contains(&expected), "{refused}");
    }
    let mut others = scene
        .pods
        .iter()
        .filter_map(|pod| pod.metadata.name.clone());
    let other = others.find(|name| *name != pod).context("one pod")?;
    for (arguments, why) in [
        (vec!["exec", &other, "--", "true"], "not for pod"),
        (vec!["port-forward", &pod, "0:80"], "not PortForward"),
        (vec!["attach", &pod], "not Attach"),
        (vec!["get", "pods"], "is not forwarded"),
        (vec!["get", "secrets"], "doesn't have a resource type"),
        (vec!["delete", "pod", &pod], "cannot delete"),
    ] {
        let output = scene.through_gate("alice", "mine", &arguments).output()?;
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            said(&output).contains(why),
            "{arguments:?}: {}",
            said(&output)
        );
    }
    let start = prefix(scene.name(), "mine");
    let namespace = scene.name();
    for rest in [
        "/api/v1/namespaces/kube-system/secrets".to_owned(),
        "/api/v1/namespaces/oz-system/pods/x".to_owned(),
        format!("/api/v1/namespaces/{namespace}/pods/{pod}/../{other}"),
        format!("/api/v1/namespaces/{namespace}/pods/..%2f..%2fsecrets"),
        format!("/api/v1/namespaces/{namespace}/pods/{pod}%2fexec"),
        format!("/api/v1/namespaces/{namespace}/pods/{pod}/proxy/"),
        format!("/api/v1/namespaces/{namespace}/pods/{pod}/log"),
        "/../../../../../../api/v1/nodes".to_owned(),
        String::new(),
    ] {
        let raw = format!("{start}{rest}");
        let output = scene.kubectl("alice", &["get", "--raw", &raw]).output()?;
        assert!(!output.status.success(), "{raw}: {}", said(&output));
    }
    Ok(())
}

#[tokio::test]
async fn user_headers_are_rejected_without_api_server_certificate() -> Result<()> {
    let whole = Whole::start("strangers").await?;
    let scene = &whole.scene;
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request("mine", GATED, "5m")).await?;
    let path = format!("{}/api", prefix(scene.name(), "mine"));
    // One client has no certificate, one has a certificate of another authority.
    let mut configs = vec![Config::new("https://127.0.0.1".parse()?)];
    let theirs = Kubeconfig::read_from(scene.cluster.kubeconfig("alice"))?;
    let options = KubeConfigOptions::default();
    configs.push(Config::from_custom_kubeconfig(theirs, &options).await?);
    for mut config in configs {
        config.cluster_url = format!("https://{}", whole.gate.serving).parse()?;
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let request = Request::get(&path)
            .header("x-remote-user", "alice")
            .header("x-remote-group", "system:masters");
        let answer = client.send(request.body(Body::empty())?).await?;
        assert_eq!(answer.status().as_u16(), 401);
    }
    Ok(())
}

#[tokio::test]
async fn open_session_ends_with_grant_and_reason_without_operator() -> Result<()> {
    let mut whole = Whole::start("ending").await?;
    let scene = &whole.scene;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "5m")).await?;
    let short = alice.granted(&exec_request("short", GATED, "30s")).await?;
    let locked = alice.granted(&exec_request("locked", GATED, "5m")).await?;
    let session = |request: &str, pod: &str| {
        let command = ["exec", "-i", pod, "--", "sh", "-c", "echo here; exec cat"];
        Session::open(scene.through_gate("alice", request, &command))
    };
    let (first, second, third) = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let all = session("mine", &granted.pod()).and_then(|first| {
            let second = session("short", &short.pod())?;
            Ok((first, second, session("locked", &locked.pod())?))
        });
        Ok(all.ok())
    })
    .await?;
    whole.system.operator.process.kill9();
    assert!(first.is_open());
    alice.api().delete("mine", &DeleteParams::default()).await?;
    first.ended(CONDITION_TIMEOUT)?;
    second.ended(Duration::from_secs(60).max(CONDITION_TIMEOUT))?;
    assert!(third.is_open());
    let lock = serde_json::from_value(json!({
        "metadata": {"name": scene.name()},
        "spec": {"target": {"namespace": scene.name()}, "reason": "stolen laptop"},
    }))?;
    let locks = Api::<AccessLock>::all(scene.admin.clone());
    locks.create(&PostParams::default(), &lock).await?;
    third.ended(CONDITION_TIMEOUT)?;
    let cut = eventually("the ends to be on record", CONDITION_TIMEOUT, async || {
        let all = records_in(&whole.gate.process)?;
        let cut: Vec<String> = all
            .iter()
            .filter(|one| {
                one.action == Action::SessionTerminated && one.request.namespace == scene.name()
            })
            .map(|one| format!("{} {}", one.request.name, one.reason))
            .collect();
        Ok((cut.len() >= 3).then_some(cut))
    })
    .await?;
    assert_eq!(cut, ["mine Revoked", "short Expired", "locked Locked"]);
    locks.delete(scene.name(), &DeleteParams::default()).await?;
    let again = refused("alice to be refused", || {
        scene.through_gate("alice", "short", &["exec", &short.pod(), "--", "true"])
    })
    .await?;
    assert!(
        again.contains("the access of request short ended at"),
        "{again}"
    );
    Ok(())
}

#[tokio::test]
async fn openapi_request_of_api_server_is_answered_as_not_described() -> Result<()> {
    let whole = Whole::start("openapi").await?;
    eventually("the API server to ask", CONDITION_TIMEOUT, async || {
        let metrics = whole.gate.metrics().await?;
        ensure!(
            !metrics.contains("what=\"none\""),
            "something else was refused: {metrics}"
        );
        let told = metrics.contains("reason=\"OpenAPINotServed\"");
        Ok(told.then_some(()))
    })
    .await
}

#[tokio::test]
async fn without_a_gate_a_template_that_needs_one_gives_nothing() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "gateless").await?;
    scene.template(&gate_template()).await?;
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("mine", GATED, "5m")).await?;
    let status = alice.phase("mine", Phase::Denied).await?;
    let conditions = status.conditions;
    let told = conditions
        .iter()
        .any(|one| one.message.contains("the operator has no gate"));
    assert!(told, "{conditions:?}");
    Ok(())
}
