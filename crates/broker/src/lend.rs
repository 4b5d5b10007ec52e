//! The route of credentials. The value leaves the broker only after its audit record is durable, and only if the run is
//! still live and the grant still stands then. Each refusal is recorded, also for a failure of the API server.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use oz_api::harness::SecretKey;
use oz_api::harness::wire::{CredentialRequest, LENT_SECONDS, LentCredential};
use oz_audit::Sink as _;
use oz_runs::caller::{self, Caller, RunState};
use oz_runs::lending::{Refusal, SecretRefusal, Terms};
use oz_runs::policy::policy_name;
use oz_trail::{Action, Decision, PodRef, Record};

use crate::answer::{Refused, json};
use crate::policies::lenders;
use crate::routes::Broker;
use crate::runs::Run;
use crate::secrets::NoValue;

/// The maximum length of the name of a credential and of a host, in bytes.
const NAME: usize = 253;

/// The source of a credential: the policy with its authors, and the Secret.
struct Source {
    policy: String,
    policy_uid: Option<String>,
    authors: String,
    secret: SecretKey,
}

impl Broker {
    /// Lends a credential to the proxy of a run.
    pub(crate) async fn credential(
        &self,
        caller: &Caller,
        run: &Run,
        body: &[u8],
    ) -> Result<Response<Body>, Refused> {
        let request = parse(body).inspect_err(|refused| self.metrics.lent(refused.code))?;
        let terms = self.runs.terms(run);
        let lent = match &terms {
            Ok(terms) => self.lend(caller, run, terms, &request).await,
            Err(refused) => Err(refused.clone()),
        };
        match lent {
            Ok(lent) => {
                self.metrics.lent("Lent");
                Ok(json(StatusCode::OK, &lent))
            }
            Err(refused) => {
                self.metrics.lent(refused.code);
                let terms = terms.as_ref().ok();
                self.record_refusal(caller, run, terms, &request, &refused);
                Err(refused)
            }
        }
    }

    async fn lend(
        &self,
        caller: &Caller,
        run: &Run,
        terms: &Terms,
        request: &CredentialRequest,
    ) -> Result<LentCredential, Refused> {
        if run.standing == RunState::Ending {
            return Err(caller::run_over(caller, &run.name.name).into());
        }
        let namespace = &run.name.namespace;
        if *namespace == self.namespace {
            let message = format!(
                "credentials are not lent to runs in namespace {namespace}, whose Secrets have the \
                 keys of oz: submit the run in another namespace"
            );
            return Err(Refused::new(
                StatusCode::FORBIDDEN,
                "ReservedNamespace",
                message,
            ));
        }
        self.policies.ready().await?;
        let source = self.source(terms, request)?;
        let read = self
            .secrets
            .value(namespace, &source.secret, &self.polls)
            .await;
        let (value, version) = read.map_err(|no_value| match no_value {
            NoValue::Failed(error) => Refused::unavailable(&error),
            NoValue::Refused(refusal) => unusable(namespace, &source.secret, refusal),
        })?;
        let record = self.lent(caller, terms, request, &source, &version);
        self.trail.record(&record).await.map_err(|failure| {
            let message = format!(
                "credential {} is not lent: {}",
                request.name, failure.message
            );
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, "NotRecorded", message)
                .later(std::time::Duration::from_secs(1))
        })?;
        // The record took time: the run may have ended, and the grant may have been revoked.
        self.runs.alive(caller, &run.name).await?;
        let now = self.source(terms, request)?;
        if now.policy_uid != source.policy_uid || now.secret != source.secret {
            return Err(Refused::busy(
                "the policies changed while the credential was read",
            ));
        }
        Ok(LentCredential {
            value,
            version,
            seconds: LENT_SECONDS,
        })
    }

    /// Returns the source of a credential by the policies of this moment.
    fn source(&self, terms: &Terms, request: &CredentialRequest) -> Result<Source, Refused> {
        let policies = self.policies.list(&terms.run.namespace);
        let lenders = lenders(&policies, &terms.template);
        let lending = lenders.lend(terms, &request.name, &request.host).map_err(
            |Refusal { reason, message }| {
                Refused::new(StatusCode::FORBIDDEN, reason.into(), message)
            },
        )?;
        let authors: Vec<&str> = lending.authors.iter().map(|it| it.user.as_str()).collect();
        Ok(Source {
            policy: policy_name(lending.policy).to_owned(),
            policy_uid: lending.policy.metadata.uid.clone(),
            authors: authors.join(", "),
            secret: lending.secret.clone(),
        })
    }

    /// Returns the record of a lend. Each lend has a separate record.
    fn lent(
        &self,
        caller: &Caller,
        terms: &Terms,
        request: &CredentialRequest,
        source: &Source,
        version: &str,
    ) -> Record {
        let now = self.clock.now();
        let CredentialRequest { name, host } = request;
        let subject = format!("{} {} {name} {host} {now}", terms.run.uid, caller.uid);
        let (namespace, secret) = (&terms.run.namespace, &source.secret);
        let message = format!(
            "credential {name} was lent to the proxy of harness run {namespace}/{} for {host}",
            terms.run.name
        );
        let record = Record::about(
            now,
            Action::CredentialLent,
            Decision::Allow,
            &subject,
            "CredentialGranted",
            message,
        );
        let record = about(record, caller, Some(terms))
            .detail("credential", name.as_str())
            .detail("destination", host.as_str())
            .detail("policy", source.policy.as_str())
            .detail("secret", format!("{}/{}", secret.name, secret.key))
            .detail("version", version);
        match source.authors.as_str() {
            "" => record,
            authors => record.detail("policyAuthors", authors),
        }
    }

    fn record_refusal(
        &self,
        caller: &Caller,
        run: &Run,
        terms: Option<&Terms>,
        request: &CredentialRequest,
        refused: &Refused,
    ) {
        let CredentialRequest { name, host } = request;
        let subject = format!("{} {} {name} {host}", run.name.uid, refused.code);
        let record = Record::about(
            self.clock.now(),
            Action::CredentialRefused,
            Decision::Deny,
            &subject,
            refused.code,
            refused.message.clone(),
        );
        let mut record = about(record, caller, terms)
            .detail("credential", name.as_str())
            .detail("destination", host.as_str());
        record.request = run.name.reference();
        self.trail.note(record);
    }
}

