//! Lists a kind, then watches it from there: bodies are read as streams, and objects are decoded
//! one by one, so that neither a page nor an object that does not decode blocks the others.
//! See docs/adr/0011-one-object-at-a-time.md.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Duration;

use http::{Request, Response, header};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use kube::core::{ApiResource, Status};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{Guarded, Health, StoreEvent};
use crate::raw::{Form, ListEnd, Piece, RawObject, Splitter, list_end, without_content};

/// The timeout for data of a list, and for the response to a request for a list.
const LIST_SILENCE: Duration = Duration::from_secs(30);
/// The timeout for data of a watch: bookmarks arrive once a minute.
/// See <https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks>.
const WATCH_SILENCE: Duration = Duration::from_secs(100);
/// The time for which the API server keeps a watch open.
const WATCH_SECONDS: u32 = 290;
/// The number of objects per page.
const PAGE: u32 = 500;
/// The status code for a version that the API server's history does not contain any more.
const GONE: u16 = 410;
/// The maximum length of an error's text.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The pause before a watch that ended at once is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

/// The objects of a kind to watch, and the parts of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
}

impl Selection {
    /// Selects the object of this name in each namespace.
    #[must_use]
    pub fn with_name(name: &str) -> Self {
        Self::default().fields(&format!("metadata.name={name}"))
    }

    /// Selects the objects that a label selector selects.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.labels = Some(selector.to_owned());
        self
    }

    /// Selects the objects that a field selector selects.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.fields = Some(selector.to_owned());
        self
    }

    /// Selects only the metadata of the objects: the API server omits the rest.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Returns the label selector.
    pub(crate) fn selector(&self) -> Option<&str> {
        self.labels.as_deref()
    }

    fn accept(&self, form: Form) -> &'static str {
        match (self.metadata_only, form) {
            (false, _) => "application/json",
            (true, Form::List) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            (true, Form::Watch) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}

/// The failure of a list or a watch.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The API server rejects the request.
    #[error("{message} ({code})")]
    Refused {
        /// The status code.
        code: u16,
        /// The message of the API server.
        message: String,
    },
    /// The API server cannot be reached, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// No data arrives within the timeout.
    #[error("the API server sent nothing")]
    Silent,
    /// The data is neither a list nor a watch.
    #[error("not a response to a list or a watch: {0}")]
    Malformed(String),
}

/// The open stream, and its position.
#[derive(Default)]
enum State {
    #[default]
    Begin,
    Opening,
    Listing(Stream),
    Watching {
        version: String,
        stream: Option<Stream>,
    },
}

struct Stream {
    body: Body,
    splitter: Splitter,
    /// The object of a watch event before the event's type is read.
    object: Option<RawObject>,
    heard: bool,
}

/// A list, and the watch that follows it, without end.
pub(crate) struct Watch<K> {
    client: Client,
    path: String,
    selection: Selection,
    health: Health,
    state: State,
    /// The events that have arrived and were not returned yet.
    ready: VecDeque<StoreEvent<Guarded<K>>>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Deserialize)]
struct WatchEnd {
    #[serde(rename = "type")]
    kind: String,
}

impl<K: Resource + DeserializeOwned> Watch<K> {
    pub(crate) fn new(
        client: &Client,
        resource: &ApiResource,
        namespace: Option<&str>,
        selection: Selection,
        health: Health,
    ) -> Self {
        let root = match resource.group.as_str() {
            "" => format!("/api/{}", resource.version),
            group => format!("/apis/{group}/{}", resource.version),
        };
        let plural = &resource.plural;
        Self {
            client: client.clone(),
            path: match namespace {
                Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
                None => format!("{root}/{plural}"),
            },
            selection,
            health,
            state: State::Begin,
            ready: VecDeque::new(),
            kind: PhantomData,
        }
    }

    /// Returns the state of the watch.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Starts again with a list.
    pub(crate) fn begin_again(&mut self) {
        self.ready.clear();
        self.state = State::Begin;
    }

