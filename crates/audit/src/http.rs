//! A collector outside the cluster: each record is sent as a CloudEvent 1.0 in structured mode, by POST, in the order
//! of the chain, and retried until it is accepted. While the collector is unavailable, records wait in memory, up to a
//! limit; if the collector is required, every action that requires a record waits as well.
//! See <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md>.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Error, anyhow};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use oz_outbound::{Allowed, CredentialFiles, Endpoint, Proxies, Roots};
use oz_runtime::root_cause;
use oz_trail::notify::{Format, cloud_event};

use crate::Trail;
use crate::outlets::{Intake, Outlet, Written};
use crate::spool::{Spool, asked_pause};

/// Pauses after failures.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(30);
/// The timeout of a request to the collector.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of bytes that are read of a response.
const MOST_ANSWERED: usize = 64 << 10;
/// The maximum pause that the collector can request.
const ASKED: Duration = Duration::from_secs(300);
/// The number of attempts for a record that the collector rejects as invalid.
const HOPELESS: u32 = 5;

/// A record as a CloudEvent.
pub(crate) struct Event {
    seq: u64,
    body: Vec<u8>,
}

impl Intake for Spool<Event> {
    fn record(&self, written: &Written) -> u64 {
        let seq = written.entry.link.seq;
        match cloud_event(&written.entry, &written.line) {
            Ok(body) => self.push(Event { seq, body }),
            Err(error) => {
                tracing::error!(%error, seq, "failed to write an audit record as CloudEvent");
                1
            }
        }
    }

    fn undelivered(&self) -> usize {
        self.len()
    }
}

/// The client of the collector.
pub(crate) struct Collector {
    endpoint: Endpoint,
    url: Uri,
}

impl Collector {
    /// Creates the client of the collector, if the configuration names one.
    ///
    /// # Errors
    /// The URL is invalid, or the certificate authorities cannot be read.
    pub(crate) fn configured(
        collector: &oz_config::Collector,
        secrets: &Path,
        proxies: &Proxies,
    ) -> anyhow::Result<Option<Self>> {
        if collector.url.is_empty() {
            return Ok(None);
        }
        let url = collector.uri()?;
        let host = url.host().context("audit.http.url has no host")?;
        let allowed = Allowed::any_address_of(host, proxies);
        let fine = allowed.check_url(&url);
        fine.map_err(|why| anyhow!("invalid configuration: audit.http.url: {why}"))?;
        let credentials = CredentialFiles {
            token: collector.token_file(secrets),
            authorization: collector.authorization_file(secrets),
            headers: collector.header_files(secrets),
        };
        let roots = Roots::new(collector.public_roots, collector.ca_file(secrets));
        let endpoint = Endpoint::new(allowed, roots, credentials);
        endpoint.client().context(
            "failed to use audit.http; audit.http.secret.ca names certificate authorities, if the system has none",
        )?;
        Ok(Some(Self { endpoint, url }))
    }

    async fn send(&self, event: &Event) -> anyhow::Result<Answer> {
        let request =
            Request::post(self.url.clone()).header(CONTENT_TYPE, Format::CloudEvents.media_type());
        let request = self.endpoint.authenticated(request)?;
        let request = request.body(Full::new(Bytes::from(event.body.clone())))?;
        let client = self.endpoint.client()?;
        let asked = async {
            let answer = client.request(request).await;
            let answer = answer.map_err(|error| Error::msg(root_cause(&error)))?;
            let (head, body) = answer.into_parts();
            // The content of the response is not used; a connection can be reused only after the response is read.
            drop(Limited::new(body, MOST_ANSWERED).collect().await);
            anyhow::Ok(Answer::from_status(head.status, &head.headers))
        };
        let answered = tokio::time::timeout(COLLECTOR_TIMEOUT, asked).await;
        answered.with_context(|| format!("no response within {COLLECTOR_TIMEOUT:?}"))?
    }
}

/// The response of the collector to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Taken,
    /// The collector does not accept the record now; it may state when to retry.
    Later(Option<Duration>),
    /// The collector rejects the record as invalid.
    Never,
}

impl Answer {
    fn from_status(status: StatusCode, headers: &HeaderMap) -> Self {
        match status {
            _ if status.is_success() => Self::Taken,
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => Self::Never,
            _ => Self::Later(asked_pause(headers, FIRST_PAUSE..=ASKED)),
        }
    }
}

/// Delivers records until the process ends.
pub(crate) async fn deliver(
    trail: Trail,
    collector: Collector,
    spool: Spool<Event>,
    component: &'static str,
) {
    let mut pause = FIRST_PAUSE;
    let (mut refused, mut times) = (0, 0);
    loop {
        let event = spool.first().await;
        let answer = collector.send(&event).await;
        if let Ok(Answer::Taken) = answer {
            spool.remove(&event);
            trail.arrived(event.seq, Outlet::Collector);
            pause = FIRST_PAUSE;
            continue;
        }
        trail.shared.meters.failed("http");
        if pause == FIRST_PAUSE {
            tracing::warn!(
                component,
                "the audit collector does not accept records: {answer:?}"
            );
        }
        if let Ok(Answer::Never) = answer {
            times = if refused == event.seq { times + 1 } else { 1 };
            refused = event.seq;
            if times == HOPELESS {
                // The other records must not wait for it.
                tracing::error!(
                    seq = event.seq,
                    "the audit collector will never accept a record"
                );
                spool.remove(&event);
                trail.lost(event.seq, Outlet::Collector);
                pause = FIRST_PAUSE;
                continue;
            }
        }
        let asked = match answer {
            Ok(Answer::Later(asked)) => asked,
            _ => None,
        };
        tokio::time::sleep(asked.unwrap_or(pause)).await;
        pause = (pause * 2).min(LATE);
    }
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn a_collector_is_obeyed_as_far_as_it_is_understood() {
        let seconds = |seconds| Answer::Later(Some(Duration::from_secs(seconds)));
        for (status, after, expected) in [
            (202, None, Answer::Taken),
            (204, Some("9"), Answer::Taken),
            (400, None, Answer::Never),
            (413, Some("9"), Answer::Never),
            (422, None, Answer::Never),
            // The token may be replaced.
            (401, None, Answer::Later(None)),
            (404, None, Answer::Later(None)),
            (429, Some("9"), seconds(9)),
            (503, Some("0"), Answer::Later(Some(FIRST_PAUSE))),
            (503, Some("86400"), Answer::Later(Some(ASKED))),
            (
                503,
                Some("Fri, 31 Dec 1999 23:59:59 GMT"),
                Answer::Later(None),
            ),
            (500, None, Answer::Later(None)),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(after) = after {
                headers.insert(RETRY_AFTER, after.parse().unwrap());
            }
            let answer = Answer::from_status(StatusCode::from_u16(status).unwrap(), &headers);
            assert_eq!(answer, expected, "{status} {after:?}");
        }
    }
}