/// Adds the run, its submitter and the pod to a record.
pub(crate) fn about(mut record: Record, caller: &Caller, terms: Option<&Terms>) -> Record {
    record.user = Some(caller.user.clone());
    if let Some(terms) = terms {
        record.user = Some(terms.submitter.clone());
        record.request = terms.run.clone();
        record.template.clone_from(&terms.template_ref);
        record.template_digest = Some(terms.template_digest.clone());
    }
    record.pod = Some(PodRef {
        name: caller.pod.clone(),
        uid: caller.uid.clone(),
        container: None,
    });
    record
}

fn unusable(namespace: &str, secret: &SecretKey, refusal: SecretRefusal) -> Refused {
    let message = refusal.message(namespace, secret);
    Refused::new(StatusCode::CONFLICT, refusal.into(), message)
}

fn parse(body: &[u8]) -> Result<CredentialRequest, Refused> {
    let bad = |message: String| Refused::new(StatusCode::BAD_REQUEST, "BadRequest", message);
    let request: CredentialRequest = serde_json::from_slice(body).map_err(|error| {
        bad(format!(
            "the body is not a request for a credential: {error}; send {{\"name\", \"host\"}}"
        ))
    })?;
    for (field, text) in [("name", &request.name), ("host", &request.host)] {
        if text.is_empty() || text.len() > NAME || text.contains(char::is_control) {
            return Err(bad(format!(
                "{field} must have 1 to {NAME} bytes and no control characters"
            )));
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_for_credential_is_bounded() {
        let long = "a".repeat(NAME + 1);
        for (body, is_good) in [
            (
                r#"{"name": "KEY", "host": "api.example.com"}"#.to_owned(),
                true,
            ),
            (
                r#"{"name": "", "host": "api.example.com"}"#.to_owned(),
                false,
            ),
            (r#"{"name": "KEY", "host": "a\nb"}"#.to_owned(), false),
            (format!(r#"{{"name": "KEY", "host": "{long}"}}"#), false),
            (r#"{"name": "KEY"}"#.to_owned(), false),
            ("[]".to_owned(), false),
        ] {
            assert_eq!(parse(body.as_bytes()).is_ok(), is_good, "{body}");
        }
    }
}
