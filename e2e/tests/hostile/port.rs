//! Calls of the webhook's port and of the probe ports by clients other than the API server.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use oz_api::{Phase, TargetKind};
use oz_e2e::{
    Auditor, NAMESPACE, TEMPLATE, WORKLOAD, exec_request, exec_template, records_in, refused,
};
use oz_testkit::{Process, eventually, resident_memory};
use oz_trail::{Action, AuditEvent};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Stage;
use crate::bytes::connection;
use crate::posting::{ELSEWHERE, Poster, Registered, creation, first_line};

const SOON: Duration = Duration::from_secs(60);
const HOOKS: [&str; 4] = [
    "/connect-enforced",
    "/watch-v1-pod",
    "/mutate-crds-wizardofoz-co-v1alpha1-execaccessrequest",
    "/validate-crds-wizardofoz-co-v1alpha1-execaccesstemplate",
];
/// The Secret with the key in the webhook's paths.
const SECRET: &str = "oz-admission-ca";

/// Returns the resident memory of a process in MiB.
pub(crate) fn memory(process: &Process) -> Result<u64> {
    Ok(resident_memory(process.pid())? >> 10)
}

/// Returns the review of a connection of this user, as the API server sends it.
fn connection_of(user: &str) -> String {
    let mut review = connection();
    review["request"]["userInfo"]["username"] = json!(user);
    review.to_string()
}

/// Checks that the webhook responds to the API server: it denies the request of a user who is in no group of the
/// template, with that reason.
async fn the_api_server_is_answered(stage: &Stage) -> Result<()> {
    let mallory = stage.requests("mallory").await?;
    let why = refused(mallory.create(&exec_request("asks", TEMPLATE, "5m")).await)?;
    ensure!(why.contains("mallory is in none of the groups"), "{why}");
    Ok(())
}

/// Forty bodies of 8 MiB at once, without the key: the webhook responds with 404 and does not store them.
#[tokio::test]
async fn forty_big_bodies() -> Result<()> {
    let stage = Stage::set("forty").await?;
    let before = memory(&stage.oz()?.webhook.process)?;
    let calls = (0..40).map(|number| {
        let stranger = Poster::stranger(&stage);
        async move {
            stranger?
                .posts(HOOKS[number % 4], vec![b' '; 8 << 20])
                .await
        }
    });
    // The webhook may close a connection while the client still sends the body.
    for (code, _) in join_all(calls).await.into_iter().flatten() {
        assert_eq!(code, 404);
    }
    let after = memory(&stage.oz()?.webhook.process)?;
    assert!(after < before + 48, "{before} MiB before, {after} after");
    Ok(())
}

