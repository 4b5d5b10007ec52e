//! Sends the queued notifications to one server, and retries for an hour. The URL may be a secret, so no message
//! contains it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use oz_cel::body::Variables;
use oz_outbound::{Allowed, CredentialFiles, Endpoint, HttpClient, Roots, read};
use oz_runtime::root_cause;
use oz_trail::notify::signature::SigningKey;
use oz_trail::notify::slack_bot::{self, BotMessage, MessageAddresses};
use oz_trail::notify::{Content, Route};
use parking_lot::Mutex;
use serde_json::Value;

use super::body::{self, BodyError};
use super::queue::{Message, Queue};
use crate::spool::asked_pause;

/// The timeout of a request to a server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses after failures.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of bytes that are read of a response.
const MOST_ANSWERED: usize = 64 << 10;
/// The time for which a notification is retried.
const TRIED_FOR: Duration = Duration::from_secs(3_600);

/// The result of one attempt.
#[derive(Debug)]
pub(super) enum Attempt {
    Taken,
    /// The server rejects the notification as invalid.
    Never(String),
    /// The server does not accept the notification now; it may state when to retry.
    Later(String, Option<Duration>),
}

/// The sender of one route.
pub(super) struct Sender {
    route: Route,
    url_file: Option<PathBuf>,
    signing_key_file: Option<PathBuf>,
    /// The directory of the Secret.
    directory: PathBuf,
    queue: Queue,
    endpoint: Endpoint,
    /// The messages of a bot that a decision updates.
    addresses: Mutex<MessageAddresses>,
}

impl Sender {
    pub(super) fn new(route: Route, secrets: &Path, queue: Queue, allowed: Allowed) -> Self {
        let file = |key: &Option<String>| route.file(secrets, key.as_deref());
        let credentials = CredentialFiles {
            token: file(&route.secret.token),
            authorization: file(&route.secret.authorization),
            headers: route.secret.headers.files(&route.directory(secrets)),
        };
        let roots = Roots::new(route.public_roots, file(&route.secret.ca));
        Self {
            url_file: file(&route.secret.url),
            signing_key_file: file(&route.secret.signing_key),
            directory: route.directory(secrets),
            route,
            queue,
            endpoint: Endpoint::new(allowed, roots, credentials),
            addresses: Mutex::default(),
        }
    }

