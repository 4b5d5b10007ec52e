//! Manifests of the published shapes are read, and come back as they were written.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop where they fail, too"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use oz_api::harness::*;
use oz_api::kind::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The limit of a definition, which each client downloads. That of the API server is far greater.
const MAX_DEFINITION: usize = 64 * 1024;

/// Returns the definitions of the kinds of harness runs.
fn crds() -> Vec<CustomResourceDefinition> {
    let all = [
        BrokerPolicy::definition(),
        ClusterHarnessTemplate::definition(),
        HarnessRun::definition(),
        HarnessTemplate::definition(),
        Workspace::definition(),
    ];
    all.into_iter().flatten().collect()
}

fn kept<T: Serialize + DeserializeOwned>(yaml: &str) -> T {
    let written: Value = serde_saphyr::from_str(yaml).unwrap();
    let read: T = serde_json::from_value(written.clone()).unwrap();
    let again = serde_json::to_value(&read).unwrap();
    contains(&again, &written, "");
    read
}

/// Asserts that all written fields are present, regardless of defaults.
fn contains(have: &Value, want: &Value, path: &str) {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => {
            for (name, value) in want {
                let path = format!("{path}.{name}");
                let found = have.get(name).unwrap_or_else(|| panic!("{path} is lost"));
                contains(found, value, &path);
            }
        }
        (Value::Array(have), Value::Array(want)) => {
            assert_eq!(have.len(), want.len(), "{path}");
            for (number, (have, want)) in have.iter().zip(want).enumerate() {
                contains(have, want, &format!("{path}[{number}]"));
            }
        }
        _ => assert_eq!(have, want, "{path}"),
    }
}

#[test]
fn templates_of_the_published_shape_are_read() {
    let cluster: ClusterHarnessTemplate = kept(
        r"
        apiVersion: paddock.dev/v1alpha1
        kind: ClusterHarnessTemplate
        metadata: {name: parrot}
        spec:
          harness: parrot
          image: parrot:1
          command: [/bin/parrot]
          args: [--once]
          runtime: {image: 'parrot-runtime:1', imagePullPolicy: Never}
          defaults: {model: none, timeout: 30s, terminationGracePeriodSeconds: 0, resources: {limits: {cpu: '1'}}}
          requires:
            credentials: [{name: PARROT_KEY}]
            egress: [{host: api.parrot.example, ports: [443]}, {host: '*.parrot.example'}]
          workspace: {required: false, mountPath: /src}
          podTemplateOverlay:
            metadata: {labels: {team: birds}}
            spec: {nodeSelector: {disk: fast}, somethingNew: {deep: [1, true]}}
          interactive:
            mode: persistent-process
            idleTimeout: 10m
            detachIdleTimeout: 5m
            detachTimeout: 1m
            maxLifetime: 8h
            maxRecentEvents: 100
        ",
    );
    assert_eq!(cluster.spec.0.command, ["/bin/parrot"]);
    let team: HarnessTemplate = kept(
        r"
        apiVersion: paddock.dev/v1alpha1
        kind: HarnessTemplate
        metadata: {name: parrot-team, namespace: birds}
        spec:
          baseTemplateRef: {name: parrot}
          defaults: {timeout: 1m}
        ",
    );
    assert_eq!(team.spec.image, None);
    assert_eq!(team.spec.workspace, None);
}

#[test]
fn runs_of_the_published_shape_are_read() {
    let run: HarnessRun = kept(
        r"
        apiVersion: paddock.dev/v1alpha1
        kind: HarnessRun
        metadata: {name: squawk, namespace: birds}
        spec:
          templateRef: {name: parrot-team, kind: HarnessTemplate}
          workspaceRef: cage
          prompt: |
            Say something.
          timeout: 45s
        ",
    );
    assert_eq!(run.spec.retries, 0);
    assert_eq!(run.spec.mode, RunMode::Unset);
    let run: HarnessRun = kept(
        r"
        apiVersion: paddock.dev/v1alpha1
        kind: HarnessRun
        metadata: {name: squawk, namespace: birds}
        spec:
          templateRef: {name: parrot}
          promptFrom: {secretKeyRef: {name: prompts, key: first}}
          retries: 10
          ttlSecondsAfterFinished: 0
          extraEnv: [{name: LANG, value: C}, {name: EMPTY}]
          mode: Interactive
          interactiveOverrides: {maxLifetime: 1h}
          reason: INC-42
        status:
          phase: Idle
          jobName: squawk
          workspaceRef: squawk-ws
          startTime: '2026-01-31T09:00:00Z'
          recentEvents:
            - {schemaVersion: '1', ts: '2026-01-31T09:00:01Z', type: Message, summary: hello, fields: {a: b}}
          outputs: {pullRequests: ['https://git.example/1'], filesChanged: 3, summary: done, artifacts: [a]}
          credentials: [{name: PARROT_KEY, provider: PATPool, deliveryMode: ProxyInjected, hosts: [a.example]}]
          networkPolicyEnforced: true
          issuedLeases:
            - provider: PATPool
              leaseID: pat-00000000
              credentialName: PARROT_KEY
              expiresAt: '2026-01-31T10:00:00Z'
              poolRef: {secretRef: {name: pool, key: tokens}, slotIndex: 2}
          interactive: {promptCount: 2, attachedSessions: 1, currentTurnSeq: 2, renewalCount: 0}
          conditions:
            - {type: PodReady, status: 'True', reason: Ready, message: '', lastTransitionTime: '2026-01-31T09:00:00Z'}
        ",
    );
    assert_eq!(run.status.unwrap().phase, Some(RunPhase::Idle));
}

