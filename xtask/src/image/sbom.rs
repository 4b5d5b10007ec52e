//! The content of the image, as CycloneDX: every crate that is linked into its programs, with version,
//! licence and checksum, and the libraries that the compiler links to all programs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::dependencies::{Dependencies, Package};
use crate::notices::Library;

/// Creates the inventory of the image `name` with the programs of `packages`, which contain `libraries`.
pub(super) fn of(
    name: &str,
    packages: &[&str],
    dependencies: &Dependencies,
    libraries: &[Library],
    root: &Path,
) -> Result<Vec<u8>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))
        .context("failed to read Cargo.lock for the checksums of crates")?;
    let inventory = inventory(name, packages, dependencies, libraries, &checksums(&lock))?;
    let mut text = serde_json::to_vec_pretty(&inventory)?;
    text.push(b'\n');
    Ok(text)
}

fn inventory(
    name: &str,
    roots: &[&str],
    dependencies: &Dependencies,
    libraries: &[Library],
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Value> {
    let mut components = BTreeMap::new();
    let mut links = BTreeMap::new();
    for package in dependencies.linked(roots)? {
        components.insert(purl(package), component(package, checksums));
        let mut on: Vec<String> = dependencies.direct(package).into_iter().map(purl).collect();
        if package.source.is_none() && roots.contains(&package.name.as_str()) {
            on.extend(libraries.iter().map(library_purl));
        }
        on.sort();
        links.insert(
            purl(package),
            json!({"ref": purl(package), "dependsOn": on}),
        );
    }
    for library in libraries {
        let purl = library_purl(library);
        components.insert(
            purl.clone(),
            json!({
                "type": "library", "bom-ref": purl, "name": library.name, "version": library.version,
                "purl": purl, "licenses": [{"expression": library.license}],
            }),
        );
        links.insert(purl.clone(), json!({"ref": purl, "dependsOn": []}));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container", "name": name, "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": links.into_values().collect::<Vec<_>>(),
    }))
}

fn component(package: &Package, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(license) = &package.license {
        // The syntax that crates used before SPDX had expressions.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    let key = (package.name.clone(), package.version.clone());
    if let Some(checksum) = checksums.get(&key) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn library_purl(library: &Library) -> String {
    format!("pkg:generic/{}@{}", library.name, library.version)
}

/// Returns the checksums in Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |part: &str, name: &str| {
        part.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))
            .map(|value| value.trim_matches('"').to_owned())
    };
    lock.split("[[package]]")
        .filter_map(|part| {
            let key = (field(part, "name")?, field(part, "version")?);
            Some((key, field(part, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inventory_has_linked_crates_and_the_c_library() {
        let dependencies = crate::dependencies::tests::dependencies();
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"01\"\n";
        let glibc = Library::glibc("2.36");
        let checksums = checksums(lock);
        let inventory = inventory("oz", &["oz"], &dependencies, &[glibc], &checksums).unwrap();
        let components = inventory["components"].as_array().unwrap();
        let names: Vec<&Value> = components.iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["a", "b", "oz", "glibc"]);
        assert_eq!(components[0]["hashes"][0]["content"], "01");
        assert_eq!(
            components[0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(components[3]["purl"], "pkg:generic/glibc@2.36");
        assert_eq!(
            components[3]["licenses"][0]["expression"],
            "LGPL-2.1-or-later"
        );
        let on = |index: usize| inventory["dependencies"][index]["dependsOn"].clone();
        assert_eq!(on(0), json!(["pkg:cargo/b@1.0.0"]));
        assert_eq!(
            on(2),
            json!(["pkg:cargo/a@1.0.0", "pkg:generic/glibc@2.36"])
        );
    }
}
