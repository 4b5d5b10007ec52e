//! Recordings as objects of a bucket, by the protocol of S3. rusty-s3 signs the requests; the client of the other
//! endpoints sends them. A part has a few MiB, far below the 5 GiB that one request may carry: it is never stored in
//! several requests.

mod answer;
mod credentials;
mod options;
#[cfg(test)]
mod tests;
mod web_identity;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use oz_outbound::{Allowed, Endpoint};
use oz_runtime::root_cause;
use rusty_s3::actions::{GetObject, ListObjectsV2, PutObject, S3Action};
use rusty_s3::{Bucket, Map, UrlStyle};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::{Put, StorageError};
use answer::{Answer, CHECKSUM, IF_NONE_MATCH, LOCK_MODE, LOCK_UNTIL};
use credentials::{CredentialFiles, Source};
pub(crate) use options::S3Options;
use web_identity::Role;

/// The timeout of a call, including its body in either direction.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for which a signature is valid.
const SIGNED_FOR: Duration = Duration::from_secs(300);
/// The maximum number of bytes that are read of an error response.
const MAX_ERROR: usize = 64 << 10;
/// The maximum number of bytes that are read of a page of names: a thousand of the longest, encoded.
const MAX_PAGE: usize = 8 << 20;
/// The maximum number of names on a page, by the protocol.
/// See <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>.
const PAGE: usize = 1000;

/// The bucket of the [module](self).
#[derive(Debug)]
pub(crate) struct S3 {
    bucket: Bucket,
    /// The prefix of all names: empty, or a text that ends in a slash.
    prefix: String,
    endpoint: Endpoint,
    credentials: Source,
    /// The time for which no user can delete stored objects.
    retention: Option<SignedDuration>,
    /// True if the server is to store an object only under a name that does not exist yet.
    conditional_writes: bool,
    timeout: Duration,
}

impl S3 {
    /// Creates a store from the bucket and prefix of `s3://BUCKET/PREFIX`, without the scheme.
    pub(super) fn new(location: &str, options: &S3Options) -> anyhow::Result<Self> {
        let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() {
            super::check(prefix)?;
        }
        let url = options.endpoint();
        let style = match options.path_style {
            true => UrlStyle::Path,
            false => UrlStyle::VirtualHost,
        };
        let parsed = url
            .parse()
            .context("gate.recordings.endpoint is not a URL")?;
        let bucket = Bucket::new(parsed, style, bucket.to_owned(), options.region.clone());
        let bucket = bucket.context("the URL of the bucket")?;
        let host = bucket.base_url().host_str();
        let host = host.context("the URL of the bucket has no host")?;
        let endpoint = endpoint(
            Allowed::any_address_of(host, &options.connection.proxies),
            options,
        );
        let credentials = source(options)?;
        let retention = options
            .retention
            .map(|days| SignedDuration::from_hours(days.cast_signed() * 24));
        Ok(Self {
            bucket,
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            endpoint,
            credentials,
            retention,
            conditional_writes: !options.unconditional_writes,
            timeout: CALL_TIMEOUT,
        })
    }

    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<Put, StorageError> {
        let failed = |why: &dyn Display| StorageError::unavailable("store", name, why);
        let credentials = self
            .credentials
            .get()
            .await
            .map_err(|error| failed(&error))?;
        let key = format!("{}{name}", self.prefix);
        let mut action = PutObject::new(&self.bucket, Some(&credentials), &key);
        let headers = action.headers_mut();
        if self.conditional_writes {
            headers.insert(IF_NONE_MATCH, "*");
        }
        // Without a digest, a bucket with retention accepts no objects.
        let digest = BASE64_STANDARD.encode(Sha256::digest(&bytes));
        headers.insert(CHECKSUM, digest);
        if let Some(retention) = self.retention {
            let until = Timestamp::now().saturating_add(retention);
            let until = until.map_err(|error| failed(&error))?;
            let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            headers.insert(LOCK_MODE, "COMPLIANCE");
            headers.insert(LOCK_UNTIL, until);
        }
        let headers = headers.clone();
        let url = action.sign(SIGNED_FOR);
        let called = self.call(Method::PUT, url.as_str(), &headers, bytes, MAX_ERROR);
        let answer = called.await.map_err(|error| failed(&error))?;
        match answer.status {
            status if status.is_success() => Ok(Put::Stored),
            StatusCode::PRECONDITION_FAILED => Ok(Put::Exists),
            _ => Err(answer.upload_error(name, &headers)),
        }
    }

