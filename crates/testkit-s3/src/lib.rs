//! A bucket behind a server that speaks S3 and verifies signatures (s3s), and that fails on request. It is a separate
//! crate, so that only tests that store objects compile it.

mod backend;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::{Mutex, MutexGuard};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use backend::Backend;

/// The keys with which clients sign requests.
const KEY: &str = "oz-key";
const SECRET: &str = "oz-secret";

/// The failure of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No failure.
    #[default]
    None,
    /// 403.
    Denied,
    /// 503.
    Busy,
    /// 409.
    Conflict,
    /// The server stores the object and does not respond.
    Stalls,
    /// 404: the bucket does not exist.
    NoBucket,
    /// 507: the storage is full.
    Full,
    /// 500.
    Broken,
}

/// An object, and the properties with which a client stored it.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// The content.
    pub bytes: Bytes,
    /// The mode of its Object Lock.
    pub mode: Option<String>,
    /// The instant until which no client may delete the object, in RFC 3339.
    pub until: Option<String>,
}

#[derive(Default)]
struct Shared {
    fault: Mutex<Fault>,
    objects: Mutex<BTreeMap<String, Object>>,
}

impl Shared {
    fn fault(&self) -> Fault {
        *self.fault.lock()
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.objects.lock()
    }
}

/// A server with one bucket, under any name.
pub struct ObjectStore {
    shared: Arc<Shared>,
    service: S3Service,
    address: SocketAddr,
    secrets: TempDir,
    server: JoinSet<()>,
}

impl ObjectStore {
    /// Starts a server.
    ///
    /// # Errors
    /// The server cannot listen.
    pub async fn start() -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut builder = S3ServiceBuilder::new(Backend(Arc::clone(&shared)));
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut store = Self {
            shared,
            service: builder.build(),
            address: listener.local_addr()?,
            secrets: TempDir::new()?,
            server: JoinSet::new(),
        };
        std::fs::create_dir(store.credentials())?;
        store.sets("access-key-id", &format!("{KEY}\n"))?;
        store.sets("secret-access-key", &format!("{SECRET}\n"))?;
        store.serve(listener);
        Ok(store)
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a directory with the keys with which clients sign requests, one per file.
    #[must_use]
    pub fn credentials(&self) -> PathBuf {
        self.secrets().join("recordings")
    }

    /// Returns the directory of Secrets of a gate that uses the store.
    #[must_use]
    pub fn secrets(&self) -> &Path {
        self.secrets.path()
    }

    /// Writes one of the files of [`ObjectStore::credentials`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn sets(&self, file: &str, text: &str) -> Result<()> {
        let path = self.credentials().join(file);
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
    }

    /// Sets the failure of all further requests.
    pub fn fails(&self, fault: Fault) {
        *self.shared.fault.lock() = fault;
    }

    /// Returns the stored objects by name.
    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.shared.objects()
    }

    /// Ends the server without warning, in the middle of its work, as if the process were killed: its connections
    /// break. Stored objects remain.
    pub async fn kill(&mut self) {
        self.server.shutdown().await;
    }

    /// Starts the server again, at the same address.
    ///
    /// # Errors
    /// The server cannot listen at that address.
    pub async fn again(&mut self) -> Result<()> {
        let address = self.address;
        let listener = TcpListener::bind(address).await;
        self.serve(listener.with_context(|| format!("failed to listen on {address}"))?);
        Ok(())
    }

    fn serve(&mut self, listener: TcpListener) {
        let service = self.service.clone();
        self.server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                connections.spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
    }
}