/// Announcing bodies and never sending them: the webhook responds with 404 or closes the connection, without waiting
/// for the body.
#[tokio::test]
async fn bodies_that_never_come() -> Result<()> {
    let stage = Stage::set("never").await?;
    let registered = Registered::read(&stage.admin).await?;
    let calls = (0..100).map(async |number: usize| {
        // If too many connections are open, the webhook closes one before its handshake, before its request, or without
        // a response.
        let Ok(mut stream) = registered.connect(&stage, b"http/1.1").await else {
            return Ok(false);
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: oz\r\ncontent-length: 8000000\r\n\r\n{{",
            HOOKS[number % 4]
        );
        let asked = stream.write_all(head.as_bytes()).await;
        let answer = match asked {
            Ok(()) => first_line(&mut stream).await,
            Err(_) => String::new(),
        };
        let refused = ["", "HTTP/1.1 404 Not Found"].contains(&answer.as_str());
        ensure!(refused, "{answer:?}");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap_or_default();
        Ok(!answer.is_empty())
    });
    let answered = tokio::time::timeout(SOON, try_join_all(calls)).await??;
    assert!(answered.contains(&true), "nobody was answered");
    the_api_server_is_answered(&stage).await
}

/// A body in chunks without a length: the webhook denies it before reading it, also with the key.
#[tokio::test]
async fn bodies_in_chunks() -> Result<()> {
    let stage = Stage::set("chunks").await?;
    let registered = Registered::read(&stage.admin).await?;
    for (key, wanted) in [
        ("", "HTTP/1.1 404 Not Found"),
        (&registered.key, "HTTP/1.1 411 Length Required"),
    ] {
        let mut stream = registered.connect(&stage, b"http/1.1").await?;
        let head = format!(
            "POST {key}{} HTTP/1.1\r\nhost: oz\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{{\r\n",
            HOOKS[0]
        );
        stream.write_all(head.as_bytes()).await?;
        let answer = tokio::time::timeout(SOON, first_line(&mut stream)).await?;
        assert_eq!(answer, wanted);
    }
    Ok(())
}

/// Sending the webhook a review of a session that did not occur, without the key: the webhook responds with 404,
/// nothing is recorded, and the audit trail is complete.
#[tokio::test]
async fn forged_sessions() -> Result<()> {
    let stage = Stage::set("forged").await?;
    let auditor = Auditor::pinning(&stage.admin).await?;
    let stranger = Poster::stranger(&stage)?;
    for path in ["/connect-enforced", "/watch-v1-pod", "/connect-break-glass"] {
        let (code, answer) = stranger.posts(path, connection_of("victor")).await?;
        assert_eq!((code, &answer), (404, &Value::Null), "{path}");
    }
    // The webhook records later events, and not the forged ones.
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    nothing_of(&stage, &["victor"]).await?;
    let problems = auditor.report().await?.problems;
    assert!(problems.is_empty(), "{problems:#?}");
    Ok(())
}

/// Fails if the log of the webhook, or an AuditEvent, names one of these users.
async fn nothing_of(stage: &Stage, users: &[&str]) -> Result<()> {
    for record in records_in(&stage.oz()?.webhook.process)? {
        let text = serde_json::to_string(&record)?;
        ensure!(!users.iter().any(|user| text.contains(user)), "{text}");
    }
    let events: Api<AuditEvent> = Api::all(stage.admin.clone());
    for event in events.list(&ListParams::default()).await? {
        let text = serde_json::to_string(&event.spec)?;
        ensure!(!users.iter().any(|user| text.contains(user)), "{text}");
    }
    Ok(())
}

/// Sending forged sessions of a thousand users over twenty connections, without the key: the webhook responds with 404
/// to each, and records none.
#[tokio::test]
async fn a_flood_of_records() -> Result<()> {
    let stage = Stage::set("flood").await?;
    let calls = (0..20).map(|connection: usize| {
        let stranger = Poster::stranger(&stage);
        async move {
            let stranger = stranger?;
            for number in 0..50 {
                let body = connection_of(&format!("flooder-{connection}-{number}"));
                // Each denial closes the connection, so the next call may find it closed.
                if let Ok((code, _)) = stranger.posts("/connect-enforced", body).await {
                    ensure!(code == 404, "{code}");
                }
            }
            Ok(())
        }
    });
    try_join_all(calls).await?;
    nothing_of(&stage, &["flooder"]).await?;
    the_api_server_is_answered(&stage).await
}

/// Forging a session with the key, which errors of the API server show, from an address that no API server has: the
/// webhook responds, and records the caller as unproven with its address; `verify` names the address, and no session
/// from an API server is marked or counted with it.
#[tokio::test]
async fn forged_session_with_the_key_is_recorded_as_unproven() -> Result<()> {
    let stage = Stage::set("unproven").await?;
    let auditor = Auditor::pinning(&stage.admin).await?;
    let registered = Registered::read(&stage.admin).await?;
    for path in ["/watch-v1-pod", "/connect-break-glass"] {
        let forged = connection_of("victoria");
        let (code, answer) = registered
            .post_from_elsewhere(&stage, path, &forged)
            .await?;
        assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(true)));
    }
    let elsewhere = ELSEWHERE.to_string();
    let records = records_in(&stage.oz()?.webhook.process)?;
    let forged: Vec<_> = records
        .iter()
        .filter(|record| {
            record
                .user
                .as_ref()
                .is_some_and(|user| user.user == "victoria")
        })
        .collect();
    ensure!(forged.len() >= 2, "{forged:?}");
    for record in forged {
        assert_eq!(
            record.unproven_peer(),
            Some(elsewhere.as_str()),
            "{record:?}"
        );
        // An unproven record requires no access review.
        assert!(!record.details.contains_key("reviewUntil"), "{record:?}");
    }
    let metrics = stage.oz()?.webhook.metrics().await?;
    ensure!(
        metrics.contains("oz_audit_unproven_records_total "),
        "{metrics}"
    );
    eventually("a session that an API server tells of", SOON, async || {
        let asked = stage
            .exec("admin", &[&stage.pod()?, "--", "true"])
            .output()?;
        ensure!(asked.status.success(), "{asked:?}");
        let records = records_in(&stage.oz()?.webhook.process)?;
        let proven = records.iter().any(|record| {
            record.action == Action::SessionOpened
                && record.request.namespace == stage.name()
                && record.unproven_peer().is_none()
        });
        Ok(proven.then_some(()))
    })
    .await?;
    let report = eventually("verify to name the caller", SOON, async || {
        let report = auditor.report().await?;
        let named = report
            .unproven_callers
            .iter()
            .any(|one| one.peer == elsewhere);
        Ok(named.then_some(report))
    })
    .await?;
    ensure!(report.problems.is_empty(), "{:#?}", report.problems);
    ensure!(report.notes.iter().any(|note| note.contains(&elsewhere)));
    Ok(())
}