    pub(super) async fn get(
        &self,
        name: &str,
        limit: usize,
    ) -> Result<Option<Bytes>, StorageError> {
        let failed = |why: &dyn Display| StorageError::unavailable("read", name, why);
        let credentials = self
            .credentials
            .get()
            .await
            .map_err(|error| failed(&error))?;
        let key = format!("{}{name}", self.prefix);
        let action = GetObject::new(&self.bucket, Some(&credentials), &key);
        let (url, most) = (action.sign(SIGNED_FOR), limit.max(MAX_ERROR));
        let answer = self.fetch(url.as_str(), most).await;
        let answer = answer.map_err(|error| failed(&error))?;
        if answer.status == StatusCode::NOT_FOUND && answer.code() == Some("NoSuchKey") {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(answer.error("read", name));
        }
        let body = answer.body.filter(|body| body.len() <= limit);
        body.map(Some).ok_or_else(|| StorageError::TooLarge {
            name: name.to_owned(),
            limit,
        })
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StorageError> {
        let mut names = Vec::new();
        let mut last = after.to_owned();
        while names.len() < limit {
            let most = PAGE.min(limit - names.len());
            let (page, more) = self.page(prefix, &last, most).await?;
            for name in page {
                if name <= last {
                    let why = "its names are not in order".to_owned();
                    return Err(StorageError::unavailable("list", prefix, &why));
                }
                last.clone_from(&name);
                // Other writers may have stored objects with other names there.
                if super::check(&name).is_ok() && names.len() < limit {
                    names.push(name);
                }
            }
            if !more {
                break;
            }
        }
        Ok(names)
    }

    /// Returns the next names, at most `most`, and whether more names follow.
    async fn page(
        &self,
        prefix: &str,
        after: &str,
        most: usize,
    ) -> Result<(Vec<String>, bool), StorageError> {
        let failed = |why: &dyn Display| StorageError::unavailable("list", prefix, why);
        let credentials = self
            .credentials
            .get()
            .await
            .map_err(|error| failed(&error))?;
        let mut action = ListObjectsV2::new(&self.bucket, Some(&credentials));
        action.with_prefix(format!("{}{prefix}", self.prefix));
        if !after.is_empty() {
            action.with_start_after(format!("{}{after}", self.prefix));
        }
        action.with_max_keys(most);
        let url = action.sign(SIGNED_FOR);
        let answer = self.fetch(url.as_str(), MAX_PAGE).await;
        let answer = answer.map_err(|error| failed(&error))?;
        if !answer.status.is_success() {
            return Err(answer.error("list", prefix));
        }
        let body = answer.body.unwrap_or_default();
        let text = str::from_utf8(&body).map_err(|error| failed(&error))?;
        let page = ListObjectsV2::parse_response(text);
        let page =
            page.map_err(|error| failed(&format_args!("failed to read its list: {error}")))?;
        let more = page.next_continuation_token.is_some() && !page.contents.is_empty();
        let names = page.contents.into_iter().filter_map(|object| {
            let name = object.key.strip_prefix(&self.prefix)?;
            name.starts_with(prefix).then(|| name.to_owned())
        });
        Ok((names.collect(), more))
    }

    async fn fetch(&self, url: &str, most: usize) -> Result<Answer, CallError> {
        let (none, empty) = (Map::new(), Bytes::new());
        self.call(Method::GET, url, &none, empty, most).await
    }

    /// Sends a request. The URL is signed, and no message contains it.
    async fn call(
        &self,
        method: Method,
        url: &str,
        headers: &Map<'_>,
        body: Bytes,
        most: usize,
    ) -> Result<Answer, CallError> {
        let timeout = self.timeout;
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers.iter() {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(CallError::failed)?;
        let client = self.endpoint.client().map_err(CallError::failed)?;
        let answered = async {
            let answer = client.request(request).await;
            let answer = answer.map_err(|error| CallError::failed(root_cause(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, most).collect().await;
            let body = match body {
                Ok(body) => Some(body.to_bytes()),
                Err(error) if error.is::<http_body_util::LengthLimitError>() => None,
                Err(error) => return Err(CallError::failed(root_cause(&*error))),
            };
            Ok(Answer {
                status: head.status,
                body,
            })
        };
        let answered = tokio::time::timeout(timeout, answered).await;
        answered.unwrap_or(Err(CallError::Late { timeout }))
    }
}

/// The reason for which a server was not asked, or did not answer. No message contains a secret, or a signed URL.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("no response within {timeout:?}")]
    Late { timeout: Duration },
    #[error("failed to read {}: it is empty", path.display())]
    EmptyFile { path: PathBuf },
    #[error("the server responded {status} {code}")]
    Refused { status: u16, code: String },
    #[error("the server responded {status}")]
    Unexplained { status: u16 },
    #[error("the server responded with no credentials")]
    NoCredentials,
    #[error("failed to exchange {} for credentials of {role}: {why}", token.display())]
    NotExchanged {
        token: PathBuf,
        role: String,
        why: Box<CallError>,
    },
    #[error(transparent)]
    Failed(anyhow::Error),
}

impl CallError {
    fn failed<E>(error: E) -> Self
    where
        E: std::fmt::Display + std::fmt::Debug + Send + Sync + 'static,
    {
        Self::Failed(anyhow::Error::msg(error))
    }
}

/// Returns a server with the certificate authorities of the options. Requests to it are signed.
fn endpoint(allowed: Allowed, options: &S3Options) -> Endpoint {
    Endpoint::without_credentials(allowed, options.connection.roots.clone())
}

/// Returns the source of the credentials that sign requests.
fn source(options: &S3Options) -> anyhow::Result<Source> {
    let identity = &options.web_identity;
    match (&options.credentials, &identity.role, &identity.token) {
        (Some(directory), None, None) => Ok(Source::Files(CredentialFiles {
            directory: directory.clone(),
        })),
        (None, Some(role), Some(token)) => {
            let text = options.sts_endpoint();
            let url: Uri = text
                .parse()
                .context("gate.recordings.webIdentity.endpoint is not a URL")?;
            let allowed = Allowed::any_address_of(
                url.host().unwrap_or_default(),
                &options.connection.proxies,
            );
            if let Err(why) = allowed.check_url(&url) {
                bail!("gate.recordings.webIdentity.endpoint: {why}");
            }
            Ok(Source::Role(Box::new(Role {
                name: role.clone(),
                token: token.clone(),
                endpoint: endpoint(allowed, options),
                url,
                known: Mutex::default(),
            })))
        }
        _ => bail!(
            "gate.recordings.secret must name a Secret with access-key-id and secret-access-key, or \
             gate.recordings.webIdentity a role"
        ),
    }
}
