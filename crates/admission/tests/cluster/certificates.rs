//! Certificates under load: whatever happens to the Secret and whenever anything is
//! renewed, not one admission call fails.

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
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use oz_admission::{CertPolicy, CertSource, ROTATE_ANNOTATION};
use oz_testkit::eventually;
use serde_json::json;

use crate::fixture::{LONG, Load, Place, Running, quick};

fn secret_name(place: &Place) -> String {
    format!("{}-admission-ca", place.name())
}

async fn secret(place: &Place) -> Result<Secret> {
    Ok(place.api::<Secret>().get(&secret_name(place)).await?)
}

fn text(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map(|value| String::from_utf8_lossy(&value.0).into_owned())
        .unwrap_or_default()
}

/// How many authorities the registered bundle holds.
async fn published(place: &Place) -> Result<usize> {
    let api = Api::<ValidatingWebhookConfiguration>::all(place.client.clone());
    let webhooks = api.get(place.name()).await?.webhooks.unwrap_or_default();
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
    let place = Place::new("twins").await?;
    let (hook, count) = place.counting();
    let first = Running::launch(place.manager()?.hook(hook.clone()))?;
    let second = Running::launch(place.manager()?.hook(hook))?;
    first.until_ready().await?;
    second.until_ready().await?;

    place.until_called(&count).await?;
    let load = Load::start(&place);
    more(&count, 200).await?;
    load.stop().await?.unharmed("two replicas, one authority");

    assert_eq!(published(&place).await?, 1);
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
    // Connections stay with whom they were opened to: without the first, the second answers.
    first.stop().await?;
    eventually("the second replica to answer", LONG, async || {
        place.ask().await?;
        Ok((second.metric("admission_reviews_total").await? > 0.0).then_some(()))
    })
    .await?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_deleted_damaged_or_replaced_heals_without_a_failed_call() -> Result<()> {
    let place = Place::new("heal").await?;
    let (hook, count) = place.counting();
    let running = Running::start(place.manager()?.hook(hook)).await?;
    place.until_called(&count).await?;
    let api = place.api::<Secret>();
    let name = secret_name(&place);
    let good = text(&secret(&place).await?, "ca.crt");

    let load = Load::start(&place);
    api.delete(&name, &DeleteParams::default()).await?;
    healed(&place, &good, "deleted").await?;
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
        healed(&place, &good, what).await?;
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

/// Waits for so many further reviews.
async fn more(count: &AtomicUsize, further: usize) -> Result<()> {
    let wanted = count.load(Ordering::Relaxed) + further;
    eventually("further reviews", LONG, async || {
        Ok((count.load(Ordering::Relaxed) > wanted).then_some(()))
    })
    .await
}

async fn healed(place: &Place, good: &str, what: &str) -> Result<()> {
    let began = std::time::Instant::now();
    eventually(&format!("the Secret, {what}, to heal"), LONG, async || {
        Ok((text(&secret(place).await?, "ca.crt") == good).then_some(()))
    })
    .await?;
    eprintln!("figure: Secret {what}: healed after {:?}", began.elapsed());
    Ok(())
}

/// A certificate for `other.example.com` and its key.
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
    let place = Place::new("foreign").await?;
    let (hook, count) = place.counting();
    let running = Running::start(place.manager()?.hook(hook)).await?;
    place.until_called(&count).await?;
    let (certificate, key) = authority(true, false)?;

    let load = Load::start(&place);
    let data = json!({
        "ca.crt": ByteString(certificate.clone().into_bytes()),
        "ca.key": ByteString(key.into_bytes()),
    });
    let patch = Patch::Merge(json!({"data": data}));
    place
        .api::<Secret>()
        .patch(&secret_name(&place), &PatchParams::default(), &patch)
        .await?;
    forgotten(&place).await?;
    load.stop().await?.unharmed("authority replaced by hand");
    assert_eq!(text(&secret(&place).await?, "ca.crt"), certificate);
    running.stop().await
}

/// Waits until a rotation has run its whole course.
async fn forgotten(place: &Place) -> Result<()> {
    let mut most = 0;
    eventually("the old authority to be forgotten", LONG, async || {
        let now = published(place).await?;
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
    let place = Place::new("rotate").await?;
    let (hook, count) = place.counting();
    let first = Running::start(place.manager()?.hook(hook.clone())).await?;
    let second = Running::start(place.manager()?.hook(hook)).await?;
    place.until_called(&count).await?;
    let before = text(&secret(&place).await?, "ca.crt");

    let load = Load::start(&place);
    let annotation = json!({"metadata": {"annotations": {ROTATE_ANNOTATION: "1"}}});
    let api = place.api::<Secret>();
    api.patch(
        &secret_name(&place),
        &PatchParams::default(),
        &Patch::Merge(annotation),
    )
    .await?;
    forgotten(&place).await?;
    load.stop()
        .await?
        .unharmed("authority rotated on request, two replicas");

    let after = secret(&place).await?;
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
    let place = Place::new("shortlived").await?;
    let (hook, count) = place.counting();
    let policy = CertPolicy {
        leaf_life: Duration::from_secs(6),
        ca_life: Duration::from_secs(18),
        overlap: Duration::from_secs(2),
        ..quick()
    };
    let builder = place
        .manager()?
        .certificates(CertSource::SelfSigned(policy))
        .hook(hook);
    let running = Running::start(builder).await?;
    place.until_called(&count).await?;
    let load = Load::start(&place);
    forgotten(&place).await?;
    let leaf = running
        .metric("admission_certificate_expiry_seconds{name=\"leaf\"}")
        .await?;
    assert!(leaf > 0.0 && leaf <= 6.0, "{leaf}");
    load.stop()
        .await?
        .unharmed("leaf of 6 s and authority of 18 s renewed by time");
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_kept_by_someone_else_is_served_and_followed() -> Result<()> {
    let place = Place::new("supplied").await?;
    let (hook, count) = place.counting();
    let api = place.api::<Secret>();
    api.create(&PostParams::default(), &supplied("web-tls", "127.0.0.1")?)
        .await?;
    let source = CertSource::Secret {
        name: "web-tls".to_owned(),
    };
    let running = Running::start(place.manager()?.certificates(source).hook(hook)).await?;
    place.until_called(&count).await?;

    // One for another host must not take the place of a good one.
    let wrong = supplied("web-tls", "other.example.com")?;
    api.patch(
        "web-tls",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": wrong.data})),
    )
    .await?;
    for _ in 0..20 {
        place.ask().await?;
    }
    let next = supplied("web-tls", "127.0.0.1")?;
    let bundle = text(&next, "ca.crt");
    api.patch(
        "web-tls",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": next.data})),
    )
    .await?;
    let configurations = Api::<ValidatingWebhookConfiguration>::all(place.client.clone());
    eventually("the new certificate to be registered", LONG, async || {
        let webhooks = configurations
            .get(place.name())
            .await?
            .webhooks
            .unwrap_or_default();
        let registered = webhooks[0]
            .client_config
            .ca_bundle
            .clone()
            .unwrap_or_default();
        Ok((registered.0 == bundle.as_bytes()).then_some(()))
    })
    .await?;
    eventually("calls to succeed with it", LONG, async || {
        Ok(place.ask().await.ok())
    })
    .await?;
    running.stop().await
}

/// A Secret as cert-manager would keep it, with a certificate that vouches for itself.
fn supplied(name: &str, host: &str) -> Result<Secret> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(vec![host.to_owned()])?;
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key)?.pem().into_bytes();
    let data = [
        ("tls.crt", certificate.clone()),
        ("tls.key", key.serialize_pem().into_bytes()),
        ("ca.crt", certificate),
    ];
    let mut secret = Secret {
        data: Some(
            data.map(|(key, value)| (key.to_owned(), ByteString(value)))
                .into(),
        ),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    debug_assert_eq!(secret.name_any(), name);
    Ok(secret)
}
