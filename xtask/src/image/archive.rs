//! The archive: an OCI image layout that is a `docker save` as well, so that whatever loads images
//! loads it. Times are zero and owners are root: what is in it is all that its bytes depend on.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The user that the programs run as: nobody's, and that of the chart.
const USER: &str = "65532:65532";

/// An image and its archive.
pub(super) struct Image {
    /// That of its manifest, by which registries know it.
    pub(super) digest: String,
    pub(super) archive: Vec<u8>,
}

impl Image {
    /// The image of one layer with these programs in its root, under the name `tag`.
    pub(super) fn of(programs: &[(&str, Vec<u8>)], tag: &str) -> Result<Self> {
        let layer = tar(programs
            .iter()
            .map(|(name, bytes)| (*name, 0o755, bytes.as_slice())))?;
        let compressed = compress(&layer)?;
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": USER,
                "WorkingDir": "/",
                "Env": ["PATH=/"],
                "Cmd": ["/oz-operator"],
                "Labels": {
                    "org.opencontainers.image.title": "oz",
                    "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                    "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
            "history": [{"created_by": "cargo xtask image"}],
        }))?;
        let blob = |media: &str, bytes: &[u8]| json!({"mediaType": media, "digest": digest(bytes), "size": bytes.len()});
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("application/vnd.oci.image.config.v1+json", &config),
            "layers": [blob("application/vnd.oci.image.layer.v1.tar+gzip", &compressed)],
        }))?;
        let mut entry = blob("application/vnd.oci.image.manifest.v1+json", &manifest);
        entry["platform"] = json!({"architecture": architecture(), "os": "linux"});
        entry["annotations"] = json!({
            "io.containerd.image.name": tag,
            "org.opencontainers.image.ref.name": tag.rsplit(':').next(),
        });
        let index = index(&entry)?;
        let layout = serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?;
        let docker = serde_json::to_vec(&json!([{
            "Config": path(&config), "RepoTags": [tag], "Layers": [path(&compressed)],
        }]))?;
        let (config_path, layer_path) = (path(&config), path(&compressed));
        let manifest_path = path(&manifest);
        let archive = tar([
            ("oci-layout", 0o644, layout.as_slice()),
            ("index.json", 0o644, &index),
            ("manifest.json", 0o644, &docker),
            (&config_path, 0o644, &config),
            (&layer_path, 0o644, &compressed),
            (&manifest_path, 0o644, &manifest),
        ]
        .into_iter())?;
        Ok(Self {
            digest: digest(&manifest),
            archive,
        })
    }
}

fn index(entry: &Value) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    }))?)
}

fn tar<'a>(files: impl Iterator<Item = (&'a str, u32, &'a [u8])>) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (name, mode, bytes) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        archive
            .append_data(&mut header, name, bytes)
            .with_context(|| format!("failed to put {name} into the archive"))?;
    }
    archive.into_inner().context("failed to end the archive")
}

/// gzip without a time or a name.
pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    gzip.write_all(bytes).context("failed to compress")?;
    gzip.finish().context("failed to compress")
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn path(bytes: &[u8]) -> String {
    format!("blobs/{}", digest(bytes).replace(':', "/"))
}

/// As Go names it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn image() -> Image {
        Image::of(&[("one", b"program".to_vec())], "example.test/oz:1").unwrap()
    }

    fn members(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut members = BTreeMap::new();
        for member in tar::Archive::new(archive).entries().unwrap() {
            let mut member = member.unwrap();
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).unwrap();
            members.insert(member.path().unwrap().display().to_string(), bytes);
        }
        members
    }

    #[test]
    fn the_same_programs_give_the_same_bytes() {
        assert_eq!(image().archive, image().archive);
    }

    #[test]
    fn every_digest_is_that_of_what_it_names() {
        let image = image();
        let members = members(&image.archive);
        let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
        let blob = |value: &Value| {
            let digest = value["digest"].as_str().unwrap();
            let bytes = &members[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(super::digest(bytes), digest);
            assert_eq!(value["size"], bytes.len());
            bytes.clone()
        };
        let index = json(&members["index.json"]);
        assert_eq!(index["manifests"][0]["digest"], image.digest.as_str());
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        let compressed = blob(&manifest["layers"][0]);
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(compressed.as_slice())
            .read_to_end(&mut layer)
            .unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        assert_eq!(config["config"]["User"], USER);
        assert_eq!(self::members(&layer)["one"], b"program");
    }
}
