//! Bypassing the gate, or reaching more than was granted through it, by names, paths and headers.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use oz_core::access::extra::SESSION_TOKEN;
use oz_e2e::{refusal, refused};
use oz_gating::API_SERVICE;
use oz_testkit::{eventually, fixtures};
use serde_json::{Value, json};

use crate::gating::{Gated, Wire, Written, code};

/// The service account of the gate, and the groups of every service account in its namespace.
const ACCOUNT: &str = "system:serviceaccount:oz-system:oz-gate";
const GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:oz-system"];
/// Longer than a session token is valid.
const A_MINUTE: Duration = Duration::from_secs(60);

/// Claiming to be alice in headers at the gate's own port, without a certificate, with the certificate of a user, or
/// with one that names the API server's proxy but has the users' authority as its issuer: the gate responds with 401
/// to each.
#[tokio::test]
async fn headers_without_the_proxys_certificate() -> Result<()> {
    let gated = Gated::set("strangers").await?;
    gated.cluster.issue_kubeconfig("front-proxy-client", &[])?;
    let path = gated.of_pod(&gated.pod, "");
    let request = Written::get(&path)
        .header("x-remote-user", "alice")
        .header("x-remote-group", "system:masters");
    for who in [
        None,
        Some("alice"),
        Some("admin"),
        Some("front-proxy-client"),
    ] {
        let mut wire = Wire::to_gate(&gated, who).await?;
        wire.says(request.bytes()).await?;
        let answer = wire.rest().await?;
        assert_eq!(code(&answer)?, 401, "{who:?}: {answer}");
    }
    Ok(())
}

/// Connecting by another user's request, which is granted: the gate denies it with the same message as for a request
/// that does not exist.
#[tokio::test]
async fn another_persons_request() -> Result<()> {
    let gated = Gated::set("others").await?;
    let pod = gated.of_bob("bobs").await?;
    let mut answers = Vec::new();
    for request in ["bobs", "none"] {
        for rest in ["", "/log", "/exec?command=id"] {
            let rest = format!("/api/v1/namespaces/{}/pods/{pod}{rest}", gated.name());
            let path = gated.behind(request, &rest);
            let (code, answer) = gated.asked("alice", &Written::get(&path)).await?;
            let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
            answers.push((code, body.replace(request, "NAME")));
        }
    }
    let (theirs, nobodys) = answers.split_at(3);
    assert_eq!(theirs, nobodys);
    assert!(
        theirs
            .iter()
            .all(|(code, body)| *code == 403 && body.contains("alice has no grant"))
    );
    Ok(())
}

/// Connecting in another namespace by the name of the user's own request, where no such request exists: the gate
/// denies it.
#[tokio::test]
async fn a_request_of_another_namespace() -> Result<()> {
    let gated = Gated::set("elsewhere").await?;
    for namespace in ["default", "kube-system", "oz-system", "none"] {
        let start = oz_core::gate::prefix(namespace, "mine");
        let path = format!(
            "{start}/api/v1/namespaces/{}/pods/{}",
            gated.name(),
            gated.pod
        );
        gated.refuses(&path, "NoGrant").await?;
    }
    Ok(())
}

/// Connecting to another pod behind one's own request, in this namespace or in another: the gate denies it with the
/// reason `PodMismatch`.
#[tokio::test]
async fn another_pod_behind_the_prefix() -> Result<()> {
    let gated = Gated::set("other-pod").await?;
    let other = gated.other_pod()?;
    for rest in ["", "/log", "/exec?command=id"] {
        gated
            .refuses(&gated.of_pod(&other, rest), "PodMismatch")
            .await?;
        for namespace in ["kube-system", "default"] {
            let pod = format!("/api/v1/namespaces/{namespace}/pods/{}{rest}", gated.pod);
            gated
                .refuses(&gated.behind("mine", &pod), "PodMismatch")
                .await?;
        }
    }
    Ok(())
}

