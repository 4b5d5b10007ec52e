//! The application of manifests of the repository. Most tests begin with an installation that the test before
//! them has not changed, so an object is written only if its manifest, or its UID or version on the server,
//! differs from the last application by this process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams,
};
use kube::{Api, Client, ResourceExt as _};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::Value;

use crate::repository;

/// The field manager of kubectl, so that manifests which an administrator applies by hand do not conflict.
const FIELD_MANAGER: &str = "kubectl";
/// The number of objects that are written at a time.
const CONCURRENCY: usize = 8;
const DEFINITION: &str = "CustomResourceDefinition";

/// Applies a file or folder of the repository as an administrator.
///
/// # Errors
/// When the API server refuses part of it.
pub fn apply(cluster: &Cluster, part: &str) -> Result<()> {
    let manifests =
        read(&repository().join(part)).with_context(|| format!("failed to read {part}"))?;
    let applied = as_admin(cluster, async |admin| {
        apply_all(cluster.server_url(), &admin, &manifests).await
    });
    applied.with_context(|| format!("failed to apply {part}"))
}

/// Runs `action` as an administrator, in a separate thread with a separate runtime, and waits for it: some
/// callers have no runtime.
pub(crate) fn as_admin<T: Send>(
    cluster: &Cluster,
    action: impl AsyncFnOnce(Client) -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async { action(cluster.client("admin").await?).await })
        });
        acting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// An object in the form of its file.
#[derive(Debug)]
struct Manifest {
    resource: ApiResource,
    key: Key,
    object: DynamicObject,
}

/// Kind, namespace and name.
type Key = (String, Option<String>, String);

/// The version of an object on the server: UID and generation, or the resource version of an object that has no
/// generation.
type State = (Option<String>, Option<i64>, Option<String>);

/// The objects that this process applied, by server, with their versions afterwards.
static APPLIED: Mutex<BTreeMap<(String, Key), (DynamicObject, State)>> =
    Mutex::new(BTreeMap::new());

/// Returns the objects in a file, or in the files of a folder in the order of their names. Each file is read
/// once.
fn read(path: &Path) -> Result<Arc<Vec<Manifest>>> {
    static READ: Mutex<BTreeMap<PathBuf, Arc<Vec<Manifest>>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock();
    if let Some(manifests) = read.get(path) {
        return Ok(Arc::clone(manifests));
    }
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        files = entries.collect::<Result<_>>()?;
        files.retain(|file| {
            file.extension()
                .is_some_and(|it| it == "yaml" || it == "json")
        });
        files.sort();
    }
    let mut manifests = Vec::new();
    for file in files {
        let failed = || format!("failed to read {}", file.display());
        let text = std::fs::read_to_string(&file).with_context(failed)?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(failed)?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            manifests.push(Manifest::new(document).with_context(failed)?);
        }
    }
    let manifests = Arc::new(manifests);
    read.insert(path.to_owned(), Arc::clone(&manifests));
    Ok(manifests)
}

impl Manifest {
    fn new(document: Value) -> Result<Self> {
        let object = DynamicObject::deserialize(document)?;
        let types = object.types.clone().context("it has no kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
        let key = (resource.kind.clone(), object.namespace(), object.name_any());
        Ok(Self {
            resource,
            key,
            object,
        })
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// Returns whether other objects require this one, so that it is applied first.
    fn is_foundation(&self) -> bool {
        ["Namespace", DEFINITION].contains(&self.resource.kind.as_str())
    }
}

fn state(metadata: &ObjectMeta) -> State {
    let version = match metadata.generation {
        Some(_) => None,
        None => metadata.resource_version.clone(),
    };
    (metadata.uid.clone(), metadata.generation, version)
}

async fn apply_all(server: &str, admin: &Client, manifests: &[Manifest]) -> Result<()> {
    let present = present(admin, manifests).await?;
    let place = |manifest: &Manifest| (server.to_owned(), manifest.key.clone());
    let is_outdated = |manifest: &&Manifest| {
        let applied = APPLIED.lock();
        applied.get(&place(manifest)).is_none_or(|(object, state)| {
            *object != manifest.object || present.get(&manifest.key) != Some(state)
        })
    };
    let outdated = manifests.iter().filter(is_outdated);
    let (first, then): (Vec<_>, Vec<_>) = outdated.partition(|manifest| manifest.is_foundation());
    for stage in [first, then] {
        let mut written = futures::stream::iter(stage)
            .map(async |manifest| Ok::<_, anyhow::Error>((manifest, write(admin, manifest).await?)))
            .buffer_unordered(CONCURRENCY);
        while let Some((manifest, state)) = written.try_next().await? {
            let mut applied = APPLIED.lock();
            applied.insert(place(manifest), (manifest.object.clone(), state));
        }
    }
    Ok(())
}

/// Returns the state of each object on the server that is of a kind of the manifests.
async fn present(admin: &Client, manifests: &[Manifest]) -> Result<BTreeMap<Key, State>> {
    let mut present = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    for manifest in manifests {
        let resource = &manifest.resource;
        if !kinds.insert(&resource.kind) {
            continue;
        }
        let all: Api<DynamicObject> = Api::all_with(admin.clone(), resource);
        let list = match all.list_metadata(&ListParams::default()).await {
            Ok(list) => list,
            // The manifests may define the kind, or have defined it just now; or a hostile test has stored an
            // object that does not decode. Objects in an unknown state are written again.
            Err(kube::Error::Api(status)) if [404, 429].contains(&status.code) => continue,
            Err(kube::Error::SerdeError(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        for object in list.items {
            let key = (resource.kind.clone(), object.namespace(), object.name_any());
            present.insert(key, state(&object.metadata));
        }
    }
    Ok(present)
}

/// Repeats a request for as long as the server reports that it cannot answer yet: it initializes the storage
/// of a new kind (429), or does not serve it yet (404).
async fn answered<T>(what: &str, mut ask: impl AsyncFnMut() -> kube::Result<T>) -> Result<T> {
    eventually(what, CONDITION_TIMEOUT, async || match ask().await {
        Ok(answer) => Ok(Some(Ok(answer))),
        Err(kube::Error::Api(status)) if [404, 429].contains(&status.code) => {
            bail!("{status}")
        }
        Err(error) => Ok(Some(Err(error))),
    })
    .await?
    .map_err(Into::into)
}

/// Writes an object, and waits until a definition is established.
async fn write(admin: &Client, manifest: &Manifest) -> Result<State> {
    let (kind, _, name) = &manifest.key;
    let what = format!("{kind} {name} to be applied");
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let api = manifest.api(admin);
    let patch = Patch::Apply(&manifest.object);
    let written = answered(&what, async || api.patch(name, &parameters, &patch).await);
    let written = written.await?;
    if kind == DEFINITION {
        let what = format!("{name} to be established");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let definition = api.get(name).await?;
            Ok(is_established(&definition).then_some(()))
        })
        .await?;
    }
    Ok(state(&written.metadata))
}

fn is_established(definition: &DynamicObject) -> bool {
    let conditions = definition.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Established" && one["status"] == "True")
}
