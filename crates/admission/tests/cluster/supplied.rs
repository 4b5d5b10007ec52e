//! Certificates that another component supplies: served, followed, and replaced under load.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use oz_admission::CertSource;
use oz_testkit::{eventually, scaled};
use serde_json::json;

use crate::fixture::{Fixture, LONG, Load, Running};

const NAME: &str = "web-tls";

fn source() -> CertSource {
    CertSource::Secret {
        name: NAME.to_owned(),
    }
}

fn configurations(fixture: &Fixture) -> Api<ValidatingWebhookConfiguration> {
    Api::all(fixture.client.clone())
}

/// Returns the registered bundle.
async fn registered(fixture: &Fixture) -> Result<String> {
    let found = configurations(fixture).get(fixture.name()).await?;
    let webhooks = found.webhooks.unwrap_or_default();
    let bundle = webhooks
        .first()
        .and_then(|it| it.client_config.ca_bundle.clone());
    Ok(String::from_utf8(bundle.unwrap_or_default().0)?)
}

async fn put(fixture: &Fixture, secret: &Secret) -> Result<()> {
    let patch = Patch::Merge(json!({"data": secret.data}));
    let api = fixture.api::<Secret>();
    api.patch(NAME, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn until_registered(fixture: &Fixture, bundle: &str) -> Result<()> {
    eventually("the authority to be registered", LONG, async || {
        Ok(registered(fixture)
            .await?
            .contains(bundle.trim())
            .then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_kept_by_someone_else_is_served_and_followed() -> Result<()> {
    let fixture = Fixture::new("supplied").await?;
    let (hook, count) = fixture.counting();
    let first = supplied("127.0.0.1")?;
    let api = fixture.api::<Secret>();
    api.create(&PostParams::default(), &first).await?;
    let running = Running::start(fixture.manager()?.certificates(source()).hook(hook)).await?;
    fixture.until_called(&count).await?;

    // A certificate for another host must not replace a valid one.
    put(&fixture, &supplied("other.example.com")?).await?;
    for _ in 0..20 {
        fixture.ask().await?;
    }
    // Each authority is registered in addition to the preceding one, and its certificate is served after
    // that.
    let load = Load::start(&fixture);
    let mut last = first;
    let swaps = scaled(3, 20);
    for _ in 0..swaps {
        let next = supplied("127.0.0.1")?;
        put(&fixture, &next).await?;
        until_registered(&fixture, &bundle_of(&next)).await?;
        assert!(
            registered(&fixture)
                .await?
                .contains(bundle_of(&last).trim())
        );
        eventually("the certificate to be served", LONG, async || {
            Ok((served(&fixture).await? == certificate_of(&next)?).then_some(()))
        })
        .await?;
        last = next;
    }
    let what = format!("{swaps} supplied authorities");
    load.stop().await?.unharmed(&what);
    running.stop().await
}

/// Returns the served certificate.
async fn served(fixture: &Fixture) -> Result<Vec<u8>> {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(anybody::Anybody))
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", fixture.port)).await?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = connector.connect("127.0.0.1".try_into()?, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(chain[0].to_vec())
}

fn certificate_of(secret: &Secret) -> Result<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let pem = bundle_of(secret);
    Ok(CertificateDer::from_pem_slice(pem.as_bytes())?.to_vec())
}

fn bundle_of(secret: &Secret) -> String {
    let bundle = secret.data.as_ref().and_then(|data| data.get("tls.crt"));
    String::from_utf8(bundle.unwrap().0.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_bundle_is_kept_while_other_fields_are_repaired() -> Result<()> {
    let fixture = Fixture::new("injected").await?;
    let (hook, count) = fixture.counting();
    let mut secret = supplied("127.0.0.1")?;
    secret.data.as_mut().unwrap().remove("ca.crt");
    let api = fixture.api::<Secret>();
    api.create(&PostParams::default(), &secret).await?;
    let running = Running::start(fixture.manager()?.certificates(source()).hook(hook)).await?;
    let inject = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle",
        "value": ByteString(bundle_of(&secret).into_bytes())}]);
    let inject: json_patch::Patch = serde_json::from_value(inject)?;
    let configurations = configurations(&fixture);
    let parameters = PatchParams::default();
    configurations
        .patch(fixture.name(), &parameters, &Patch::<()>::Json(inject))
        .await?;
    fixture.until_called(&count).await?;

    let damage = json!([
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
        {"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "off", "expression": "false"}]},
    ]);
    let damage: json_patch::Patch = serde_json::from_value(damage)?;
    configurations
        .patch(fixture.name(), &parameters, &Patch::<()>::Json(damage))
        .await?;
    eventually("the webhook to be put right", LONG, async || {
        let found = configurations.get(fixture.name()).await?;
        let webhook = found.webhooks.unwrap_or_default().remove(0);
        let right = webhook.failure_policy.as_deref() == Some("Fail");
        Ok((right && webhook.match_conditions.is_none()).then_some(()))
    })
    .await?;
    assert_eq!(registered(&fixture).await?, bundle_of(&secret));
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_is_repaired_while_the_certificate_cannot_be_read() -> Result<()> {
    let fixture = Fixture::new("independent").await?;
    let (hook, count) = fixture.counting();
    let secret = supplied("127.0.0.1")?;
    let api = fixture.api::<Secret>();
    api.create(&PostParams::default(), &secret).await?;
    let running = Running::start(fixture.manager()?.certificates(source()).hook(hook)).await?;
    fixture.until_called(&count).await?;
    assert_eq!(running.get("/readyz").await?.1, "ok");

    api.delete(NAME, &DeleteParams::default()).await?;
    eventually("a failure to be counted", LONG, async || {
        let failures = "admission_upkeep_failures_total{name=\"certificate\"}";
        Ok((running.metric(failures).await? > 0.0).then_some(()))
    })
    .await?;
    let (status, body) = running.get("/readyz").await?;
    assert_eq!(status, 200, "{body}");
    assert!(
        body.starts_with("ok; degraded: upkeep of the certificate fails: "),
        "{body}"
    );
    let configurations = configurations(&fixture);
    configurations
        .delete(fixture.name(), &DeleteParams::default())
        .await?;
    eventually("the configuration to come back", LONG, async || {
        Ok(configurations.get_opt(fixture.name()).await?)
    })
    .await?;
    let before = count.load(std::sync::atomic::Ordering::Relaxed);
    eventually("calls to come again", Duration::from_secs(60), async || {
        fixture.ask().await?;
        Ok((count.load(std::sync::atomic::Ordering::Relaxed) > before).then_some(()))
    })
    .await?;
    let worked = "admission_upkeep_last_success_timestamp_seconds{name=\"registration\"}";
    assert!(running.metric(worked).await? > 0.0);

    api.create(&PostParams::default(), &secret).await?;
    eventually("readiness to be whole", LONG, async || {
        Ok((running.get("/readyz").await?.1 == "ok").then_some(()))
    })
    .await?;
    running.stop().await
}

/// Returns a Secret as from cert-manager, with a self-signed certificate.
fn supplied(host: &str) -> Result<Secret> {
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
    secret.metadata.name = Some(NAME.to_owned());
    Ok(secret)
}

/// A verifier that accepts every certificate: the test inspects the served certificate, and does not trust
/// it.
mod anybody {
    use rustls::{
        DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    #[derive(Debug)]
    pub(super) struct Anybody;

    impl ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    }
}
