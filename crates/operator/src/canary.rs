//! The canary: every 20 s, it verifies that the stamp hook is in the path of new requests: a
//! dry-run creation must return a valid stamp. Without the hook, every request would be denied, and
//! the reason should be known before the first user meets it.
//!
//! Each try carries a word that the webhook opens, so that it learns from which addresses API
//! servers call it. Each try uses a separate connection, since a connection stays with one API
//! server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use oz_api::{ExecAccessRequest, ExecAccessRequestSpec, labels, names};
use oz_audit::{Trail, seal_keys};
use oz_core::access::request::Request;
use oz_core::access::seal::{Keys, Owner};
use oz_core::canary::Word;
use oz_runtime::{Clock, Common, Task, Warnings};
use oz_trail::{Action, Decision, Record};
use prometheus_client::metrics::gauge::Gauge;

const INTERVAL: Duration = Duration::from_secs(20);
/// The pause after a failure; at the start, the webhook may not be ready yet.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The number of consecutive failures that raises an alarm: the webhook may start shortly after the
/// operator.
const ALARMING: u32 = 4;
/// The timeout for the response of the API server, and of the webhook behind it.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(10);
const NAME: &str = "oz-canary";

/// The duration of a single check: an installation takes a moment to become reachable.
const CHECK: Duration = Duration::from_secs(60);

/// Tries until a request returns with a stamp, for `helm test` and for manual checks.
pub(crate) async fn check(common: &Common) -> anyhow::Result<()> {
    let (client, clock) = oz_runtime::client(common.config(names::OPERATOR).await?)?;
    let keys = seal_keys(&client, &common.namespace, Owner::Operator).await?;
    let began = Instant::now();
    loop {
        let word = word(&keys, &common.replica, clock.now());
        match try_stamp(&client, &keys, &common.namespace, word).await {
            Ok(()) => {
                tracing::info!("a new request is stamped: oz's webhook is called");
                return Ok(());
            }
            Err(why) if began.elapsed() > CHECK => bail!(
                "failed to have a request stamped: {why}; check the pods of the webhook, their \
                 Service and the MutatingWebhookConfiguration oz"
            ),
            Err(why) => {
                tracing::info!(%why, "not stamped yet");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Returns the annotation with which the webhook identifies an API server. Without it, requests are
/// stamped as well.
fn word(keys: &Keys, replica: &str, at: Timestamp) -> BTreeMap<String, String> {
    let word = Word {
        replica: replica.to_owned(),
        at,
    };
    let sealed = word.seal(keys);
    let sealed = sealed.inspect_err(|error| tracing::error!(%error, "the canary has no stamp"));
    let annotation = |sealed| (labels::CANARY.to_owned(), sealed);
    sealed.ok().map(annotation).into_iter().collect()
}

/// Creates a request without storing it, and checks that it returns with a valid stamp.
async fn try_stamp(
    client: &Client,
    keys: &Keys,
    namespace: &str,
    word: BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let requests: Api<ExecAccessRequest> = Api::namespaced(client.clone(), namespace);
    let request = ExecAccessRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("{NAME}-")),
            annotations: Some(word),
            ..ObjectMeta::default()
        },
        spec: ExecAccessRequestSpec {
            template_name: NAME.to_owned(),
            ..Default::default()
        },
        status: None,
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answer = tokio::time::timeout(DRY_RUN_TIMEOUT, requests.create(&dry_run, &request))
        .await
        .map_err(|_| anyhow!("no response"))??;
    Request::from(&answer).requester(keys)?;
    Ok(())
}

/// The task of the canary.
pub(crate) struct Canary {
    pub(crate) config: Config,
    pub(crate) replica: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) trail: Trail,
    pub(crate) keys: Keys,
    pub(crate) namespace: String,
    pub(crate) warnings: Warnings,
    /// 1 if the last try returned a stamp, 0 otherwise.
    pub(crate) in_path: Gauge,
}

impl Task for Canary {
    async fn run(&self) {
        let mut failures = 0_u32;
        loop {
            match self.try_stamp().await {
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!("the stamp hook is called again");
                    }
                    failures = 0;
                    self.in_path.set(1);
                }
                Err(why) => {
                    failures = failures.saturating_add(1);
                    self.in_path.set(0);
                    self.alarm(failures, &why.to_string()).await;
                }
            }
            let pause = if failures == 0 {
                INTERVAL
            } else {
                RETRY_PAUSE.saturating_mul(failures).min(INTERVAL)
            };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Canary {
    async fn try_stamp(&self) -> anyhow::Result<()> {
        let (client, _) = oz_runtime::client(self.config.clone())?;
        let word = word(&self.keys, &self.replica, self.clock.now());
        try_stamp(&client, &self.keys, &self.namespace, word).await
    }

    async fn alarm(&self, failures: u32, why: &str) {
        if failures < ALARMING {
            tracing::info!(why, "the stamp hook is not called yet");
            return;
        }
        tracing::warn!(
            why,
            failures,
            "the stamp hook is not called: every request will be denied"
        );
        // Once for each outage.
        if failures == ALARMING {
            let now = self.clock.now();
            self.trail.note(Record::about(
                now,
                Action::CanaryFailed,
                Decision::Note,
                &now.to_string(),
                "WebhookNotCalled",
                format!("new access requests are not stamped, so each will be denied: {why}"),
            ));
        }
        let note = format!("New access requests are not stamped, so each will be denied: {why}");
        self.warnings.publish("WebhookNotCalled", note).await;
    }
}
