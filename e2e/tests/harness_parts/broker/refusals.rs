//! Lends that fail: no value leaves the broker without its record.

use anyhow::Result;
use oz_e2e::{Broker, Options};
use oz_testkit::{CONDITION_TIMEOUT, eventually};

use super::{HOST, lending_stage, lent, proxied};
use crate::cluster;

/// The original releases the credential although the audit fails.
#[tokio::test]
async fn f12_credential_without_a_record_is_not_lent_and_f13_the_failure_is_counted() -> Result<()>
{
    let (scene, good) = lending_stage("unrecorded").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&good, &token).await?;
    // A broker that requires a collector which does not respond.
    let mut options = Options::replica("oz-broker-8");
    options.flags = [
        "--set=audit.http.url=http://127.0.0.1:9/",
        "--set=audit.http.required=true",
    ]
    .map(str::to_owned)
    .to_vec();
    let broker = Broker::start(cluster().await?, &options).await?;
    let client = broker.connect(&scene.admin).await?;
    let answer = eventually("a response", CONDITION_TIMEOUT, async || {
        let answer = client.credential(&token, "KEY", HOST).await?;
        Ok((answer.code() != "Busy").then_some(answer))
    })
    .await?;
    assert_eq!(
        (answer.status, answer.code()),
        (503, "NotRecorded"),
        "{answer:?}"
    );
    assert!(!answer.body.to_string().contains("the-real-key"));
    let metrics = broker.metrics().await?;
    let counted = r#"oz_broker_credential_requests_total{outcome="NotRecorded"}"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(!metrics.contains(r#"outcome="Lent""#), "{metrics}");
    Ok(())
}
