//! The index of an image: one name and digest for the archives of several processors. Each is built on its own
//! processor; the index only refers to them, and its bytes depend on nothing else.
//! See <https://github.com/opencontainers/image-spec/blob/main/image-index.md>.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::LABEL;
use crate::tarball::{self, Member, Members};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The labels in which all archives agree, and which the index repeats as annotations.
const COMMON: [&str; 5] = ["title", "version", "licenses", "source", "revision"];

/// A verified archive of an image for one processor.
#[derive(Debug)]
pub(crate) struct Archive {
    /// The name of its file, for errors.
    file: String,
    /// The image's name with its tag.
    name: String,
    processor: String,
    labels: BTreeMap<String, String>,
    /// The descriptor of its manifest.
    manifest: Value,
    blobs: Members,
}

impl Archive {
    /// Reads an archive.
    ///
    /// # Errors
    /// As [`Archive::parse`].
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).with_context(|| format!("failed to read {file}"))?;
        Self::parse(&file, &bytes)
    }

    /// Reads an archive that `cargo xtask image` wrote, and compares all of its digests.
    ///
    /// # Errors
    /// When it is cut or changed, or has not exactly one image.
    pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        let failed = || {
            format!("failed to read image archive {file}: build it again with `cargo xtask image`")
        };
        let mut members = tarball::unpack(bytes).with_context(failed)?;
        let index = members.remove("index.json").context("it has no index.json");
        let index = index.and_then(|index| parse(&index)).with_context(failed)?;
        let images = index["manifests"].as_array().map(Vec::as_slice);
        let [image] = images.unwrap_or_default() else {
            return Err(anyhow::anyhow!("it has not exactly one image")).with_context(failed);
        };
        let blobs = Members::new();
        let mut archive = Self {
            file: file.to_owned(),
            name: text(&image["annotations"]["io.containerd.image.name"]).with_context(failed)?,
            processor: String::new(),
            labels: BTreeMap::new(),
            manifest: descriptor(image),
            blobs,
        };
        archive.take_blobs(image, &members).with_context(failed)?;
        Ok(archive)
    }

    /// Takes the blobs of the image from the members of the archive.
    fn take_blobs(&mut self, image: &Value, members: &Members) -> Result<()> {
        let manifest = parse(self.take(image, members)?)?;
        let config = parse(self.take(&manifest["config"], members)?)?;
        let layers = manifest["layers"].as_array().context("it has no layers")?;
        for layer in layers {
            self.take(layer, members)?;
        }
        self.processor = text(&config["architecture"])?;
        let named = text(&image["platform"]["architecture"])?;
        ensure!(
            named == self.processor,
            "its index names {named}, and its image is for {}",
            self.processor
        );
        let labels = config["config"]["Labels"].as_object();
        for (name, value) in labels.into_iter().flatten() {
            self.labels.insert(name.clone(), text(value)?);
        }
        Ok(())
    }

    /// Takes the blob of a descriptor, and compares its size and digest.
    fn take<'a>(&mut self, descriptor: &Value, members: &'a Members) -> Result<&'a Member> {
        let digest = text(&descriptor["digest"])?;
        let path = path(&digest);
        let blob = members
            .get(&path)
            .with_context(|| format!("it lacks blob {digest}"))?;
        let content = blob
            .content()
            .with_context(|| format!("{path} is no file"))?;
        ensure!(
            descriptor["size"] == content.len() && self::digest(content) == digest,
            "blob {digest} has another content"
        );
        self.blobs.insert(path, blob.clone());
        Ok(blob)
    }

    /// Returns the value of a label of `org.opencontainers.image`.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .get(&format!("{LABEL}.{name}"))
            .map(String::as_str)
    }

    /// Returns the processor, in Go's notation.
    pub(crate) fn processor(&self) -> &str {
        &self.processor
    }
}

/// An index, and the archives to which it refers.
#[derive(Debug)]
pub(crate) struct Index {
    /// Ordered by processor.
    archives: Vec<Archive>,
    name: String,
    /// Title and version of the image, for the name of the file.
    base: String,
    content: Vec<u8>,
    digest: String,
}