    /// Sends notifications until the process ends.
    pub(super) async fn run(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let message = self.queue.first().await;
            let route = self.route.name.clone();
            let (why, asked) = match self.attempt(&message).await {
                Attempt::Taken => {
                    self.queue.meters.sent.inc();
                    self.queue.remove(&message);
                    pause = FIRST_PAUSE;
                    continue;
                }
                Attempt::Never(why) => {
                    tracing::error!(route, id = message.id, "dropped a notification: {why}");
                    self.queue.meters.failures.inc();
                    self.queue.meters.dropped.inc();
                    self.queue.remove(&message);
                    continue;
                }
                Attempt::Later(why, asked) => (why, asked),
            };
            self.queue.meters.failures.inc();
            if message.since.elapsed() >= TRIED_FOR {
                tracing::error!(
                    route,
                    id = message.id,
                    "dropped a notification after an hour of attempts: {why}"
                );
                self.queue.meters.dropped.inc();
                self.queue.remove(&message);
            } else if pause == FIRST_PAUSE {
                tracing::warn!(
                    route,
                    "a server does not accept notifications, which wait: {why}"
                );
            }
            tokio::time::sleep(asked.unwrap_or(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) async fn attempt(&self, message: &Message) -> Attempt {
        let body = match &message.content {
            Content::Bot(bot) => return self.attempt_bot(message, bot).await,
            Content::Body(body) => Ok(body.clone()),
            Content::Variables { record, link } => self.body(record.clone(), link.clone()).await,
        };
        let body = match body {
            Ok(body) => body,
            Err(why @ BodyError::Never(_)) => return Attempt::Never(why.to_string()),
            Err(why) => return Attempt::Later(why.to_string(), None),
        };
        match self.call(message, None, body).await {
            Err(why) => Attempt::Later(why, None),
            Ok((head, _)) => judged(head.status, &head.headers),
        }
    }

    /// Posts the message of a bot, or updates the message about the approvals of the same request. If that message can
    /// no longer be updated, posts a new one.
    async fn attempt_bot(&self, message: &Message, bot: &BotMessage) -> Attempt {
        let Some(channel) = &self.route.channel else {
            return Attempt::Never("the route has no channel".to_owned());
        };
        loop {
            let earlier = self.addresses.lock().find(bot).cloned();
            let (method, arguments) = bot.call(channel, earlier.as_ref());
            let body = arguments.to_string().into_bytes();
            let (head, content) = match self.call(message, Some(method), body).await {
                Ok(answered) => answered,
                Err(why) => return Attempt::Later(why, None),
            };
            let judged = judged(head.status, &head.headers);
            if !matches!(judged, Attempt::Taken) {
                return judged;
            }
            match slack_bot::answer(&content) {
                Ok(place) => {
                    self.addresses.lock().note(bot, place);
                    return Attempt::Taken;
                }
                Err(why) if earlier.is_some() && why.is_about_earlier() => {
                    self.addresses.lock().remove(bot);
                }
                Err(why) if why.is_final() => return Attempt::Never(why.to_string()),
                Err(why) => return Attempt::Later(why.to_string(), None),
            }
        }
    }

    /// Sends a body to the server, or to a method of its API. Returns the head of the response, and its content; none of
    /// it if it is too large.
    async fn call(
        &self,
        message: &Message,
        method: Option<&str>,
        body: Vec<u8>,
    ) -> Result<(Parts, Bytes), String> {
        let request = self.request(message, method, body);
        let (client, request) = request.map_err(|error| error.to_string())?;
        let asked = async {
            let answer = client
                .request(request)
                .await
                .map_err(|error| root_cause(&error))?;
            let (head, body) = answer.into_parts();
            // A connection can be reused only after the response is read.
            let content = Limited::new(body, MOST_ANSWERED).collect().await;
            let content = content.map_or_else(|_| Bytes::new(), |content| content.to_bytes());
            Ok::<_, String>((head, content))
        };
        let answered = tokio::time::timeout(SERVER_TIMEOUT, asked).await;
        answered.map_err(|_| format!("no response within {SERVER_TIMEOUT:?}"))?
    }

    /// Returns the body that the expression of the route gives for a record.
    async fn body(&self, record: Value, link: Value) -> Result<Vec<u8>, BodyError> {
        let route = &self.route;
        let secret = body::secret(&route.secret.values, &self.directory)?;
        let variables = Variables {
            record,
            link,
            secret,
        };
        // The configuration requires the expression for its format.
        let text = route.body.as_deref().unwrap_or("null");
        body::evaluated(text, variables).await
    }

    /// Builds the request and its client. Files are read again each time, since a Secret may have changed.
    fn request(
        &self,
        message: &Message,
        method: Option<&str>,
        body: Vec<u8>,
    ) -> anyhow::Result<(HttpClient, Request<Full<Bytes>>)> {
        let route = &self.route;
        let from_file = self.url_file.as_deref().map(read).transpose()?;
        let url = from_file.or_else(|| match &message.ticket {
            Some(ticket) => route.url_for(ticket),
            None => route.url.clone(),
        });
        let url = url.context("the route has no URL")?;
        let url = match method {
            None => url.trim().to_owned(),
            Some(method) => format!("{}/{method}", url.trim().trim_end_matches('/')),
        };
        let uri = self.endpoint.allowed.url(&url)?;
        let seconds = jiff::Timestamp::now().as_second();
        let mut request = Request::post(uri)
            .header(CONTENT_TYPE, route.format.media_type())
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", seconds);
        if let Some(file) = &self.signing_key_file {
            let key = SigningKey::read(&read(file)?);
            let key = key.map_err(|wanted| anyhow!("{} {wanted}", file.display()))?;
            let signature = key.sign(&message.id, seconds, &body);
            request = request.header("webhook-signature", signature);
        }
        let request = self.endpoint.authenticated(request)?;
        let body = Full::new(Bytes::from(body));
        let client = self.endpoint.client();
        let request = request.body(body)?;
        Ok((client?, request))
    }
}

fn judged(status: StatusCode, headers: &HeaderMap) -> Attempt {
    let why = format!("the server responded {status}");
    match status {
        _ if status.is_success() => Attempt::Taken,
        StatusCode::BAD_REQUEST
        | StatusCode::GONE
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => Attempt::Never(why),
        // A redirect is not followed; it indicates a URL that must be changed.
        _ => Attempt::Later(why, asked_pause(headers, FIRST_PAUSE..=LONGEST_PAUSE)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn a_server_is_obeyed_as_far_as_it_is_understood() {
        for (status, after, expected) in [
            (200, None, "taken"),
            (204, None, "taken"),
            (400, None, "never"),
            (410, None, "never"),
            (422, None, "never"),
            // The token may be replaced, and the server may be available again.
            (401, None, "later None"),
            (404, None, "later None"),
            (302, None, "later None"),
            (429, Some("9"), "later Some(9s)"),
            (503, Some("86400"), "later Some(60s)"),
            (503, Some("0"), "later Some(500ms)"),
            (500, Some("soon"), "later None"),
        ] {
            let after = after.map(|after| (RETRY_AFTER, HeaderValue::from_static(after)));
            let headers = HeaderMap::from_iter(after.clone());
            let status = StatusCode::from_u16(status).unwrap();
            let said = match judged(status, &headers) {
                Attempt::Taken => "taken".to_owned(),
                Attempt::Never(_) => "never".to_owned(),
                Attempt::Later(_, asked) => format!("later {asked:?}"),
            };
            assert_eq!(said, expected, "{status} {after:?}");
        }
    }

    #[test]
    fn a_url_is_in_no_message_about_it() {
        for url in [
            "https://hooks.test/T000/secret word",
            "https://u:secret@hooks.test/",
            "ftp://secret.test",
        ] {
            let error = Allowed::default().url(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
