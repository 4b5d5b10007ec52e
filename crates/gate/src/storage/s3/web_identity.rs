//! Credentials for a role, for which a token of the pod's service account is exchanged (AssumeRoleWithWebIdentity of
//! STS). They are kept until shortly before they expire.
//! See <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html>.

use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Uri};
use jiff::{SignedDuration, Timestamp};
use oz_outbound::{Endpoint, read};
use oz_runtime::root_cause;
use rusty_s3::Credentials;
use tokio::sync::Mutex;

use super::CallError;
use super::answer::{between, code};

/// The timeout of an exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time before their expiry at which credentials are exchanged for new ones.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// The maximum number of bytes that are read of a response.
const MAX_ANSWER: usize = 64 << 10;
/// The name under which the server records the session of the role.
const SESSION: &str = "oz-gate";

/// The role of the [module](self).
#[derive(Debug)]
pub(super) struct Role {
    /// The role, as its server names it (ARN).
    pub(super) name: String,
    /// The file with the token. It is read for each exchange.
    pub(super) token: PathBuf,
    pub(super) url: Uri,
    pub(super) endpoint: Endpoint,
    pub(super) known: Mutex<Option<CachedCredentials>>,
}

/// The received credentials, and their expiry.
#[derive(Clone)]
pub(super) struct CachedCredentials {
    credentials: Credentials,
    until: Timestamp,
}

impl std::fmt::Debug for CachedCredentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "credentials until {}", self.until)
    }
}

impl Role {
    /// # Errors
    /// When there are no credentials; the error contains the cause. No message contains the token or the credentials.
    pub(super) async fn credentials(&self) -> Result<Credentials, CallError> {
        // Concurrent callers wait for the same exchange.
        let mut known = self.known.lock().await;
        let now = Timestamp::now();
        if let Some(known) = &*known
            && now.duration_until(known.until) > RENEWED_BEFORE
        {
            return Ok(known.credentials.clone());
        }
        let exchanged = tokio::time::timeout(EXCHANGE_TIMEOUT, self.exchange()).await;
        let timeout = EXCHANGE_TIMEOUT;
        let exchanged = exchanged.unwrap_or(Err(CallError::Late { timeout }));
        match (exchanged, &*known) {
            (Ok(new), _) => {
                let credentials = new.credentials.clone();
                *known = Some(new);
                Ok(credentials)
            }
            // The known credentials are still valid.
            (Err(_), Some(known)) if known.until > now => Ok(known.credentials.clone()),
            (Err(why), _) => Err(CallError::NotExchanged {
                token: self.token.clone(),
                role: self.name.clone(),
                why: Box::new(why),
            }),
        }
    }

    async fn exchange(&self) -> Result<CachedCredentials, CallError> {
        let token = read(&self.token).map_err(CallError::failed)?;
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("Version", "2011-06-15")
            .append_pair("RoleArn", &self.name)
            .append_pair("RoleSessionName", SESSION)
            .append_pair("WebIdentityToken", token.trim())
            .finish();
        let request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(body)));
        let request = request.map_err(CallError::failed)?;
        let client = self.endpoint.client().map_err(CallError::failed)?;
        let answer = client.request(request).await;
        let answer = answer.map_err(|error| CallError::failed(root_cause(&error)))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map_err(|error| CallError::failed(root_cause(&*error)))?;
        let body = body.to_bytes();
        if !head.status.is_success() {
            let status = head.status.as_u16();
            let code = code(&body).map(str::trim_end);
            return Err(match code.filter(|code| !code.is_empty()) {
                Some(code) => CallError::Refused {
                    status,
                    code: code.to_owned(),
                },
                None => CallError::Unexplained { status },
            });
        }
        given(&body).ok_or(CallError::NoCredentials)
    }
}

/// Returns the credentials in a response.
fn given(body: &[u8]) -> Option<CachedCredentials> {
    let text = str::from_utf8(body).ok()?;
    let value = |name: &str| between(text, name).filter(|value| !value.contains(['<', '&']));
    let (key, secret) = (value("AccessKeyId")?, value("SecretAccessKey")?);
    let credentials = Credentials::new_with_token(key, secret, value("SessionToken")?);
    let until = value("Expiration")?.parse().ok()?;
    Some(CachedCredentials { credentials, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_response_gives_no_credentials() {
        let answer = |expiration: &str| {
            format!(
                "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>a</AccessKeyId>\
                 <SecretAccessKey>b/+=</SecretAccessKey><SessionToken>c</SessionToken>{expiration}\
                 </Credentials></AssumeRoleWithWebIdentityResponse>"
            )
        };
        let known = given(answer("<Expiration>2026-11-25T20:00:00Z</Expiration>").as_bytes());
        let known = known.unwrap();
        assert_eq!(known.credentials.key(), "a");
        assert_eq!(known.credentials.secret(), "b/+=");
        assert_eq!(known.credentials.token(), Some("c"));
        assert!(!format!("{known:?}").contains("b/+="));
        for body in [
            answer(""),
            answer("<Expiration>soon</Expiration>"),
            answer("<Expiration>2026-11-25T20:00:00Z"),
            "<html>".to_owned(),
            String::new(),
        ] {
            assert!(given(body.as_bytes()).is_none(), "{body}");
        }
        assert!(given(b"\xff").is_none());
    }
}
