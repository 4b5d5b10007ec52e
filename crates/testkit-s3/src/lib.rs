//! A bucket behind a server that speaks S3 and checks what is signed (s3s), and that fails as it is told to. A crate of
//! its own, so that only tests that store something compile it.

mod backend;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
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

/// The keys by which it is asked.
const KEY: &str = "oz-key";
const SECRET: &str = "oz-secret";

/// How the server fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// It does not.
    #[default]
    None,
    /// 403.
    Denied,
    /// 503.
    Busy,
    /// 409.
    Conflict,
    /// It stores, and does not say so.
    Stalls,
    /// 404: there is no such bucket.
    NoBucket,
    /// 507: there is no room.
    Full,
    /// 500.
    Broken,
}

/// An object, and how it was put.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// What was put.
    pub bytes: Bytes,
    /// The mode of its Object Lock.
    pub mode: Option<String>,
    /// Until when nobody may delete it, as RFC 3339 says it.
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

/// A server with one bucket, whatever that is called.
pub struct ObjectStore {
    shared: Arc<Shared>,
    service: S3Service,
    address: SocketAddr,
    credentials: TempDir,
    server: JoinSet<()>,
}

impl ObjectStore {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut builder = S3ServiceBuilder::new(Backend(Arc::clone(&shared)));
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut store = Self {
            shared,
            service: builder.build(),
            address: listener.local_addr()?,
            credentials: TempDir::new()?,
            server: JoinSet::new(),
        };
        store.sets("access-key-id", &format!("{KEY}\n"))?;
        store.sets("secret-access-key", &format!("{SECRET}\n"))?;
        store.serve(listener);
        Ok(store)
    }

    /// Its URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A directory with the keys by which it is asked, each a file.
    #[must_use]
    pub fn credentials(&self) -> &Path {
        self.credentials.path()
    }

    /// Writes one of the files of [`ObjectStore::credentials`].
    ///
    /// # Errors
    /// When there is no room.
    pub fn sets(&self, file: &str, text: &str) -> Result<()> {
        let path = self.credentials().join(file);
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
    }

    /// From now on it fails like this.
    pub fn fails(&self, fault: Fault) {
        *self.shared.fault.lock() = fault;
    }

    /// What is stored, by the names of the objects.
    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.shared.objects()
    }

    /// Ends the server without warning, in the middle of whatever it is about, as if it were killed: its connections
    /// break. What is stored stays.
    pub async fn kill(&mut self) {
        self.server.shutdown().await;
    }

    /// Starts it once more, where it was.
    ///
    /// # Errors
    /// When it cannot listen there any more.
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