#[test]
fn workspaces_of_the_published_shape_are_read() {
    let workspace: Workspace = kept(
        r"
        apiVersion: paddock.dev/v1alpha1
        kind: Workspace
        metadata: {name: cage, namespace: birds}
        spec:
          storage: {size: 2Gi, accessMode: ReadWriteOnce}
          seed:
            repos:
              - {url: 'https://git.example/one.git', path: one, branch: main, depth: 1}
              - {url: 'ssh://git@git.example/two.git', path: two, credentialsSecretRef: {name: key}}
              - {url: 'https://git.example/three.git', path: three, brokerCredentialRef: {name: T, key: t}}
        status: {phase: Active, pvcName: ws-cage, seedJobName: cage-seed, activeRunRef: squawk, totalRuns: 3,
          lastCountedRun: squawk, lastActivity: '2026-01-31T09:00:00Z'}
        ",
    );
    assert_eq!(workspace.spec.seed.unwrap().repos.len(), 3);
    let workspace: Workspace = kept("{metadata: {name: a}, spec: {storage: {size: 1Gi}}}");
    assert_eq!(
        workspace.spec.storage.access_mode,
        AccessMode::ReadWriteOnce
    );
}

#[test]
fn policies_of_the_published_shape_are_read() {
    let policy: BrokerPolicy = kept(
        r"
        apiVersion: paddock.dev/v1alpha1
        kind: BrokerPolicy
        metadata: {name: birds, namespace: birds}
        spec:
          appliesToTemplates: ['parrot*']
          grants:
            credentials:
              - {name: A, provider: {kind: AnthropicAPI, secretRef: {name: s, key: k}, rotationSeconds: 600}}
              - name: G
                provider: {kind: GitHubApp, appId: '12', installationId: '34', secretRef: {name: s, key: k}}
              - {name: P, provider: {kind: PATPool, secretRef: {name: s, key: k}, hosts: [git.example.com]}}
              - name: U
                provider:
                  kind: UserSuppliedSecret
                  secretRef: {name: s, key: k}
                  deliveryMode:
                    proxyInjected: {hosts: [api.example.com], header: {name: Authorization, valuePrefix: 'Bearer '}}
              - name: V
                provider:
                  kind: UserSuppliedSecret
                  secretRef: {name: s, key: k}
                  deliveryMode: {inContainer: {accepted: true, reason: 'a reason of twenty letters or more'}}
            egress: [{host: api.example.com, ports: [443]}]
            gitRepos: [{owner: o, repo: r}, {owner: o, repo: w, access: write}]
            runs:
              interact: true
              shell: {target: runtime, command: [/bin/sh], allowedPhases: [Running, Idle], recordTranscript: true}
          interception: {cooperativeAccepted: {accepted: true, reason: 'a reason of twenty letters or more'}}
          egressDiscovery: {accepted: true, reason: 'a reason of twenty letters or more', expiresAt: '2026-02-01T00:00:00Z'}
          limits: {concurrentRuns: 3}
        ",
    );
    assert_eq!(policy.spec.grants.git_repos[0].access, GitAccess::Read);
    let policy: BrokerPolicy = kept(
        "{metadata: {name: a}, spec: {appliesToTemplates: [a], interception: {transparent: {}}}}",
    );
    assert_eq!(policy.spec.grants, Grants::default());
}

#[test]
fn no_definition_is_large() {
    let crds = crds();
    assert_eq!(crds.len(), 5);
    for crd in crds {
        let size = serde_json::to_vec(&crd).unwrap().len();
        let kind = crd.spec.names.kind;
        assert!(size < MAX_DEFINITION, "{kind}: {size} bytes");
    }
}

#[test]
fn an_overlay_is_any_object() {
    let crd = crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == "HarnessTemplate");
    let schema = serde_json::to_value(crd.unwrap()).unwrap();
    let spec = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let overlay = &spec["properties"]["podTemplateOverlay"];
    assert_eq!(overlay["type"], json!("object"));
    assert_eq!(overlay["x-kubernetes-preserve-unknown-fields"], json!(true));
    assert_eq!(overlay["properties"], Value::Null);
}
