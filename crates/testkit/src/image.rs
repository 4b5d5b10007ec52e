//! Container images without a build tool: one layer, of existing files. No registry is reached, and
//! no container runtime is required. An archive is an OCI image layout and a `docker save` in one,
//! so that every program that loads images loads it. Times are zero and owners are root: the bytes
//! depend only on the files and the settings.
//! See <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// A script that waits for a signal to end, and then ends at once.
const WAIT: &str = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait; done";

/// An image of one layer, for [`Cluster::import_image`](crate::Cluster::import_image).
pub struct Image {
    name: String,
    layer: Builder<Vec<u8>>,
    command: Vec<String>,
    user: String,
    path: String,
    labels: BTreeMap<String, String>,
    processor: String,
}

/// A written image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageArchive {
    /// The digest of its manifest, `sha256:…`, by which registries know the image.
    pub digest: String,
    /// The tar file.
    pub bytes: Vec<u8>,
}

impl Image {
    /// Creates an image without files, for containers that run `command`. A `name` with a tag other than `latest` is
    /// never pulled.
    #[must_use]
    pub fn new(name: &str, command: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            layer: Builder::new(Vec::new()),
            command: command.iter().map(ToString::to_string).collect(),
            user: String::new(),
            path: "/bin:/usr/bin".to_owned(),
            labels: BTreeMap::new(),
            processor: Self::architecture().to_owned(),
        }
    }

    /// Sets the processor architecture, in Go's notation, instead of this machine's.
    #[must_use]
    pub fn processor(mut self, processor: &str) -> Self {
        processor.clone_into(&mut self.processor);
        self
    }

    /// Sets the user of the containers, as in `65532:65532`, instead of root.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Sets the command of the containers.
    #[must_use]
    pub fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(ToString::to_string).collect();
        self
    }

    /// Sets the search path of programs instead of `/bin:/usr/bin`.
    #[must_use]
    pub fn search(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Creates an image with this machine's busybox: a shell, `timeout`, `ps`, `kill` and many
    /// more. Its containers wait for a signal to end, and then end at once.
    ///
    /// # Errors
    ///
    /// Fails when there is no static busybox (Debian: busybox-static).
    pub fn busybox(name: &str) -> Result<Self> {
        let busybox = crate::node::busybox()
            .context("failed to find a static busybox (Debian: busybox-static)")?;
        let program = std::fs::read(&busybox).context("failed to read busybox")?;
        let applets = std::process::Command::new(&busybox)
            .arg("--list")
            .output()
            .context("failed to run busybox")?
            .stdout;
        let mut image = Self::new(name, &["/bin/sh", "-c", WAIT])
            .directory("tmp", 0o1777)?
            .file("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n")?
            .file("bin/busybox", 0o755, &program)?;
        for applet in String::from_utf8_lossy(&applets).lines() {
            if applet != "busybox" {
                image = image.link(&format!("bin/{applet}"), "busybox")?;
            }
        }
        Ok(image)
    }

    /// Adds a file at `path`, which is relative to the root, as are all paths here.
    ///
    /// # Errors
    ///
    /// Fails when `path` is absolute or too long for the archive.
    pub fn file(mut self, path: &str, mode: u32, content: &[u8]) -> Result<Self> {
        let mut header = header(EntryType::Regular, mode, content.len());
        self.layer
            .append_data(&mut header, path, content)
            .with_context(|| format!("failed to put {path} into image {}", self.name))?;
        Ok(self)
    }

    /// Adds a symbolic link at `path`.
    ///
    /// # Errors
    ///
    /// As [`Image::file`].
    pub fn link(mut self, path: &str, target: &str) -> Result<Self> {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.layer
            .append_link(&mut header, path, target)
            .with_context(|| format!("failed to put {path} into image {}", self.name))?;
        Ok(self)
    }

    /// Adds a directory at `path`; the parent directories of files need not be added.
    ///
    /// # Errors
    ///
    /// As [`Image::file`].
    pub fn directory(mut self, path: &str, mode: u32) -> Result<Self> {
        let mut header = header(EntryType::Directory, mode, 0);
        self.layer
            .append_data(&mut header, path, std::io::empty())
            .with_context(|| format!("failed to put {path} into image {}", self.name))?;
        Ok(self)
    }

    /// Returns the name by which pods refer to the image.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the archive, under the image's name.
    ///
    /// # Errors
    ///
    /// Fails when a tar or gzip stream cannot be ended.
    pub fn archive(self) -> Result<ImageArchive> {
        let failed = || format!("failed to write image {}", self.name);
        let layer = self.layer.into_inner().with_context(failed)?;
        let compressed = compress(&layer).with_context(failed)?;
        let mut settings = json!({
            "Cmd": self.command, "Env": [format!("PATH={}", self.path)], "WorkingDir": "/",
        });
        if !self.user.is_empty() {
            settings["User"] = json!(self.user);
        }
        if !self.labels.is_empty() {
            settings["Labels"] = json!(self.labels);
        }
        let config = serde_json::to_vec(&json!({
            "architecture": self.processor,
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        }))?;
        let blob = |kind: &str, bytes: &[u8]| {
            let media = format!("application/vnd.oci.image.{kind}");
            json!({"mediaType": media, "digest": digest(bytes), "size": bytes.len()})
        };
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", &config),
            "layers": [blob("layer.v1.tar+gzip", &compressed)],
        }))?;
        let mut entry = blob("manifest.v1+json", &manifest);
        entry["platform"] = json!({"architecture": self.processor, "os": "linux"});
        entry["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rsplit(':').next(),
        });
        let index = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        }))?;
        let layout = serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?;
        // The manifest that `docker load` reads.
        let docker = serde_json::to_vec(&json!([{
            "Config": path(&config), "RepoTags": [self.name], "Layers": [path(&compressed)],
        }]))?;
        let mut archive = Builder::new(Vec::new());
        for (name, content) in [
            ("oci-layout", &layout),
            ("index.json", &index),
            ("manifest.json", &docker),
            (&path(&config), &config),
            (&path(&compressed), &compressed),
            (&path(&manifest), &manifest),
        ] {
            let mut header = header(EntryType::Regular, 0o644, content.len());
            archive
                .append_data(&mut header, name, content.as_slice())
                .with_context(failed)?;
        }
        Ok(ImageArchive {
            digest: digest(&manifest),
            bytes: archive.into_inner().with_context(failed)?,
        })
    }

    /// Returns the processor architecture of this machine, which images have by default, in Go's notation.
    #[must_use]
    pub fn architecture() -> &'static str {
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }
}