    /// Returns the next event; a caller may drop the future and call this again. After an error, the next call makes
    /// another attempt, and the caller should pause before it; an object that does not decode is no error.
    ///
    /// # Errors
    /// When the list or the watch fails.
    pub(crate) async fn next(&mut self) -> Result<StoreEvent<Guarded<K>>, WatchError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if let Err(error) = self.advance().await {
                self.health.failed(&error.to_string());
                self.fail(&error);
                return Err(error);
            }
        }
    }

    /// Starts the list again, or opens the watch again at its version, if the API server's history
    /// reaches back that far.
    fn fail(&mut self, error: &WatchError) {
        match &mut self.state {
            State::Watching { stream, .. } if !is_gone(error) => *stream = None,
            state => *state = State::Begin,
        }
    }

    async fn advance(&mut self) -> Result<(), WatchError> {
        match &mut self.state {
            State::Begin => {
                // Before the request: the list may lack an object that this process writes from now on.
                self.ready.push_back(StoreEvent::Init);
                self.state = State::Opening;
            }
            State::Opening => {
                self.state = State::Listing(self.open(Form::List, "").await?);
            }
            State::Listing(stream) => {
                let mut pieces = Vec::new();
                let goes_on = stream.read(LIST_SILENCE, &mut pieces).await?;
                let end = self.listed(pieces)?;
                match end {
                    Some(end) => self.page_ends(end).await?,
                    None if !goes_on => return Err(malformed("the list ends early")),
                    None => {}
                }
            }
            State::Watching {
                stream: None,
                version,
            } => {
                let version = version.clone();
                let opened = self.open(Form::Watch, &version).await?;
                // A bookmark may take more than a minute.
                self.health.opened();
                let stream = Some(opened);
                self.state = State::Watching { version, stream };
            }
            State::Watching {
                stream: Some(open), ..
            } => {
                let mut pieces = Vec::new();
                let goes_on = open.read(WATCH_SILENCE, &mut pieces).await?;
                let heard = !pieces.is_empty() || open.heard;
                open.heard = heard;
                self.read_events(pieces)?;
                if !goes_on {
                    if !heard {
                        tokio::time::sleep(REOPEN_PAUSE).await;
                    }
                    if let State::Watching { stream, .. } = &mut self.state {
                        *stream = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a part of a list; returns its end if this is the last part.
    fn listed(&mut self, pieces: Vec<Piece>) -> Result<Option<ListEnd>, WatchError> {
        let mut end = None;
        for piece in pieces {
            match piece {
                Piece::Object(object) => {
                    let object = Guarded::decode(&object);
                    self.ready.push_back(StoreEvent::InitApply(object));
                }
                Piece::Around(text) => {
                    let read = list_end(&text);
                    end = Some(read.map_err(|error| malformed(&without_content(&error)))?);
                }
            }
        }
        Ok(end)
    }

    async fn page_ends(&mut self, end: ListEnd) -> Result<(), WatchError> {
        if let Some(next) = end.next() {
            self.state = State::Listing(self.open(Form::List, &next).await?);
            return Ok(());
        }
        let Some(version) = end.resource_version else {
            return Err(malformed("a list without a resource version"));
        };
        self.health.heard();
        self.ready.push_back(StoreEvent::InitDone);
        self.state = State::Watching {
            version,
            stream: None,
        };
        Ok(())
    }

    /// Reads watch events.
    fn read_events(&mut self, pieces: Vec<Piece>) -> Result<(), WatchError> {
        for piece in pieces {
            let State::Watching {
                version,
                stream: Some(stream),
            } = &mut self.state
            else {
                return Ok(());
            };
            let text = match piece {
                Piece::Object(object) => {
                    stream.object = Some(object);
                    continue;
                }
                Piece::Around(text) => text,
            };
            let end: WatchEnd = parse(&text)?;
            let Some(object) = stream.object.take() else {
                return Err(malformed("an event without an object"));
            };
            if end.kind == "ERROR" {
                // Regardless of the kind of error, the events so far may be incomplete.
                return Err(refused(GONE, object.text()));
            }
            self.health.heard();
            if end.kind == "BOOKMARK" {
                let metadata = object.metadata().map(serde_json::from_slice::<ObjectMeta>);
                if let Some(Ok(metadata)) = metadata {
                    *version = metadata.resource_version.unwrap_or_else(|| version.clone());
                }
                continue;
            }
            let object = Guarded::<K>::decode(&object);
            if let Some(seen) = &object.metadata().resource_version {
                version.clone_from(seen);
            }
            self.ready.push_back(match end.kind.as_str() {
                "ADDED" | "MODIFIED" => StoreEvent::Apply(object),
                "DELETED" => StoreEvent::Delete(object),
                _ => return Err(malformed("an event of an unknown type")),
            });
        }
        Ok(())
    }

    /// Returns the request for a page of the list, or for the watch; `from` is the token or version
    /// from which it continues.
    fn request(&self, form: Form, from: &str) -> Result<Request<Body>, WatchError> {
        let path = format!("{}?", self.path);
        let begin = path.len();
        let mut query = form_urlencoded::Serializer::for_suffix(path, begin);
        match form {
            Form::List => {
                query.append_pair("limit", &PAGE.to_string());
                if !from.is_empty() {
                    query.append_pair("continue", from);
                }
            }
            Form::Watch => {
                query.append_pair("watch", "true");
                query.append_pair("allowWatchBookmarks", "true");
                query.append_pair("timeoutSeconds", &WATCH_SECONDS.to_string());
                query.append_pair("resourceVersion", from);
            }
        }
        if let Some(selector) = self.selection.selector() {
            query.append_pair("labelSelector", selector);
        }
        if let Some(selector) = &self.selection.fields {
            query.append_pair("fieldSelector", selector);
        }
        Request::get(query.finish())
            .header(header::ACCEPT, self.selection.accept(form))
            .body(Body::empty())
            .map_err(|error| malformed(&error.to_string()))
    }

    fn open(
        &self,
        form: Form,
        from: &str,
    ) -> impl Future<Output = Result<Stream, WatchError>> + Send + use<K> {
        let (request, client) = (self.request(form, from), self.client.clone());
        async move {
            let answer = timeout(LIST_SILENCE, client.send(request?)).await;
            let answer = answer.map_err(|_| WatchError::Silent)?;
            let answer = answer.map_err(|error| unreachable(&error))?;
            if !answer.status().is_success() {
                return Err(failed(answer).await);
            }
            Ok(Stream {
                body: answer.into_body(),
                splitter: Splitter::new(form),
                object: None,
                heard: false,
            })
        }
    }
}

impl Stream {
    /// Adds the pieces that the next part of the body completes, and returns whether the body
    /// continues.
    async fn read(
        &mut self,
        silence: Duration,
        pieces: &mut Vec<Piece>,
    ) -> Result<bool, WatchError> {
        let frame = timeout(silence, self.body.frame()).await;
        match frame.map_err(|_| WatchError::Silent)? {
            None => Ok(false),
            Some(Err(error)) => Err(unreachable(&error)),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.splitter.push(data, pieces);
                }
                if self.splitter.too_much() {
                    return Err(malformed(
                        "more data outside of the objects than an API server sends",
                    ));
                }
                Ok(true)
            }
        }
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, WatchError> {
    serde_json::from_slice(text).map_err(|error| malformed(&without_content(&error)))
}

fn malformed(what: &str) -> WatchError {
    WatchError::Malformed(what.to_owned())
}

fn unreachable(error: &dyn std::error::Error) -> WatchError {
    WatchError::Unreachable(crate::call::root_cause(error))
}

/// Checks whether the list must start again: the API server's history does not reach back that far.
fn is_gone(error: &WatchError) -> bool {
    matches!(error, WatchError::Refused { code: GONE, .. })
}

async fn failed(answer: Response<Body>) -> WatchError {
    let code = answer.status().as_u16();
    let body = http_body_util::Limited::new(answer.into_body(), MAX_ERROR_BYTES);
    let text = timeout(LIST_SILENCE, body.collect()).await;
    let text = text.ok().and_then(Result::ok).map(|text| text.to_bytes());
    refused(code, text.as_deref())
}

/// Returns the error for a status.
fn refused(code: u16, text: Option<&[u8]>) -> WatchError {
    let status = text.and_then(|text| serde_json::from_slice::<Status>(text).ok());
    let message = status.map(|status| status.message);
    let message = message.filter(|message| !message.is_empty());
    WatchError::Refused {
        code,
        message: message.unwrap_or_else(|| "no reason given".to_owned()),
    }
}

#[cfg(test)]
mod tests;
