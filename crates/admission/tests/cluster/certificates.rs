//! Certificates under load: regardless of changes to the Secret and of the instants of renewals, no
//! admission call fails.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Result, bail};
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use oz_admission::{CertPolicy, CertSource, ROTATE_ANNOTATION};
use oz_testkit::eventually;
use serde_json::json;

use crate::fixture::{Fixture, LONG, Load, Running, quick};

fn secret_name(fixture: &Fixture) -> String {
    format!("{}-admission-ca", fixture.name())
}

async fn secret(fixture: &Fixture) -> Result<Secret> {
    Ok(fixture.api::<Secret>().get(&secret_name(fixture)).await?)
}

fn text(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map(|value| String::from_utf8_lossy(&value.0).into_owned())
        .unwrap_or_default()
}

/// Returns the number of authorities in the registered bundle.
async fn published(fixture: &Fixture) -> Result<usize> {
    let api = Api::<ValidatingWebhookConfiguration>::all(fixture.client.clone());
    let webhooks = api.get(fixture.name()).await?.webhooks.unwrap_or_default();
    let bundle = webhooks[0]
        .client_config
        .ca_bundle
        .clone()
        .unwrap_or_default();
    Ok(String::from_utf8(bundle.0)?
        .matches("BEGIN CERTIFICATE")
        .count())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_started_at_the_same_instant_share_one_authority() -> Result<()> {
    let fixture = Fixture::new("twins").await?;
    let (hook, count) = fixture.counting();
    let first = Running::launch(fixture.manager()?.hook(hook.clone()))?;
    let second = Running::launch(fixture.manager()?.hook(hook))?;
    first.until_ready().await?;
    second.until_ready().await?;

    fixture.until_called(&count).await?;
    let load = Load::start(&fixture);
    more(&count, 200).await?;
    load.stop().await?.unharmed("two replicas, one authority");

    assert_eq!(published(&fixture).await?, 1);
    let mut made = Vec::new();
    for replica in [&first, &second] {
        made.push(
            replica
                .metric("admission_rotation_steps_total{step=\"replace\"")
                .await?,
        );
    }
    made.sort_by(f64::total_cmp);
    assert_eq!(made, [0.0, 1.0], "one made it, one adopted it");
    // Connections stay with the replica that accepted them: without the first, the second responds.
    first.stop().await?;
    eventually("the second replica to answer", LONG, async || {
        fixture.ask().await?;
        Ok((second.metric("admission_reviews_total").await? > 0.0).then_some(()))
    })
    .await?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_deleted_damaged_or_replaced_heals_without_a_failed_call() -> Result<()> {
    let fixture = Fixture::new("heal").await?;
    let (hook, count) = fixture.counting();
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    fixture.until_called(&count).await?;
    let api = fixture.api::<Secret>();
    let name = secret_name(&fixture);
    let good = text(&secret(&fixture).await?, "ca.crt");

    let load = Load::start(&fixture);
    api.delete(&name, &DeleteParams::default()).await?;
    healed(&fixture, &good, "deleted").await?;
    more(&count, 100).await?;

    let (expired, expired_key) = authority(true, true)?;
    let (leaf, leaf_key) = authority(false, false)?;
    let damages = [
        (
            "garbled",
            json!({"ca.crt": ByteString(b"garbage".to_vec())}),
        ),
        ("emptied", json!({"ca.crt": null, "ca.key": null})),
        (
            "key of another",
            json!({"ca.key": ByteString(leaf_key.clone().into_bytes())}),
        ),
        (
            "expired",
            json!({"ca.crt": ByteString(expired.into_bytes()), "ca.key": ByteString(expired_key.into_bytes())}),
        ),
        (
            "certificate for another host",
            json!({"ca.crt": ByteString(leaf.into_bytes()), "ca.key": ByteString(leaf_key.into_bytes())}),
        ),
    ];
    for (what, data) in damages {
        let patch = Patch::Merge(json!({"data": data}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        healed(&fixture, &good, what).await?;
        more(&count, 100).await?;
    }
    load.stop()
        .await?
        .unharmed("Secret deleted, then damaged in five ways");
    assert_eq!(
        running
            .metric("admission_rotation_steps_total{step=\"replace\"")
            .await?,
        7.0
    );
    running.stop().await
}

/// Waits for a number of further reviews.
async fn more(count: &AtomicUsize, further: usize) -> Result<()> {
    let wanted = count.load(Ordering::Relaxed) + further;
    eventually("further reviews", LONG, async || {
        Ok((count.load(Ordering::Relaxed) > wanted).then_some(()))
    })
    .await
}

async fn healed(fixture: &Fixture, good: &str, what: &str) -> Result<()> {
    let began = std::time::Instant::now();
    eventually(&format!("the Secret, {what}, to heal"), LONG, async || {
        Ok((text(&secret(fixture).await?, "ca.crt") == good).then_some(()))
    })
    .await?;
    eprintln!("figure: Secret {what}: healed after {:?}", began.elapsed());
    Ok(())
}

/// Creates a certificate for `other.example.com` and its key.
fn authority(is_ca: bool, expired: bool) -> Result<(String, String)> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(vec!["other.example.com".to_owned()])?;
    if is_ca {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    if expired {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_authority_in_the_secret_is_taken_up_without_a_failed_call() -> Result<()> {
    let fixture = Fixture::new("foreign").await?;
    let (hook, count) = fixture.counting();
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    fixture.until_called(&count).await?;
    let (certificate, key) = authority(true, false)?;

    let load = Load::start(&fixture);
    let data = json!({
        "ca.crt": ByteString(certificate.clone().into_bytes()),
        "ca.key": ByteString(key.into_bytes()),
    });
    let patch = Patch::Merge(json!({"data": data}));
    fixture
        .api::<Secret>()
        .patch(&secret_name(&fixture), &PatchParams::default(), &patch)
        .await?;
    forgotten(&fixture).await?;
    load.stop().await?.unharmed("authority replaced by hand");
    assert_eq!(text(&secret(&fixture).await?, "ca.crt"), certificate);
    running.stop().await
}

/// Waits until a rotation is complete.
async fn forgotten(fixture: &Fixture) -> Result<()> {
    let mut most = 0;
    eventually("the old authority to be forgotten", LONG, async || {
        let now = published(fixture).await?;
        most = most.max(now);
        if most < 2 || now > 1 {
            bail!("{now} published, at most {most}")
        }
        Ok(Some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_rotated_on_request_fails_no_call_on_two_replicas() -> Result<()> {
    let fixture = Fixture::new("rotate").await?;
    let (hook, count) = fixture.counting();
    let first = Running::start(fixture.manager()?.hook(hook.clone())).await?;
    let second = Running::start(fixture.manager()?.hook(hook)).await?;
    fixture.until_called(&count).await?;
    let before = text(&secret(&fixture).await?, "ca.crt");

    let load = Load::start(&fixture);
    let annotation = json!({"metadata": {"annotations": {ROTATE_ANNOTATION: "1"}}});
    let api = fixture.api::<Secret>();
    api.patch(
        &secret_name(&fixture),
        &PatchParams::default(),
        &Patch::Merge(annotation),
    )
    .await?;
    forgotten(&fixture).await?;
    load.stop()
        .await?
        .unharmed("authority rotated on request, two replicas");

    let after = secret(&fixture).await?;
    assert_ne!(text(&after, "ca.crt"), before);
    assert_eq!(
        (text(&after, "next.crt"), text(&after, "previous.crt")),
        Default::default()
    );
    let mut promoted = 0.0;
    for replica in [&first, &second] {
        promoted += replica
            .metric("admission_rotation_steps_total{step=\"promote\"")
            .await?;
    }
    assert_eq!(promoted, 1.0, "one rotation, by one of the two");
    first.stop().await?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn leaves_and_authorities_that_live_for_seconds_are_renewed_in_time() -> Result<()> {
    let fixture = Fixture::new("shortlived").await?;
    let (hook, count) = fixture.counting();
    // The certificate is renewed after seconds, and valid for much longer than any delay on a busy machine.
    let policy = CertPolicy {
        leaf_life: Duration::from_secs(60),
        ca_life: Duration::from_secs(180),
        renew_at: 0.1,
        overlap: Duration::from_secs(2),
        ..quick()
    };
    let builder = fixture
        .manager()?
        .certificates(CertSource::SelfSigned(policy))
        .hook(hook);
    let running = Running::start(builder).await?;
    fixture.until_called(&count).await?;
    let leaf = "admission_certificate_expiry_timestamp_seconds{name=\"leaf\"}";
    let first = running.metric(leaf).await?;
    let load = Load::start(&fixture);
    eventually("the leaf to be renewed", LONG, async || {
        Ok((running.metric(leaf).await? > first).then_some(()))
    })
    .await?;
    forgotten(&fixture).await?;
    let left = running.metric(leaf).await? - jiff::Timestamp::now().as_duration().as_secs_f64();
    assert!(left <= 60.0, "{left}");
    load.stop()
        .await?
        .unharmed("leaf after 6 s and authority after 18 s renewed by time");
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_immutable_secret_is_recreated() -> Result<()> {
    let fixture = Fixture::new("immutable").await?;
    let (hook, count) = fixture.counting();
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    fixture.until_called(&count).await?;
    let good = text(&secret(&fixture).await?, "ca.crt");
    let load = Load::start(&fixture);
    let damage = json!({"immutable": true, "data": {"ca.crt": ByteString(b"garbage".to_vec())}});
    fixture
        .api::<Secret>()
        .patch(
            &secret_name(&fixture),
            &PatchParams::default(),
            &Patch::Merge(damage),
        )
        .await?;
    healed(&fixture, &good, "damaged and immutable").await?;
    assert_eq!(secret(&fixture).await?.immutable, None);
    load.stop().await?.unharmed("Secret damaged and immutable");
    running.stop().await
}