/// Paths with dots, double slashes, escaped slashes, dots, percent signs and NUL, or segment parameters, to another
/// pod, another request or a Secret: neither the API server nor the gate responds with success or with a Pod.
#[tokio::test]
async fn paths_that_could_be_read_in_two_ways() -> Result<()> {
    let gated = Gated::set("paths").await?;
    let (pod, other) = (&gated.pod, gated.other_pod()?);
    gated.of_bob("bobs").await?;
    for path in [
        gated.of_pod(pod, &format!("/../{other}")),
        gated.of_pod(pod, &format!("/exec/../../{other}")),
        gated.of_pod("..%2f..%2f..%2fsecrets", ""),
        gated.of_pod("%2e%2e/%2e%2e/secrets", ""),
        gated.of_pod(&format!("{other}%2flog"), ""),
        gated.of_pod(&format!("{pod}%2f..%2f{other}"), ""),
        gated.of_pod(&format!("{pod}%252flog"), ""),
        gated.of_pod(&format!("/{other}"), ""),
        gated.of_pod(pod, "//portforward"),
        gated.of_pod(pod, ";pod=x/log"),
        gated.of_pod(pod, "%00/log"),
        gated.of_pod(pod, "/log/"),
        gated.of_pod(&pod.to_uppercase(), "/log"),
        gated.behind("mine", "//api/v1/nodes"),
        gated.behind("mine", "/../../bobs/proxy/api"),
        gated.behind("mine%2f..%2fbobs", "/api"),
        gated.behind(
            "mine",
            "/../../../../../../../../api/v1/namespaces/kube-system/secrets",
        ),
    ] {
        let (code, answer) = gated.asked("alice", &Written::get(&path)).await?;
        assert!(code >= 300, "{path}: {answer}");
        assert!(!answer.contains("\"kind\":\"Pod\""), "{path}: {answer}");
    }
    Ok(())
}

/// Hiding another user's request in a body with two contradictory lengths, directly at the gate and through the API
/// server: the gate never reads it as a request of that user.
#[tokio::test]
async fn a_request_smuggled_by_two_lengths() -> Result<()> {
    let gated = Gated::set("smuggled").await?;
    let bobs = gated.of_bob("bobs").await?;
    let somebody = format!("smuggled-into-{}", gated.name());
    let pod = format!("/api/v1/namespaces/{}/pods/{bobs}", gated.name());
    let hidden = gated.behind("bobs", &pod);
    let hidden =
        format!("GET {hidden} HTTP/1.1\r\nhost: gate\r\nx-remote-user: {somebody}\r\n\r\n");
    let in_chunks = format!("0\r\n\r\n{hidden}");
    let length = in_chunks.len().to_string();
    let path = gated.of_pod(&gated.pod, "");
    for (first, second) in [
        (
            ("content-length", length.as_str()),
            ("transfer-encoding", "chunked"),
        ),
        (("transfer-encoding", "chunked"), ("content-length", "5")),
        (("content-length", "5"), ("content-length", length.as_str())),
        (
            ("transfer-encoding", "identity"),
            ("transfer-encoding", " chunked"),
        ),
        (
            ("transfer-encoding", "xchunked"),
            ("content-length", length.as_str()),
        ),
    ] {
        let request = Written::get(&path)
            .header(first.0, first.1)
            .header(second.0, second.1)
            .body(&in_chunks);
        let mut straight = Wire::to_gate(&gated, None).await?;
        straight.says(request.bytes()).await?;
        let answer = straight.rest().await?;
        assert!(
            !answer.contains("HTTP/1.1 2"),
            "{first:?} {second:?}: {answer}"
        );
        let (code, answer) = gated.asked("alice", &request).await?;
        assert!(code >= 400, "{first:?} {second:?}: {answer}");
    }
    let process = &gated.gate.process;
    for file in [process.stdout(), process.stderr()] {
        assert!(!std::fs::read_to_string(file)?.contains(&somebody));
    }
    Ok(())
}

