//! A collector outside the cluster: each record as a CloudEvent 1.0 in structured mode, by POST, in
//! the order of the chain, tried again until it is taken. While the collector is away, records wait
//! in memory, up to a bound; where it is required, nothing that needs a record goes on meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use kube::client::Body;
use kube::{Client, Config};
use oz_core::audit::Entry;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::Trail;
use super::args::AuditArgs;
use super::ledger::Place;

const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

/// A record as a CloudEvent.
pub(super) struct Event {
    seq: u64,
    id: String,
    kind: &'static str,
    source: String,
    time: String,
    subject: String,
    line: Arc<str>,
}

impl Event {
    pub(super) fn of(entry: &Entry, line: Arc<str>) -> Self {
        let record = &entry.record;
        Self {
            seq: entry.link.seq,
            id: entry.link.digest.clone(),
            kind: record.action.into(),
            source: format!("/oz/{}", entry.link.writer),
            time: record.time.to_string(),
            subject: format!("{}/{}", record.request.namespace, record.request.name),
            line,
        }
    }

    fn body(&self) -> anyhow::Result<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct CloudEvent<'a> {
            specversion: &'static str,
            id: &'a str,
            source: &'a str,
            r#type: String,
            time: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            subject: Option<&'a str>,
            datacontenttype: &'static str,
            data: &'a RawValue,
        }
        let event = CloudEvent {
            specversion: "1.0",
            id: &self.id,
            source: &self.source,
            r#type: format!("co.wizardofoz.audit.{}", self.kind),
            time: &self.time,
            // A subject, if there is one, is not empty.
            subject: (self.subject != "/").then_some(&self.subject),
            datacontenttype: "application/json",
            data: serde_json::from_str(&self.line)?,
        };
        Ok(serde_json::to_vec(&event)?)
    }
}

/// What waits for the collector.
#[derive(Clone)]
pub(super) struct Spool {
    events: Arc<Mutex<VecDeque<Arc<Event>>>>,
    more: Arc<Notify>,
    bound: usize,
}

impl Spool {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            events: Arc::default(),
            more: Arc::default(),
            bound: bound.max(1),
        }
    }

    /// Adds an event; returns how many had to go for it.
    pub(super) fn push(&self, event: Event) -> u64 {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = 0;
        while events.len() >= self.bound {
            events.pop_front();
            lost += 1;
        }
        events.push_back(Arc::new(event));
        self.more.notify_one();
        lost
    }

    async fn first(&self) -> Arc<Event> {
        loop {
            if let Some(event) = self.front() {
                return event;
            }
            self.more.notified().await;
        }
    }

    fn front(&self) -> Option<Arc<Event>> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.front().cloned()
    }

    fn taken(&self, event: &Arc<Event>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events
            .front()
            .is_some_and(|front| Arc::ptr_eq(front, event))
        {
            events.pop_front();
        }
    }
}

/// The collector.
pub(super) struct Collector {
    client: Client,
    path: String,
}

impl Collector {
    /// The client of the Kubernetes API speaks HTTP and TLS as we want them, and re-reads tokens.
    pub(super) fn new(url: &http::Uri, args: &AuditArgs) -> anyhow::Result<Self> {
        let mut parts = url.clone().into_parts();
        let path = url
            .path_and_query()
            .map_or_else(|| "/".to_owned(), ToString::to_string);
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let mut config = Config::new(http::Uri::from_parts(parts)?);
        config.default_retry = false;
        config.connect_timeout = Some(PATIENCE);
        config.read_timeout = Some(PATIENCE);
        if let Some(file) = &args.audit_http_ca {
            let pem = std::fs::read(file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            let certificates = rustls_pki(&pem)
                .with_context(|| format!("failed to read certificates from {}", file.display()))?;
            config.root_cert = Some(certificates);
        }
        config.auth_info.token_file = args
            .audit_http_token_file
            .as_ref()
            .map(|file| file.display().to_string());
        let client = Client::try_from(config).context("failed to use --audit-http")?;
        Ok(Self { client, path })
    }

    async fn send(&self, event: &Event) -> anyhow::Result<()> {
        let request = http::Request::post(&self.path)
            .header(
                "content-type",
                "application/cloudevents+json; charset=utf-8",
            )
            .body(Body::from(event.body()?))?;
        let answer = tokio::time::timeout(PATIENCE, self.client.send(request))
            .await
            .context("no answer")??;
        anyhow::ensure!(
            answer.status().is_success(),
            "it answered {}",
            answer.status()
        );
        Ok(())
    }
}

fn rustls_pki(pem: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
        .collect();
    Ok(certificates?)
}

/// Delivers what comes, until the process ends.
pub(super) async fn deliver(
    trail: Trail,
    collector: Collector,
    spool: Spool,
    component: &'static str,
) {
    let mut pause = SOON;
    loop {
        let event = spool.first().await;
        match collector.send(&event).await {
            Ok(()) => {
                spool.taken(&event);
                trail.arrived(event.seq, Place::COLLECTOR);
                pause = SOON;
            }
            Err(error) => {
                trail.shared.meters.failed("http");
                if pause == SOON {
                    tracing::warn!(
                        component,
                        "the audit collector does not take records: {error:#}"
                    );
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LATE);
            }
        }
    }
}
