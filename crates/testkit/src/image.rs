//! Container images made on the spot: one layer, of files that are at hand. No registry is reached.

use std::io::Write;

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// Waits to be ended, and ends at once when asked.
const WAIT: &str = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait; done";

/// An image of one layer, for [`Cluster::import_image`](crate::Cluster::import_image).
pub struct Image {
    name: String,
    layer: Builder<Vec<u8>>,
    command: Vec<String>,
}

impl Image {
    /// An image without any file, whose containers run `command`. A `name` with a tag other than
    /// `latest` is never pulled.
    #[must_use]
    pub fn new(name: &str, command: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            layer: Builder::new(Vec::new()),
            command: command.iter().map(ToString::to_string).collect(),
        }
    }

    /// An image with this machine's busybox: a shell, `timeout`, `ps`, `kill` and many more. Its
    /// containers wait to be ended, and end at once when asked.
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

    /// With a file at `path`, which is relative to the root, as all paths here.
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

    /// With a symbolic link at `path`.
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

    /// With a directory at `path`; those that files are in need not be told.
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

    /// The name that pods know it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it as `docker save` does, which every container runtime imports.
    ///
    /// # Errors
    ///
    /// Fails when `archive` cannot be written.
    pub fn write(self, archive: impl Write) -> Result<()> {
        let failed = || format!("failed to write image {}", self.name);
        let layer = self.layer.into_inner().with_context(failed)?;
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Cmd": self.command, "Env": ["PATH=/bin:/usr/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
        }))?;
        let config_name = format!("{}.json", digest(&config));
        let manifest = serde_json::to_vec(&json!([{
            "Config": config_name, "RepoTags": [self.name], "Layers": ["layer.tar"],
        }]))?;
        let mut archive = Builder::new(archive);
        for (name, content) in [
            ("layer.tar", &layer),
            (config_name.as_str(), &config),
            ("manifest.json", &manifest),
        ] {
            let mut header = header(EntryType::Regular, 0o644, content.len());
            archive
                .append_data(&mut header, name, content.as_slice())
                .with_context(failed)?;
        }
        archive
            .into_inner()
            .with_context(failed)?
            .flush()
            .with_context(failed)
    }
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    // Those who own it, and when: root, and never, so that the same files give the same image.
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

fn digest(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As Go names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn image() -> Image {
        Image::new("example.test/one:1", &["/one"])
            .file("one", 0o755, b"program")
            .and_then(|image| image.link("two", "one"))
            .unwrap()
    }

    fn written(image: Image) -> Vec<u8> {
        let mut archive = Vec::new();
        image.write(&mut archive).unwrap();
        archive
    }

    #[test]
    fn the_same_files_give_the_same_image() {
        assert_eq!(written(image()), written(image()));
    }

    #[test]
    fn the_manifest_names_the_image_and_the_config_its_layer() {
        let bytes = written(image());
        let mut members = std::collections::BTreeMap::new();
        for member in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut member = member.unwrap();
            let mut content = Vec::new();
            member.read_to_end(&mut content).unwrap();
            members.insert(member.path().unwrap().display().to_string(), content);
        }

        let json =
            |name: &str| -> serde_json::Value { serde_json::from_slice(&members[name]).unwrap() };
        let manifest = json("manifest.json");
        assert_eq!(manifest[0]["RepoTags"], json!(["example.test/one:1"]));
        let config = json(manifest[0]["Config"].as_str().unwrap());
        let layer = &members["layer.tar"];
        let expected = format!("sha256:{}", digest(layer));
        assert_eq!(config["rootfs"]["diff_ids"], json!([expected]));
        assert_eq!(config["config"]["Cmd"], json!(["/one"]));
        let mut layer = tar::Archive::new(layer.as_slice());
        let modes: Vec<u32> = layer
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().header().mode().unwrap())
            .collect();
        assert_eq!(modes, [0o755, 0o777]);
    }
}