/// Compresses with gzip, without a time or a name: the same bytes each time.
///
/// # Errors
///
/// Fails when the stream cannot be ended.
pub fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    gzip.write_all(bytes).context("failed to compress")?;
    gzip.finish().context("failed to compress")
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

fn digest(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Returns the path of a blob in the archive.
fn path(content: &[u8]) -> String {
    format!("blobs/{}", digest(content).replace(':', "/"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use serde_json::Value;

    use super::*;

    fn image() -> Image {
        Image::new("example.test/one:1", &["/one"])
            .user("65532:65532")
            .label("title", "one")
            .file("one", 0o755, b"program")
            .and_then(|image| image.link("two", "one"))
            .unwrap()
    }

    fn members(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut members = BTreeMap::new();
        for member in tar::Archive::new(archive).entries().unwrap() {
            let mut member = member.unwrap();
            let mut content = Vec::new();
            member.read_to_end(&mut content).unwrap();
            members.insert(member.path().unwrap().display().to_string(), content);
        }
        members
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        assert_eq!(image().archive().unwrap(), image().archive().unwrap());
    }

    #[test]
    fn every_digest_is_that_of_what_it_names() {
        let archive = image().archive().unwrap();
        let members = members(&archive.bytes);
        let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
        let blob = |value: &Value| {
            let named = value["digest"].as_str().unwrap();
            let bytes = &members[&format!("blobs/{}", named.replace(':', "/"))];
            assert_eq!(digest(bytes), named);
            assert_eq!(value["size"], bytes.len());
            bytes.clone()
        };
        let index = json(&members["index.json"]);
        assert_eq!(index["manifests"][0]["digest"], archive.digest.as_str());
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        let compressed = blob(&manifest["layers"][0]);
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(compressed.as_slice())
            .read_to_end(&mut layer)
            .unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Cmd"], json!(["/one"]));
        assert_eq!(config["config"]["Labels"], json!({"title": "one"}));
        assert_eq!(self::members(&layer)["one"], b"program");
        let docker = json(&members["manifest.json"]);
        assert_eq!(docker[0]["RepoTags"], json!(["example.test/one:1"]));
        let mut layer = tar::Archive::new(layer.as_slice());
        let modes: Vec<u32> = layer
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().header().mode().unwrap())
            .collect();
        assert_eq!(modes, [0o755, 0o777]);
    }
}
