//! The chart of a release: its archive, and its objects with default values.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use oz_testkit::{Tool, Tools};

use super::artifacts;
use crate::image::{HARNESS, OZ};
use crate::tarball::{self, Member};

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

/// Packs an archive of helm with fixed times: helm writes the current time. Its images come from `registry` by
/// default, if there is one.
fn pack_again(packed: &[u8], registry: Option<&str>) -> Result<Vec<u8>> {
    let mut members = tarball::unpack_compressed(packed)?;
    if let Some(registry) = registry {
        let values = members.get_mut("oz/values.yaml");
        let values = values.context("the chart has no values.yaml")?;
        let text = values.content().context("values.yaml is no file")?;
        let text = std::str::from_utf8(text).context("values.yaml is not UTF-8")?;
        *values = Member::File(with_registry(text, registry)?.into_bytes());
    }
    tarball::pack_compressed(&members)
}

/// Replaces the registry of the images in the default values.
///
/// # Errors
/// When an image has another default than `localhost/NAME`.
fn with_registry(values: &str, registry: &str) -> Result<String> {
    let registry = registry.trim_end_matches('/');
    let mut text = values.to_owned();
    for contents in [&OZ, &HARNESS] {
        let name = contents.name;
        let line = |registry: &str| format!(" repository: {registry}/{name}\n");
        ensure!(
            text.matches(&line(LOCAL)).count() == 1,
            "values.yaml has not exactly one line `repository: {LOCAL}/{name}`"
        );
        text = text.replace(&line(LOCAL), &line(registry));
    }
    Ok(text)
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
    use crate::tarball::Members;

    #[test]
    fn packed_chart_has_the_images_of_the_registry() {
        let path = oz_testkit::repository().join("charts/oz/values.yaml");
        let values = fs::read(path).unwrap();
        let members = Members::from([("oz/values.yaml".to_owned(), Member::File(values.clone()))]);
        let packed = tarball::pack_compressed(&members).unwrap();
        let values_of = |registry| {
            let again = pack_again(&packed, registry).unwrap();
            let members = tarball::unpack_compressed(&again).unwrap();
            members["oz/values.yaml"].content().unwrap().to_vec()
        };
        assert_eq!(values_of(None), values);
        let replaced = values_of(Some("registry.example.test/a/"));
        let replaced: Value = serde_saphyr::from_slice(&replaced).unwrap();
        assert_eq!(
            replaced["image"]["repository"],
            "registry.example.test/a/oz"
        );
        let harness = &replaced["harness"]["image"]["repository"];
        assert_eq!(*harness, "registry.example.test/a/oz-harness");
    }

    #[test]
    fn values_with_another_default_are_refused() {
        let values = "image:\n  repository: other/oz\n";
        let error = with_registry(values, "a.test").unwrap_err().to_string();
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