/// Sending forged sessions of a thousand users with the key, from an address that no API server has: the webhook
/// records them within a quota of 300 a minute, each as unproven, and still responds to the API server.
#[tokio::test]
async fn flood_of_forged_sessions_with_the_key_is_bounded() -> Result<()> {
    let stage = Stage::alone("unproven-flood").await?;
    let registered = Registered::read(&stage.admin).await?;
    let calls = (0..1_000).map(|number| {
        let (stage, registered) = (&stage, &registered);
        async move {
            let forged = connection_of(&format!("inundator-{number}"));
            let answered = registered.post_from_elsewhere(stage, "/watch-v1-pod", &forged);
            answered.await.map(|(code, _)| code)
        }
    });
    let answered = futures::stream::iter(calls).buffer_unordered(20);
    let answered: Vec<_> = answered.collect().await;
    ensure!(
        answered.iter().any(|one| matches!(one, Ok(200))),
        "{answered:?}"
    );
    the_api_server_is_answered(&stage).await?;
    let records = records_in(&stage.oz()?.webhook.process)?;
    let forged = records.iter().filter(|record| {
        record
            .user
            .as_ref()
            .is_some_and(|user| user.user.starts_with("inundator"))
    });
    let forged: Vec<_> = forged.collect();
    // The quota of one minute, and the part of it that becomes available during the test.
    ensure!(forged.len() < 800, "{} records", forged.len());
    ensure!(forged.iter().all(|record| record.unproven_peer().is_some()));
    Ok(())
}

/// Querying a user's rights through the webhook with the key, from an address that no API server has: the webhook
/// passes a few queries to the API server, and then denies further ones for a while.
#[tokio::test]
async fn permission_questions_with_key_are_limited() -> Result<()> {
    let stage = Stage::alone("oracle-key").await?;
    let registered = Registered::read(&stage.admin).await?;
    let template = exec_template("asks", TargetKind::Deployment, WORKLOAD);
    let mut review = creation(stage.name(), &template)?;
    review["request"]["dryRun"] = json!(true);
    let review = review.to_string();
    let refused = eventually("a question that is not passed on", SOON, async || {
        let asked = registered.post_from_elsewhere(&stage, HOOKS[3], &review);
        let (code, answer) = asked.await?;
        ensure!(code == 200, "{code}");
        let status = &answer["response"]["status"];
        let refused = status["reason"] == "PermissionsUnknown";
        Ok(refused.then(|| status["message"].to_string()))
    })
    .await?;
    ensure!(refused.contains("not known as API servers"), "{refused}");
    the_api_server_is_answered(&stage).await
}

/// Fourteen dry runs at once of a request of 2.5 MB, in three rounds, by which the API server would give up calls and
/// show the key: each is denied, and the webhook still responds to the API server.
#[tokio::test]
async fn large_dry_runs_do_not_block_other_requests() -> Result<()> {
    const AT_ONCE: usize = 14;
    const ROUNDS: usize = 3;
    let stage = Stage::alone("large-dry-runs").await?;
    let alice = stage.requests("alice").await?;
    let mut large = exec_request("large", TEMPLATE, "5m");
    large.spec.reason = Some("x".repeat(2_500_000));
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for _ in 0..ROUNDS {
        let asked = (0..AT_ONCE).map(|_| alice.api().create(&dry_run, &large));
        for answer in join_all(asked).await {
            ensure!(answer.is_err(), "a reason of 2.5 MB was let in");
        }
    }
    the_api_server_is_answered(&stage).await
}

/// Querying a user's rights through the webhook with a template in that user's name, without the key: the webhook
/// responds with 404 and no review.
#[tokio::test]
async fn permission_question_without_key_gets_404() -> Result<()> {
    let stage = Stage::set("oracle").await?;
    let template = exec_template("asks", TargetKind::Deployment, WORKLOAD);
    let mut review = creation(stage.name(), &template)?;
    review["request"]["dryRun"] = json!(true);
    let review = review.to_string();
    let (code, answer) = Poster::stranger(&stage)?
        .posts(HOOKS[3], review.clone())
        .await?;
    assert_eq!((code, &answer), (404, &Value::Null));
    // The same query with the key has a response.
    let (code, answer) = Poster::knowing(&stage)
        .await?
        .posts(HOOKS[3], review)
        .await?;
    assert_eq!(code, 200);
    assert!(answer["response"]["allowed"].is_boolean(), "{answer}");
    Ok(())
}