impl Index {
    /// Joins archives of one image.
    ///
    /// # Errors
    /// When two are for one processor, or differ in name, version, revision or another common label.
    pub(crate) fn new(mut archives: Vec<Archive>) -> Result<Self> {
        archives.sort_by(|one, other| one.processor.cmp(&other.processor));
        for pair in archives.windows(2) {
            if let [one, other] = pair {
                require_same_image(one, other)?;
            }
        }
        let first = archives.first().context("an index requires an archive")?;
        let name = first.name.clone();
        let label = |label| {
            let value = first.label(label);
            value.with_context(|| format!("{} has no label {LABEL}.{label}", first.file))
        };
        let base = format!("{}-{}", label("title")?, label("version")?);
        let annotations: BTreeMap<String, &str> = COMMON
            .iter()
            .filter_map(|label| Some((format!("{LABEL}.{label}"), first.label(label)?)))
            .collect();
        let manifests: Vec<Value> = archives
            .iter()
            .map(|archive| {
                let mut manifest = archive.manifest.clone();
                manifest["platform"] = json!({"architecture": archive.processor, "os": "linux"});
                manifest
            })
            .collect();
        let content = serde_json::to_vec(&json!({
            "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests,
            "annotations": annotations,
        }))?;
        Ok(Self {
            digest: digest(&content),
            archives,
            name,
            base,
            content,
        })
    }

    /// Returns the image's name with its tag.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the digest by which registries know the index.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the name of the archive's file.
    pub(crate) fn file_name(&self) -> String {
        format!("{}.oci.tar", self.base)
    }

    /// Returns the processors, ordered.
    pub(crate) fn processors(&self) -> Vec<&str> {
        let archives = self.archives.iter();
        archives.map(Archive::processor).collect()
    }

    /// Returns the archive: an OCI image layout with one image, the index.
    ///
    /// # Errors
    /// When the tar stream cannot be ended.
    pub(crate) fn archive(&self) -> Result<Vec<u8>> {
        let layout = json!({"imageLayoutVersion": "1.0.0"});
        let top = json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [{
                "mediaType": INDEX, "digest": self.digest, "size": self.content.len(),
                "annotations": {
                    "io.containerd.image.name": self.name,
                    "org.opencontainers.image.ref.name": self.name.rsplit(':').next(),
                },
            }],
        });
        let mut members: Members = self
            .archives
            .iter()
            .flat_map(|archive| archive.blobs.clone())
            .collect();
        members.insert(path(&self.digest), Member::File(self.content.clone()));
        for (name, value) in [("oci-layout", layout), ("index.json", top)] {
            members.insert(name.to_owned(), Member::File(serde_json::to_vec(&value)?));
        }
        tarball::pack(&members)
    }
}

fn require_same_image(one: &Archive, other: &Archive) -> Result<()> {
    let (this, that) = (&one.file, &other.file);
    ensure!(
        one.processor != other.processor,
        "{this} and {that} are both for {}: name one archive for each processor",
        one.processor
    );
    let next = "build both from one commit";
    for label in COMMON {
        let shown = |archive: &Archive| archive.label(label).unwrap_or("no value").to_owned();
        let (left, right) = (shown(one), shown(other));
        ensure!(
            left == right,
            "{this} and {that} differ in label {label}, {left} and {right}: {next}"
        );
    }
    ensure!(
        one.name == other.name,
        "{this} and {that} have different names, {} and {}: {next}, with one --repository",
        one.name,
        other.name
    );
    Ok(())
}

/// Returns a descriptor without annotations and platform.
fn descriptor(value: &Value) -> Value {
    json!({"mediaType": value["mediaType"], "digest": value["digest"], "size": value["size"]})
}

fn parse(member: &Member) -> Result<Value> {
    let content = member.content().context("a link instead of a file")?;
    serde_json::from_slice(content).context("failed to parse its JSON")
}

fn text(value: &Value) -> Result<String> {
    let text = value.as_str().map(ToOwned::to_owned);
    text.context("it was not written by `cargo xtask image`")
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", oz_api::encode::hex(&Sha256::digest(content)))
}

/// Returns the path of a blob in an archive.
fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

#[cfg(test)]
mod tests {
    use oz_testkit::Image;

    use super::*;

