//! The chart of a release: its archive, and its objects with default values.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use oz_testkit::{Tool, Tools};

use super::artifacts;
use crate::image::{HARNESS, OZ};
use crate::tarball::{self, Member, Members};

/// The namespace of the rendered objects.
const NAMESPACE: &str = "oz-system";
/// The registry of the default values, which serves no image.
const LOCAL: &str = "localhost";

/// The chart.
pub(crate) struct Chart {
    /// The archive, which Helm installs.
    pub(crate) archive: Vec<u8>,
    /// The objects, for those who install without Helm.
    pub(crate) install: String,
}

/// Packs the chart of `root`, with images from `registry` by default, and renders it.
///
/// # Errors
/// When helm fails.
pub(crate) fn make(root: &Path, version: &str, registry: Option<&str>) -> Result<Chart> {
    let directory = tempfile::tempdir().context("failed to make a directory")?;
    let tools = Tools::obtain(&[Tool::Helm])?;
    let helm = |arguments: &[&str]| {
        let mut command = Command::new(tools.path(Tool::Helm)?);
        command
            .env_remove("KUBECONFIG")
            .env("HELM_CACHE_HOME", directory.path().join("cache"))
            .current_dir(directory.path())
            .args(arguments);
        run(&mut command)
    };
    let chart = root.join("charts/oz");
    let chart = chart.to_str().context("the path is not UTF-8")?;
    helm(&["package", chart, "--destination", "."])?;
    let path = directory.path().join(artifacts::chart(version));
    let packed =
        fs::read(&path).with_context(|| format!("helm has not made {}", path.display()))?;
    let archive = pack_again(&packed, registry)?;
    fs::write(&path, &archive).with_context(|| format!("failed to write {}", path.display()))?;
    let path = path.to_str().context("the path is not UTF-8")?;
    // A hook for the removal would run at once, as would the test.
    let rendered = helm(&[
        "template",
        "oz",
        path,
        "--namespace",
        NAMESPACE,
        "--no-hooks",
    ])?;
    Ok(Chart {
        archive,
        install: install(version, &rendered),
    })
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("failed to run helm")?;
    ensure!(
        output.status.success(),
        "helm failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("the output of helm is not UTF-8")
}

/// Packs an archive of helm with fixed times: helm writes the current time. Its images come from `registry`, if there is
/// one.
fn pack_again(packed: &[u8], registry: Option<&str>) -> Result<Vec<u8>> {
    let mut members = tarball::unpack_compressed(packed)?;
    if let Some(registry) = registry {
        for reference in &IMAGE_REFERENCES {
            reference.replace(&mut members, registry)?;
        }
    }
    tarball::pack_compressed(&members)
}

/// References to images in a file of the chart: the file, and the text around the name of an image.
struct ImageReference {
    file: &'static str,
    before: &'static str,
    after: &'static str,
}

/// The references in the default values and in the annotation for Artifact Hub.
const IMAGE_REFERENCES: [ImageReference; 2] = [
    ImageReference {
        file: "values.yaml",
        before: " repository: ",
        after: "\n",
    },
    ImageReference {
        file: "Chart.yaml",
        before: " image: ",
        after: ":",
    },
];

impl ImageReference {
    /// Replaces the registry of the images in a chart.
    fn replace(&self, members: &mut Members, registry: &str) -> Result<()> {
        let file = self.file;
        let member = members.get_mut(&format!("oz/{file}"));
        let member = member.with_context(|| format!("the chart has no {file}"))?;
        let text = member.content();
        let text = text.with_context(|| format!("{file} is no file"))?;
        let text = std::str::from_utf8(text).with_context(|| format!("{file} is not UTF-8"))?;
        *member = Member::File(self.with_registry(text, registry)?.into_bytes());
        Ok(())
    }

    /// Replaces the registry of the images in the text of the file.
    ///
    /// # Errors
    /// When an image has another name than `localhost/NAME`.
    fn with_registry(&self, text: &str, registry: &str) -> Result<String> {
        let Self {
            file,
            before,
            after,
        } = self;
        let registry = registry.trim_end_matches('/');
        let mut text = text.to_owned();
        for contents in [&OZ, &HARNESS] {
            let name = contents.name;
            let named = |registry: &str| format!("{before}{registry}/{name}{after}");
            ensure!(
                text.matches(&named(LOCAL)).count() == 1,
                "{file} has not exactly one `{}{LOCAL}/{name}`",
                before.trim_start()
            );
            text = text.replace(&named(LOCAL), &named(registry));
        }
        Ok(text)
    }
}

/// Returns the objects with their namespace, which Helm would create.
fn install(version: &str, rendered: &str) -> String {
    format!(
        "# oz {version}: the chart with its default values, for `kubectl apply --server-side -f`.\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n{rendered}"
    )
}

/// Returns the definitions in a directory of the chart as one file, ordered by name.
pub(crate) fn definitions(root: &Path, directory: &str) -> Result<String> {
    let path = root.join("charts/oz/files").join(directory);
    let failed = || format!("failed to list {}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&path).with_context(failed)? {
        files.push(entry.with_context(failed)?.path());
    }
    files.sort();
    ensure!(!files.is_empty(), "{} is empty", path.display());
    let mut all = String::new();
    for file in files {
        let text = fs::read_to_string(&file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let text = text.trim_start_matches("---\n");
        all += &format!("---\n{}\n", text.trim_end());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn packed_chart_has_the_images_of_the_registry() {
        let directory = oz_testkit::repository().join("charts/oz");
        let members: Members = IMAGE_REFERENCES
            .iter()
            .map(|reference| {
                let content = fs::read(directory.join(reference.file)).unwrap();
                (format!("oz/{}", reference.file), Member::File(content))
            })
            .collect();
        let packed = tarball::pack_compressed(&members).unwrap();
        let packed_again = |registry| {
            let again = pack_again(&packed, registry).unwrap();
            tarball::unpack_compressed(&again).unwrap()
        };
        assert_eq!(packed_again(None), members);
        let replaced = packed_again(Some("registry.example.test/a/"));
        let yaml = |file: &str| -> Value {
            let content = replaced[&format!("oz/{file}")].content().unwrap();
            serde_saphyr::from_slice(content).unwrap()
        };
        let values = yaml("values.yaml");
        assert_eq!(values["image"]["repository"], "registry.example.test/a/oz");
        let harness = &values["harness"]["image"]["repository"];
        assert_eq!(*harness, "registry.example.test/a/oz-harness");
        let chart = yaml("Chart.yaml");
        let images = chart["annotations"]["artifacthub.io/images"].as_str();
        let images = images.unwrap();
        for name in ["oz", "oz-harness"] {
            let image = format!("image: registry.example.test/a/{name}:");
            assert!(images.contains(&image), "{image}: {images}");
        }
        assert!(!images.contains(LOCAL), "{images}");
    }

    #[test]
    fn values_with_another_default_are_refused() {
        let values = "image:\n  repository: other/oz\n";
        let error = IMAGE_REFERENCES[0]
            .with_registry(values, "a.test")
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("`repository: localhost/oz`"), "{error}");
    }

    #[test]
    fn definitions_are_one_file_of_documents() {
        let root = oz_testkit::repository();
        for (_, directory) in artifacts::DEFINITIONS {
            let text = definitions(&root, directory).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            let path = root.join("charts/oz/files").join(directory);
            assert_eq!(documents.len(), fs::read_dir(path).unwrap().count());
            for document in documents {
                assert_eq!(document["kind"], "CustomResourceDefinition", "{directory}");
            }
        }
    }

    #[test]
    fn namespace_precedes_the_rendered_objects() {
        let text = install("0.1.0", "---\napiVersion: v1\nkind: ServiceAccount\n");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let kinds: Vec<&Value> = documents.iter().map(|it| &it["kind"]).collect();
        assert_eq!(kinds, ["Namespace", "ServiceAccount"]);
        assert_eq!(documents[0]["metadata"]["name"], NAMESPACE);
    }
}
