//! Notices of small trees of packages, and of the programs themselves.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;

/// Returns the tree of a program that is linked to these crates, with their directories in `root`.
fn dependencies(root: &Path, crates: &[(&str, &str)]) -> Dependencies {
    let package = |name: &str, license: &str, source: Option<&str>| {
        json!({"id": name, "name": name, "version": "1.0.0", "license": license, "source": source,
               "manifest_path": root.join(name).join("Cargo.toml")})
    };
    let mut packages = vec![package("program", "Apache-2.0", None)];
    let mut deps = Vec::new();
    for (name, license) in crates {
        packages.push(package(name, license, Some("registry")));
        deps.push(json!({"pkg": name, "dep_kinds": [{"kind": null}]}));
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let nodes = json!([{"id": "program", "deps": deps}]);
    let metadata = json!({"packages": packages, "resolve": {"nodes": nodes}});
    Dependencies::parse(metadata.to_string().as_bytes()).unwrap()
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn equal_texts_of_several_crates_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let crates = [("one", "MIT"), ("two", "MIT")];
    let dependencies = dependencies(root, &crates);
    write(
        root,
        "one/LICENSE-MIT",
        "Permission of A\r\nis granted  \r\n\r\n",
    );
    write(root, "two/LICENSE.txt", "Permission of A\nis granted\n");
    write(root, "two/NOTICE", "Keep this notice\n");
    write(root, "two/native/LICENSE", "Permission of the C library\n");
    write(
        root,
        "two/native/COPYING",
        "The licence that is not chosen\n",
    );
    write(root, "two/tests/LICENSE", "Licence of test data\n");
    write(root, "two/src/license.rs", "fn code() {}\n");
    let notices = notices(&["program"], &dependencies, &[Library::glibc("2.36")]).unwrap();
    assert!(notices.contains("one 1.0.0: MIT [1]\n"), "{notices}");
    assert!(notices.contains("two 1.0.0: MIT [1][2][3]\n"), "{notices}");
    assert!(notices.contains("glibc 2.36: LGPL-2.1-or-later [4]\n"));
    assert!(notices.contains("[1] one 1.0.0 (LICENSE-MIT), two 1.0.0 (LICENSE.txt)\n\n"));
    assert_eq!(notices.matches("Permission of A\nis granted\n").count(), 1);
    assert!(notices.contains("Keep this notice") && notices.contains("the C library"));
    assert!(notices.contains("GNU LESSER GENERAL PUBLIC LICENSE"));
    for absent in ["not chosen", "test data", "fn code", "program 1.0.0"] {
        assert!(!notices.contains(absent), "{absent}");
    }
}

#[test]
fn crates_without_licence_text_are_all_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let crates = [("bare", "MIT"), ("noticed", "MIT"), ("kube", "Apache-2.0")];
    let dependencies = dependencies(root, &crates);
    write(root, "noticed/NOTICE", "A notice is no licence\n");
    let error = notices(&["program"], &dependencies, &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("bare 1.0.0: it has no licence text\n"),
        "{error}"
    );
    assert!(
        error.contains("noticed 1.0.0: it has no licence text\n"),
        "{error}"
    );
    assert!(error.contains("xtask/licenses/crates.yaml"), "{error}");
    assert!(!error.contains("kube"), "{error}");
}

#[test]
fn entry_that_does_not_fit_its_crate_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let crates = [("kube", "MIT"), ("vstd", "MIT")];
    let dependencies = dependencies(root, &crates);
    write(root, "vstd/LICENSE", "a text\n");
    let error = notices(&["program"], &dependencies, &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kube 1.0.0: its licence is MIT, and its entry says Apache-2.0"),
        "{error}"
    );
    assert!(
        error.contains("vstd 1.0.0: it has a licence text; remove its entry"),
        "{error}"
    );
}

#[test]
fn substitute_without_reason_or_holder_is_refused() {
    let entry = |license: &str, rest: &str| {
        format!("- crates: [one]\n  license: {license}\n  reason: a reason\n{rest}")
    };
    assert!(substitutes::parse("- crates: [one]\n  license: MIT\n  reason: ''\n").is_err());
    for (list, license, fault) in [
        (entry("MIT", ""), "MIT", Some("`copyright`")),
        (
            entry("MIT", "  copyright: Copyright A\n"),
            "MIT OR Apache-2.0",
            None,
        ),
        (
            entry("Apache-2.0", ""),
            "(MIT OR Apache-2.0) AND BSD-3-Clause",
            None,
        ),
        (entry("ISC", ""), "ISC", Some("a text of ISC")),
        (entry("Apache-2.0", ""), "MIT", Some("its entry says")),
    ] {
        let entries = substitutes::parse(&list).unwrap();
        let said = entries[0].text(Some(license)).err();
        let said = said.map(|error| error.to_string());
        let is_expected = match (fault, &said) {
            (Some(fault), Some(said)) => said.contains(fault),
            (fault, said) => fault.is_none() && said.is_none(),
        };
        assert!(is_expected, "{list}: {said:?}");
    }
}

#[test]
fn every_crate_in_the_programs_has_a_licence_text() {
    let root = oz_testkit::repository();
    let programs = crate::image::released_programs();
    for target in [crate::image::target(), "aarch64-apple-darwin".to_owned()] {
        let dependencies = Dependencies::read(&root, &target).unwrap();
        let notices = notices(&programs, &dependencies, &[]).unwrap();
        assert!(notices.contains("\ntokio "), "{target}");
        assert!(notices.contains("Copyright (c) 2021 The Verus Contributors"));
    }
}

#[test]
fn packages_of_the_library_have_the_licence_of_the_repository() {
    let root = oz_testkit::repository();
    let licence = fs::read_to_string(root.join("LICENSE")).unwrap();
    for package in ["listen", "runtime", "admission"] {
        let path = root.join("crates").join(package).join("LICENSE");
        assert_eq!(fs::read_to_string(path).unwrap(), licence, "{package}");
    }
}