/// Sending a body with a request, with a session or without: the gate responds with 400.
#[tokio::test]
async fn a_body() -> Result<()> {
    let gated = Gated::set("body").await?;
    let (looks, runs) = (
        gated.of_pod(&gated.pod, ""),
        gated.of_pod(&gated.pod, "/exec?command=id"),
    );
    let (channels, chunks) = ("v5.channel.k8s.io", "5\r\nhello\r\n0\r\n\r\n");
    for request in [
        Written::get(&looks),
        Written::new("POST", &runs),
        Written::get(&runs).upgrading(channels),
    ] {
        for request in [
            request.clone().header("content-length", "5").body("hello"),
            request.header("transfer-encoding", "chunked").body(chunks),
        ] {
            let mut wire = Wire::to_api_server(&gated, "alice").await?;
            wire.says(request.bytes()).await?;
            let head = wire.head().await?;
            assert_eq!(code(&head)?, 400, "{request:?}: {head}");
        }
    }
    Ok(())
}

/// Claiming another user, a group or a session token in the headers of the API server's proxy, through the API
/// server: the API server drops the headers, and the gate sees the authenticated user.
#[tokio::test]
async fn ones_own_word_in_the_proxys_headers() -> Result<()> {
    let gated = Gated::set("headers").await?;
    let pod = gated.of_bob("bobs").await?;
    let pod = format!("/api/v1/namespaces/{}/pods/{pod}", gated.name());
    let (bobs, mine) = (gated.behind("bobs", &pod), gated.of_pod(&gated.pod, ""));
    for name in [
        "X-Remote-User",
        "x-remote-user",
        "X_Remote_User",
        "X-Remote-User ",
    ] {
        let says = |path| {
            let request = Written::get(path).header(name, "bob");
            request
                .header("X-Remote-Group", "system:masters")
                .header("X-Remote-Extra-Oz-Ticket", "forged")
        };
        let (code, answer) = gated.asked("alice", &says(&bobs)).await?;
        assert!(
            code >= 400 && !answer.contains("\"kind\":\"Pod\""),
            "{answer}"
        );
        // A name that ends in a space is not a valid header name.
        let (code, answer) = gated.asked("alice", &says(&mine)).await?;
        assert_eq!(
            code,
            if name.ends_with(' ') { 400 } else { 200 },
            "{answer}"
        );
    }
    Ok(())
}

/// Impersonating the owner of a request or the gate, or only setting the header of the session token, without that
/// right: the API server denies it, both through the gate and directly.
#[tokio::test]
async fn impersonating_on_the_way() -> Result<()> {
    let gated = Gated::set("impersonating").await?;
    let pod = gated.of_bob("bobs").await?;
    let pod = format!("/api/v1/namespaces/{}/pods/{pod}", gated.name());
    let bobs = gated.behind("bobs", &pod);
    let extra = format!("Impersonate-Extra-{SESSION_TOKEN}");
    for headers in [
        &[("Impersonate-User", "bob")][..],
        &[
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "system:masters"),
        ],
        &[("Impersonate-User", ACCOUNT), (&extra, "forged")],
        &[(&extra, "forged")],
        &[("Impersonate-Group", "system:masters")],
    ] {
        for path in [&bobs, &pod] {
            let mut request = Written::get(path);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let (code, answer) = gated.asked("alice", &request).await?;
            assert!(code >= 400, "{headers:?}: {answer}");
        }
    }
    Ok(())
}

