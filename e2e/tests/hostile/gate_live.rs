//! Listing, watching and ending open sessions without the right to, and moderating one's own session.

use anyhow::{Context as _, Result, ensure};
use oz_api::ModerationConfig;
use oz_e2e::{exec_request, gate_template};
use oz_gating::live::{Listing, State, sessions};
use oz_gating::peer::HEADER;
use oz_testkit::{CONDITION_TIMEOUT, eventually};

use crate::gating::{Gated, Wire, Written, code, gets_in};

/// Parses the JSON in the body of a response that has a length or is sent in chunks.
fn listing(answer: &str) -> Result<Listing> {
    let (from, to) = (answer.find('{'), answer.rfind('}'));
    let (from, to) = from
        .zip(to)
        .with_context(|| format!("no document: {answer}"))?;
    Ok(serde_json::from_str(&answer[from..=to])?)
}

/// Returns the open sessions of a request, as a user with the right to list them.
async fn open(gated: &Gated, user: &str, request: &str) -> Result<Listing> {
    let path = sessions(gated.name(), request);
    let (code, answer) = gated.asked(user, &Written::get(&path)).await?;
    ensure!(code == 200, "{answer}");
    listing(&answer)
}

/// Waits until the session of a request is open.
async fn opens(gated: &Gated, user: &str, request: &str) -> Result<()> {
    eventually("the session to open", CONDITION_TIMEOUT, async || {
        let found = open(gated, user, request).await?;
        let mut states = found.sessions.iter().map(|one| &one.state);
        ensure!(states.any(|state| *state == State::Open), "{found:?}");
        Ok(Some(()))
    })
    .await
}

/// Permits a group to moderate sessions in the scene, and returns a user in the group.
async fn moderator(gated: &Gated, group: &str) -> Result<String> {
    gated.may_moderate_sessions(group).await?;
    Ok(format!("{}-{group}", gated.name()))
}

/// Listing, watching and ending an open session without the right, as its user and as another user: the API server
/// denies it, and the session stays open.
#[tokio::test]
async fn live_sessions_without_the_right() -> Result<()> {
    let gated = Gated::set("live").await?;
    let moderator = moderator(&gated, "moderators").await?;
    let mut wire = gated.session("alice", "mine", &gated.pod).await?;
    wire.hears(b"here\n").await?;
    let found = open(&gated, &moderator, "mine").await?;
    let [one] = found.sessions.as_slice() else {
        anyhow::bail!("not one session: {found:?}");
    };
    let list = sessions(gated.name(), "mine");
    let name = one.session.rsplit('/').next().unwrap_or_default();
    let session = format!("{list}/{name}");
    let watched = session.replace("/sessions/", "/log/");
    for user in ["alice", "bob"] {
        for (method, path) in [
            ("GET", &list),
            ("GET", &session),
            ("GET", &watched),
            ("DELETE", &session),
        ] {
            let (code, answer) = gated.asked(user, &Written::new(method, path)).await?;
            assert_eq!(code, 403, "{user} {method} {path}: {answer}");
        }
    }
    let found = open(&gated, &moderator, "mine").await?;
    assert_eq!(found.sessions.len(), 1, "{found:?}");
    Ok(())
}

/// Watching or ending a session of another namespace, by its name there and by its name behind a request of the
/// user's own namespace: the API server denies the first, the gate does not find the second, and the session stays
/// open.
#[tokio::test]
async fn a_live_session_of_another_namespace() -> Result<()> {
    let (one, other) = (Gated::set("live-a").await?, Gated::set("live-b").await?);
    let (theirs, others) = (
        moderator(&one, "of-one").await?,
        moderator(&other, "of-other").await?,
    );
    let mut wire = other.session("alice", "mine", &other.pod).await?;
    wire.hears(b"here\n").await?;
    let found = open(&other, &others, "mine").await?;
    let session = found.sessions.first().context("no session")?;
    let name = session.session.rsplit('/').next().unwrap_or_default();
    let there = format!("{}/{name}", sessions(other.name(), "mine"));
    let here = format!("{}/{name}", sessions(one.name(), "mine"));
    for (path, expected) in [(there, 403), (here, 404)] {
        for path in [path.clone(), path.replace("/sessions/", "/log/")] {
            let (code, answer) = one.asked(&theirs, &Written::get(&path)).await?;
            assert_eq!(code, expected, "{path}: {answer}");
        }
        let (code, answer) = one.asked(&theirs, &Written::new("DELETE", &path)).await?;
        assert_eq!(code, expected, "{path}: {answer}");
    }
    assert_eq!(open(&other, &others, "mine").await?.sessions.len(), 1);
    Ok(())
}

/// Forging the peer token by which replicas of the gate trust each other, at the gate's own port and through the API
/// server: the gate responds with 401 at its port, and ignores the token behind the API server.
#[tokio::test]
async fn a_forged_word_of_a_replica() -> Result<()> {
    let gated = Gated::set("words").await?;
    let list = sessions(gated.name(), "mine");
    let pod = gated.of_pod(&gated.pod, "");
    let long = "A".repeat(60 << 10);
    for word in ["", "e30", "eyJ1c2VyIjoiYWRtaW4ifQ", "!", &long] {
        for path in [&list, &pod] {
            let request = Written::get(path).header(HEADER, word);
            let mut wire = Wire::to_gate(&gated, None).await?;
            wire.says(request.bytes()).await?;
            let answer = wire.rest().await?;
            assert_eq!(code(&answer)?, 401, "{path}: {answer}");
        }
    }
    let list = Written::get(&list).header(HEADER, "e30");
    assert_eq!(gated.asked("alice", &list).await?.0, 403);
    let pod = Written::get(&pod).header(HEADER, "e30");
    let (code, answer) = gated.asked("alice", &pod).await?;
    assert_eq!(code, 200, "{answer}");
    Ok(())
}