/// Calling paths without the key, with a guessed key, with a part of the key, or in upper case: the webhook responds
/// with 404 and an empty body to each.
#[tokio::test]
async fn keys_that_are_none() -> Result<()> {
    let stage = Stage::set("keys").await?;
    let key = Registered::read(&stage.admin).await?.key;
    let (short, long) = (&key[..key.len().saturating_sub(1)], format!("{key}0"));
    let upper = format!("{key}/A").to_ascii_uppercase();
    for guess in [
        String::new(),
        format!("/{}", "0".repeat(32)),
        short.to_owned(),
        long,
        upper,
        format!("/{key}"),
        format!("{key}/.."),
        "/mutate".to_owned(),
    ] {
        let poster = Poster::saying(&stage, &guess)?;
        for path in HOOKS {
            let (code, answer) = poster.posts(path, connection().to_string()).await?;
            assert_eq!((code, &answer), (404, &Value::Null), "{guess}{path}");
        }
    }
    Ok(())
}

/// Holding an HTTP/2 connection that acknowledges every ping and sends no request: the webhook closes it.
#[tokio::test]
async fn http2_connections_that_idle() -> Result<()> {
    const HEAD: usize = 9;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    let stage = Stage::set("idle").await?;
    let registered = Registered::read(&stage.admin).await?;
    let mut stream = registered.connect(&stage, b"h2").await?;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await?;
    let living = async {
        loop {
            let mut head = [0; HEAD];
            if stream.read_exact(&mut head).await.is_err() {
                return;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            if stream.read_exact(&mut payload).await.is_err() {
                return;
            }
            // Acknowledges each frame that is not an acknowledgement.
            if matches!(head[3], SETTINGS | PING) && head[4] & 1 == 0 {
                let payload = if head[3] == PING { payload } else { Vec::new() };
                let length = u8::try_from(payload.len()).unwrap_or_default();
                let mut frame = vec![0, 0, length, head[3], 1, 0, 0, 0, 0];
                frame.extend(payload);
                if stream.write_all(&frame).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(SOON, living)
        .await
        .context("the connection lives on")
}

/// Opening twelve hundred connections from one address that complete the handshake and send nothing: the webhook keeps
/// at most 300 open, and responds to the API server at the same address.
#[tokio::test]
async fn a_crowd_from_one_address() -> Result<()> {
    let stage = Stage::set("crowd").await?;
    let registered = Registered::read(&stage.admin).await?;
    let mut crowd = Vec::new();
    for _ in 0..12 {
        let some = (0..100).map(|_| registered.connect(&stage, b"h2"));
        crowd.extend(join_all(some).await.into_iter().flatten());
    }
    the_api_server_is_answered(&stage).await?;
    let metrics = stage.oz()?.webhook.metrics().await?;
    let open = metrics
        .lines()
        .find_map(|line| line.strip_prefix("admission_connections "))
        .context("no such metric")?;
    assert!(open.parse::<u32>()? <= 300, "{open} are open");
    // A new connection is accepted, regardless of the number of idle ones.
    let mut stream = registered.connect(&stage, b"http/1.1").await?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: oz\r\n\r\n")
        .await?;
    assert_eq!(first_line(&mut stream).await, "HTTP/1.1 404 Not Found");
    drop(crowd);
    Ok(())
}

/// Opening idle connections to the ports of probes and metrics: the processes keep few open, and respond to probes.
#[tokio::test]
async fn a_crowd_at_the_probes() -> Result<()> {
    let stage = Stage::set("probes").await?;
    let oz = stage.oz()?;
    for address in [oz.webhook.probes(), oz.operator.probes()] {
        let mut crowd = try_join_all((0..300).map(|_| TcpStream::connect(address))).await?;
        let mut probe = TcpStream::connect(address).await?;
        probe.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        tokio::time::timeout(SOON, probe.read_to_string(&mut answer)).await??;
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        // The process closes all but a few.
        eventually("the crowd to be sent home", SOON, async || {
            let mut held = 0;
            for stream in &mut crowd {
                let mut byte = [0];
                let read = stream.read(&mut byte);
                if tokio::time::timeout(Duration::ZERO, read).await.is_err() {
                    held += 1;
                }
            }
            Ok((held <= 100).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// A RoleBinding to the Role of a grant with a subject of 1.4 million `<`, each of which takes six bytes in a review:
/// the API server denies it.
#[tokio::test]
async fn a_binding_too_large_to_ask_about() -> Result<()> {
    let stage = Stage::set("large").await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, "10m"))
        .await?;
    let group = json!(["rbac.authorization.k8s.io"]);
    let rules = [
        json!({"apiGroups": group, "resources": ["rolebindings"], "verbs": ["create"]}),
        json!({"apiGroups": group, "resources": ["roles"], "verbs": ["bind"]}),
    ];
    stage.allow("binder", "mallory", &rules).await?;
    let bindings: Api<RoleBinding> =
        Api::namespaced(stage.cluster.client("mallory").await?, stage.name());
    let subject = |name: String| {
        let binding = json!({
            "metadata": {"name": "waits"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": asked.role_name()},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name},
            ],
        });
        serde_json::from_value::<RoleBinding>(binding)
    };
    let large = subject("<".repeat(1_410_000))?;
    let why = eventually("mallory to be allowed to ask", SOON, async || {
        let why = refused(bindings.create(&PostParams::default(), &large).await)?;
        Ok((!why.contains("cannot create")).then_some(why))
    })
    .await?;
    assert!(why.contains("reserved for Roles that oz creates"), "{why}");
    Ok(())
}

/// Six dry runs at once of a request with 2.5 MB of managed fields, with the key: the webhook responds to each, and its
/// memory grows by less than 96 MiB.
#[tokio::test]
async fn dry_runs_of_fat_objects() -> Result<()> {
    let stage = Stage::set("fat").await?;
    let mut review = creation(stage.name(), &exec_request("fat", TEMPLATE, "5m"))?;
    review["request"]["dryRun"] = json!(true);
    let fields: serde_json::Map<String, Value> = (0..180_000)
        .map(|number| (format!("f:a{number}"), json!({})))
        .collect();
    review["request"]["object"]["metadata"]["managedFields"] = json!([{
        "manager": "mallory", "operation": "Update", "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": fields}},
    }]);
    let review = review.to_string();
    let api_server = Poster::knowing(&stage).await?;
    let before = memory(&stage.oz()?.webhook.process)?;
    for answer in join_all((0..6).map(|_| api_server.posts(HOOKS[2], review.clone()))).await {
        let (code, answer) = answer?;
        assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(true)));
    }
    let after = memory(&stage.oz()?.webhook.process)?;
    assert!(after < before + 96, "{before} MiB before, {after} after");
    Ok(())
}

/// Rotating the key of the paths while users create requests: no request is denied, and the old key remains valid for a
/// while, and then becomes invalid.
#[tokio::test]
async fn the_key_of_yesterday() -> Result<()> {
    let stage = Stage::set("yesterday").await?;
    let secrets: Api<Secret> = Api::namespaced(stage.admin.clone(), NAMESPACE);
    let before = Registered::read(&stage.admin).await?.key;
    let rotate = json!({"metadata": {"annotations": {"oz-admission/rotate": before}}});
    secrets
        .patch(SECRET, &PatchParams::default(), &Patch::Merge(rotate))
        .await?;
    let alice = stage.requests("alice").await?;
    let mut number = 0;
    let after = eventually("another key to be registered", SOON * 2, async || {
        number += 1;
        // The webhook accepts whichever key the API server has.
        let name = format!("asks-{number}");
        if let Err(error) = alice.create(&exec_request(&name, TEMPLATE, "5m")).await {
            bail!("{error}");
        }
        if number > 1 {
            alice.api().delete(&name, &DeleteParams::default()).await?;
        }
        let now = Registered::read(&stage.admin).await?.key;
        Ok((now != before).then_some(now))
    })
    .await?;
    let answers = async |key: &str| -> Result<u16> {
        let poster = Poster::saying(&stage, key)?;
        Ok(poster.posts(HOOKS[0], "no review").await?.0)
    };
    assert_eq!(answers(&after).await?, 400);
    assert_eq!(
        answers(&before).await?,
        400,
        "the previous key, for a while"
    );
    let forget = json!({"data": {"path-key-previous": null}});
    secrets
        .patch(SECRET, &PatchParams::default(), &Patch::Merge(forget))
        .await?;
    eventually("the old key to be worth nothing", SOON, async || {
        Ok((answers(&before).await? == 404).then_some(()))
    })
    .await?;
    assert_eq!(answers(&after).await?, 400);
    alice.phase("asks-1", Phase::Active).await?;
    Ok(())
}