/// Replaying a session token from the API server's audit log: the API server denies it to users without the right to
/// impersonate, and the webhook denies it to the gate's own service account after 20 s.
#[tokio::test]
async fn a_ticket_from_the_audit_log() -> Result<()> {
    let gated = Gated::set("replayed").await?;
    gated.enforce().await?;
    let log = gated.cluster.state_dir().join("audit.log");
    let ticket = eventually("a ticket in the audit log", A_MINUTE, async || {
        let opened = ["exec", &gated.pod, "--", "true"];
        gated.through_gate("alice", "mine", &opened).output()?;
        let text = std::fs::read_to_string(&log)?;
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut tickets = events.filter(|event| event["objectRef"]["namespace"] == gated.name());
        let ticket = |event: &Value| {
            let said = &event["impersonatedUser"]["extra"][SESSION_TOKEN][0];
            said.as_str().map(ToOwned::to_owned)
        };
        Ok(tickets.find_map(|event| ticket(&event)))
    })
    .await?;
    gated.cluster.issue_kubeconfig(ACCOUNT, &GROUPS)?;
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}/exec?command=id",
        gated.name(),
        gated.pod
    );
    let extra = format!("Impersonate-Extra-{SESSION_TOKEN}");
    let replayed = Written::get(&path)
        .header("Impersonate-User", ACCOUNT)
        .header(&extra, &ticket);
    for user in ["alice", "bob", "mallory"] {
        let (code, answer) = gated.asked(user, &replayed).await?;
        assert!(
            code == 403 && answer.contains("cannot impersonate"),
            "{answer}"
        );
    }
    eventually("the ticket to be good for nothing", A_MINUTE, async || {
        let (code, answer) = gated.asked(ACCOUNT, &replayed).await?;
        let refused = code == 403 && answer.contains("has no grant");
        Ok(refused.then_some(()))
    })
    .await
}

/// Unknown options, repeated options, and names with escapes: the gate responds with a client error and the reason,
/// because another component could read the request differently.
#[tokio::test]
async fn options_that_could_be_read_in_two_ways() -> Result<()> {
    let gated = Gated::set("options").await?;
    let container = fixtures::CONTAINER;
    for (rest, reason) in [
        ("/exec?command=id&user=root".to_owned(), "OptionUnknown"),
        (
            "/log?insecureSkipTLSVerifyBackend=true".to_owned(),
            "OptionUnknown",
        ),
        ("?watch=true".to_owned(), "OptionUnknown"),
        (
            format!("/exec?command=id&container={container}&container=other"),
            "OptionRepeated",
        ),
        (
            "/exec?command=id&container=..%2fother".to_owned(),
            "ContainerMalformed",
        ),
        // The API server has decoded the escape before the gate receives the request.
        (
            format!("/exec?command=id&container={container}&%63ontainer=other"),
            "OptionRepeated",
        ),
    ] {
        gated
            .refuses(&gated.of_pod(&gated.pod, &rest), reason)
            .await?;
    }
    let long = format!("/exec?command={}", "x".repeat(70_000));
    let path = gated.of_pod(&gated.pod, &long);
    let (code, answer) = gated.asked("alice", &Written::get(&path)).await?;
    ensure!((400..500).contains(&code), "{code}: {} bytes", answer.len());
    Ok(())
}

/// Other methods, and headers that override the method: the gate denies other methods, and ignores the override in a
/// read request.
#[tokio::test]
async fn other_methods() -> Result<()> {
    let gated = Gated::set("methods").await?;
    let path = gated.of_pod(&gated.pod, "");
    for method in [
        "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "CONNECT", "BREW",
    ] {
        let request = Written::new(method, &path).header("X-HTTP-Method-Override", "GET");
        let (code, answer) = gated.asked("alice", &request).await?;
        assert!(code >= 400, "{method}: {answer}");
    }
    for name in [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
    ] {
        let (code, _) = gated
            .asked("alice", &Written::get(&path).header(name, "DELETE"))
            .await?;
        assert_eq!(code, 200);
    }
    let pods: Api<Pod> = gated.api();
    assert_eq!(
        pods.get(&gated.pod).await?.metadata.deletion_timestamp,
        None
    );
    Ok(())
}