    fn image(processor: &str, labels: &[(&str, &str)]) -> Vec<u8> {
        let mut image = Image::new("localhost/oz:0.1.0", &["/oz-operator"]).processor(processor);
        for (name, value) in [("title", "oz"), ("version", "0.1.0"), ("revision", "abc")]
            .iter()
            .chain(labels)
        {
            image = image.label(&format!("{LABEL}.{name}"), value);
        }
        let program = format!("program for {processor}");
        let image = image.file("oz-operator", 0o755, program.as_bytes());
        image.and_then(Image::archive).unwrap().bytes
    }

    fn index(archives: &[(&str, &[u8])]) -> Result<Index> {
        let archives = archives.iter();
        let archives = archives.map(|(file, bytes)| Archive::parse(file, bytes));
        Index::new(archives.collect::<Result<_>>()?)
    }

    #[test]
    fn index_has_the_same_bytes_in_each_order_of_archives() {
        let (amd64, arm64) = (image("amd64", &[]), image("arm64", &[]));
        let one = index(&[("a", &amd64), ("b", &arm64)]).unwrap();
        let other = index(&[("b", &arm64), ("a", &amd64)]).unwrap();
        assert_eq!(one.archive().unwrap(), other.archive().unwrap());
        assert_eq!(one.digest(), other.digest());
        assert_eq!(one.processors(), ["amd64", "arm64"]);
        assert_eq!(one.file_name(), "oz-0.1.0.oci.tar");
    }

    #[test]
    fn every_digest_of_the_index_names_a_blob() {
        let (amd64, arm64) = (image("amd64", &[]), image("arm64", &[]));
        let index = index(&[("a", &amd64), ("b", &arm64)]).unwrap();
        let members = tarball::unpack(&index.archive().unwrap()).unwrap();
        let blob = |descriptor: &Value| {
            let named = descriptor["digest"].as_str().unwrap();
            let member = &members[&path(named)];
            let content = member.content().unwrap();
            assert_eq!(digest(content), named);
            assert_eq!(descriptor["size"], content.len());
            parse(member).ok()
        };
        let top = parse(&members["index.json"]).unwrap();
        assert_eq!(top["manifests"].as_array().unwrap().len(), 1);
        assert_eq!(top["manifests"][0]["digest"], index.digest());
        let content = blob(&top["manifests"][0]).unwrap();
        let annotation = &content["annotations"]["org.opencontainers.image.revision"];
        assert_eq!(*annotation, "abc");
        let mut processors = Vec::new();
        for manifest in content["manifests"].as_array().unwrap() {
            processors.push(manifest["platform"]["architecture"].as_str().unwrap());
            let image = blob(manifest).unwrap();
            let config = blob(&image["config"]).unwrap();
            assert_eq!(config["architecture"], manifest["platform"]["architecture"]);
            blob(&image["layers"][0]);
        }
        assert_eq!(processors, ["amd64", "arm64"]);
    }

    #[test]
    fn archives_that_do_not_belong_together_are_refused() {
        let amd64 = image("amd64", &[]);
        for (other, fault) in [
            (image("amd64", &[]), "are both for amd64"),
            (
                image("arm64", &[("version", "0.2.0")]),
                "label version, 0.1.0 and 0.2.0",
            ),
            (
                image("arm64", &[("revision", "def")]),
                "label revision, abc and def",
            ),
            (
                image("arm64", &[("title", "oz-harness")]),
                "label title, oz and oz-harness",
            ),
            (
                image("arm64", &[("source", "https://a.test")]),
                "label source, no value and",
            ),
        ] {
            let error = index(&[("one.tar", &amd64), ("other.tar", &other)]).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(fault), "{error}");
            assert!(error.contains("one.tar and other.tar"), "{error}");
        }
    }

    #[test]
    fn cut_or_changed_archive_is_refused() {
        let whole = image("amd64", &[]);
        assert!(Archive::parse("whole.tar", &whole).is_ok());
        for length in (0..whole.len() - 1024).step_by(211) {
            let error = Archive::parse("cut.tar", &whole[..length]).unwrap_err();
            assert!(error.to_string().contains("cut.tar"), "{length}: {error}");
        }
        let mut changed = whole.clone();
        let layer = changed
            .windows(3)
            .rposition(|it| it == b"\x1f\x8b\x08")
            .unwrap();
        changed[layer + 12] ^= 1;
        let error = format!("{:#}", Archive::parse("changed.tar", &changed).unwrap_err());
        assert!(error.contains("has another content"), "{error}");
    }
}