/// Names of sessions with dots, slashes, escapes, control characters or excessive length, and unknown or repeated
/// options, as a user who may end sessions: each request gets a redirect or a client error, and the open session
/// stays open.
#[tokio::test]
async fn names_of_sessions_that_could_be_read_in_two_ways() -> Result<()> {
    let gated = Gated::set("names").await?;
    let moderator = moderator(&gated, "moderators").await?;
    let mut wire = gated.session("alice", "mine", &gated.pod).await?;
    wire.hears(b"here\n").await?;
    let list = sessions(gated.name(), "mine");
    let found = open(&gated, &moderator, "mine").await?;
    let session = found.sessions.first().context("no session")?;
    let name = session.session.rsplit('/').next().unwrap_or_default();
    let long = "a".repeat(4_000);
    for odd in [
        "..",
        "%2e%2e",
        "%2f",
        "a%2fb",
        "%00",
        "%1b%5b2J",
        "A",
        "a//b",
        &long,
        &format!("{name}%20"),
        &format!("{name}/"),
        &format!("./{name}%00"),
        &format!("{name}?reason=%0d%0aset"),
        &format!("{name}?reason=a&reason=b"),
        &format!("{name}?force=true"),
    ] {
        let path = format!("{list}/{odd}");
        let (code, answer) = gated
            .asked(&moderator, &Written::new("DELETE", &path))
            .await?;
        ensure!((300..500).contains(&code), "{odd}: {answer}");
        let path = path.replace("/sessions/", "/log/");
        let path = path.split('?').next().unwrap_or_default();
        if !path.ends_with(name) {
            let (code, answer) = gated.asked(&moderator, &Written::get(path)).await?;
            ensure!((300..500).contains(&code), "{odd}: {answer}");
        }
    }
    assert_eq!(open(&gated, &moderator, "mine").await?.sessions.len(), 1);
    Ok(())
}

/// Watching one's own session that requires a moderator, under one's own name and under another name with the same
/// UID from the identity provider: neither viewer counts, and the session does not open. Before Kubernetes 1.33, the
/// other name counts.
#[tokio::test]
async fn being_ones_own_moderator() -> Result<()> {
    let gated = Gated::set("own").await?;
    let moderator = moderator(&gated, "moderators").await?;
    let mut template = gate_template();
    template.metadata.name = Some("moderated".to_owned());
    template.spec.access_config.moderation = Some(ModerationConfig {
        viewers: 1,
        groups: vec!["moderators".to_owned()],
    });
    gated.template(&template).await?;
    let alice = gated.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("watched", "moderated", "10m"))
        .await?;
    let pod = asked.pod();
    let pods = format!("/api/v1/namespaces/{}/pods/{pod}", gated.name());
    let of_pod = gated.behind("watched", &pods);
    eventually(
        "alice to get as far as the pod",
        CONDITION_TIMEOUT,
        async || {
            let (code, _) = gated.asked("alice", &Written::get(&of_pod)).await?;
            Ok((code == 200).then_some(()))
        },
    )
    .await?;
    // An administrator impersonates users with the name, UID and groups that an identity provider would assert.
    let known_as = |request: Written<'static>, name: &'static str| {
        request
            .header("impersonate-user", name)
            .header("impersonate-uid", "id-of-alice")
            .header("impersonate-group", "devs")
            .header("impersonate-group", "moderators")
    };
    let path: &'static str = format!("{of_pod}/exec?command=cat&stdin=true&stdout=true").leak();
    let request = known_as(Written::get(path).upgrading("v5.channel.k8s.io"), "alice");
    let mut session = Wire::to_api_server(&gated, "admin").await?;
    session.says(request.bytes()).await?;
    let waits = async |watchers: usize| {
        eventually("a session that waits", CONDITION_TIMEOUT, async || {
            let found = open(&gated, &moderator, "watched").await?;
            let one = found
                .sessions
                .first()
                .with_context(|| format!("{found:?}"))?;
            let so = one.state == State::Waiting && one.watchers.len() == watchers;
            ensure!(so, "{one:?}");
            Ok(Some(one.session.clone()))
        })
        .await
    };
    let name = waits(0).await?;
    let name = name.rsplit('/').next().unwrap_or_default();
    let path = format!("{}/{name}", sessions(gated.name(), "watched"));
    let path: &'static str = path.replace("/sessions/", "/log/").leak();
    let mut watching = Vec::new();
    for (count, who) in [(1, "alice"), (2, "alice-admin")] {
        let mut wire = Wire::to_api_server(&gated, "admin").await?;
        wire.says(known_as(Written::get(path), who).bytes()).await?;
        let head = wire.head().await?;
        ensure!(code(&head)? == 200, "{head}");
        watching.push(wire);
        if count == 2 && !gated.cluster.forwards_uids()? {
            // The gate receives no UID, so the other name is another viewer: docs/reference/kubernetes.md.
            return opens(&gated, &moderator, "watched").await;
        }
        waits(count).await?;
    }
    drop(watching);
    waits(0).await?;
    gets_in(&gated, "alice", "mine", &gated.pod).await
}