/// Reading other resources of the API server behind one's own request: the gate denies it, in the form that kubectl
/// displays.
#[tokio::test]
async fn other_groups_and_kinds() -> Result<()> {
    let gated = Gated::set("groups").await?;
    for rest in [
        "/apis/apps/v1",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/crds.wizardofoz.co/v1alpha1/accesslocks",
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/namespaces/kube-system/secrets",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
        "/metrics",
        "/healthz",
        "/",
        "",
    ] {
        let raw = gated.behind("mine", rest);
        let output = gated.kubectl("alice", &["get", "--raw", &raw]).output()?;
        let why = refusal(&output).with_context(|| format!("{raw} was answered"))?;
        ensure!(why.contains("Forbidden"), "{raw}: {why}");
    }
    Ok(())
}

/// Attaching, forwarding ports, using proxies, evicting and resizing the pod, and adding a debug container with a
/// grant for exec and logs: the gate denies it.
#[tokio::test]
async fn operations_that_were_not_granted() -> Result<()> {
    let gated = Gated::set("operations").await?;
    for rest in [
        "/attach?stdin=true",
        "/portforward?ports=80",
        "/portforward",
    ] {
        gated
            .refuses(&gated.of_pod(&gated.pod, rest), "OperationNotGranted")
            .await?;
    }
    for rest in ["/proxy", "/proxy/", "/eviction", "/status", "/resize"] {
        gated
            .refuses(&gated.of_pod(&gated.pod, rest), "PathNotServed")
            .await?;
    }
    let debug = ["debug", &gated.pod, "--image", fixtures::IMAGE];
    let output = gated.through_gate("alice", "mine", &debug).output()?;
    assert!(refusal(&output).is_some());
    let path = gated.of_pod(&gated.pod, "/ephemeralcontainers");
    let patch = Written::new("PATCH", &path).header("content-type", "application/merge-patch+json");
    let (code, answer) = gated
        .asked("alice", &patch.header("content-length", "2").body("{}"))
        .await?;
    assert_eq!(code, 403, "{answer}");
    Ok(())
}

/// Using the gate's service account for Secrets, other pods and the granted pod: RBAC denies everything outside a
/// grant, and the webhook denies connections to the granted pod without a session token.
#[tokio::test]
async fn the_gates_own_account() -> Result<()> {
    let gated = Gated::set("account").await?;
    gated.enforce().await?;
    gated.cluster.issue_kubeconfig(ACCOUNT, &GROUPS)?;
    let other = gated.other_pod()?;
    for arguments in [
        &["get", "secrets"][..],
        &["get", "pods"],
        &["exec", &other, "--", "id"],
        &["attach", &gated.pod],
        &["delete", "pod", &gated.pod],
        &["get", "secrets", "--namespace=oz-system"],
        &["get", "pods", "--namespace=kube-system"],
        &["create", "token", "oz-operator", "--namespace=oz-system"],
        &["get", "nodes"],
    ] {
        let why = refusal(&gated.kubectl(ACCOUNT, arguments).output()?);
        let why = why.with_context(|| format!("{arguments:?} was let through"))?;
        ensure!(
            why.contains("forbidden") || why.contains("Forbidden"),
            "{arguments:?}: {why}"
        );
    }
    eventually(
        "the account to be refused without a ticket",
        A_MINUTE,
        async || {
            let command = ["exec", &gated.pod, "--", "id"];
            let why = refusal(&gated.kubectl(ACCOUNT, &command).output()?);
            Ok(why
                .is_some_and(|why| why.contains("has no grant"))
                .then_some(()))
        },
    )
    .await
}

/// Redirecting the APIService of the gate to another server or deleting it, as a user with a grant: the API server
/// denies it.
#[tokio::test]
async fn the_registration_of_the_gate() -> Result<()> {
    let gated = Gated::set("registration").await?;
    let services: Api<APIService> = Api::all(gated.cluster.client("alice").await?);
    let mine = json!({"spec": {"service": {"namespace": gated.name(), "name": "mine"}}});
    let patched = services
        .patch(API_SERVICE, &PatchParams::default(), &Patch::Merge(&mine))
        .await;
    assert!(refused(patched)?.contains("cannot patch"));
    match services.delete(API_SERVICE, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403),
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}
