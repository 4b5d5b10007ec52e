//! A release of small archives instead of images and programs.

mod push;

use std::collections::BTreeMap;

use oz_testkit::compress;

use super::*;
use crate::image::{HARNESS, OZ, base_name};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SOURCE: &str = "https://example.test/owner/oz";
const REVISION: &str = "0123abc";

fn image(directory: &Path, contents: &image::Contents, processor: &str, version: &str) {
    let label = |name| format!("org.opencontainers.image.{name}");
    let name = format!("localhost/{}:{VERSION}", contents.name);
    let image = Image::new(&name, &["/program"])
        .processor(processor)
        .label(&label("title"), contents.name)
        .label(&label("version"), version)
        .label(&label("revision"), REVISION)
        .file("program", 0o755, processor.as_bytes())
        .unwrap();
    let base = base_name(contents, Profile::Release, processor);
    let bytes = image.archive().unwrap().bytes;
    write_into(directory, &format!("{base}.oci.tar"), &bytes).unwrap();
    write_into(directory, &format!("{base}.cdx.json"), b"{}").unwrap();
}

/// Writes the files of all platforms, as their machines do.
fn platforms(directory: &Path) {
    for contents in [&OZ, &HARNESS] {
        for processor in artifacts::PROCESSORS {
            image(directory, contents, processor, VERSION);
        }
    }
    for platform in artifacts::PLATFORMS {
        let program = command_line::tests::program(platform.os, platform.arch);
        let members = Members::from([
            ("ozctl".to_owned(), tarball::Member::Program(program)),
            (
                "LICENSE".to_owned(),
                tarball::Member::File(b"licence".to_vec()),
            ),
        ]);
        write_command_line(directory, platform, &members).unwrap();
    }
}

fn materials(source: Option<&str>) -> Materials {
    Materials {
        version: VERSION.to_owned(),
        source: source.map(ToOwned::to_owned),
        changelog: format!("## {VERSION} (2026-12-01)\n\n- See [a](docs/a.md).\n"),
        chart: chart::Chart {
            archive: compress(b"chart").unwrap(),
            install: "kind: Namespace\n".to_owned(),
        },
        definitions: artifacts::DEFINITIONS
            .map(|(name, _)| (name, "kind: CustomResourceDefinition\n".to_owned()))
            .to_vec(),
    }
}

/// Returns the files of a directory by name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(path).unwrap())
    });
    entries.collect()
}

fn faults(directory: &Path) -> Vec<String> {
    artifacts::faults(directory, VERSION, Some(REVISION)).unwrap()
}

#[test]
fn two_releases_of_the_same_files_have_the_same_bytes() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for directory in [&one, &other] {
        platforms(directory.path());
        write_shared(directory.path(), &materials(Some(SOURCE))).unwrap();
    }
    let once = files(one.path());
    assert_eq!(once, files(other.path()));
    assert!(
        artifacts::required(VERSION)
            .iter()
            .all(|name| once.contains_key(name))
    );
    // The sums of a second run do not count those of the first.
    write_shared(one.path(), &materials(Some(SOURCE))).unwrap();
    assert_eq!(files(one.path()), once);
}

#[test]
fn complete_release_has_no_fault_and_each_missing_file_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    platforms(path);
    write_shared(path, &materials(Some(SOURCE))).unwrap();
    assert_eq!(faults(path), [""; 0]);
    for name in artifacts::required(VERSION) {
        let kept = fs::read(path.join(&name)).unwrap();
        fs::remove_file(path.join(&name)).unwrap();
        let fault = format!("{name} is missing in {}", path.display());
        assert!(faults(path).contains(&fault), "{name}: {:?}", faults(path));
        fs::write(path.join(&name), kept).unwrap();
    }
}

#[test]
fn manifests_refer_to_the_archives_by_their_digests() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    platforms(path);
    write_shared(path, &materials(Some(SOURCE))).unwrap();
    let text = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    let (krew, formula) = (text(artifacts::KREW), text(artifacts::FORMULA));
    for platform in artifacts::PLATFORMS {
        for (program, manifest) in [("kubectl-oz", &krew), ("ozctl", &formula)] {
            let archive = platform.archive(program);
            let url = format!("{SOURCE}/releases/download/v{VERSION}/{archive}");
            assert!(manifest.contains(&url), "{url}: {manifest}");
            let digest = digest(&path.join(archive)).unwrap();
            assert!(manifest.contains(&digest), "{digest}: {manifest}");
        }
    }
    let link = format!("{SOURCE}/blob/v{VERSION}/docs/a.md");
    assert!(text(artifacts::NOTES).contains(&link));
}

#[test]
fn release_without_address_leaves_manifests_out_and_is_refused_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    platforms(path);
    let lines = write_shared(path, &materials(None)).unwrap();
    assert!(
        lines.iter().any(|line| line.contains("--source")),
        "{lines:?}"
    );
    let faults = faults(path);
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults.iter().all(|fault| fault.contains("is missing")),
        "{faults:?}"
    );
}

#[test]
fn images_of_another_version_commit_or_index_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    platforms(path);
    write_shared(path, &materials(Some(SOURCE))).unwrap();
    let error = artifacts::faults(path, VERSION, Some("4567def"))
        .unwrap()
        .join("\n");
    assert!(
        error.contains("label revision 0123abc, not 4567def"),
        "{error}"
    );
    image(path, &OZ, "arm64", "9.9.9");
    let fault = faults(path).join("\n");
    assert!(
        fault.contains("image oz for arm64 has label version 9.9.9"),
        "{fault}"
    );
    assert!(fault.contains("differ in label version"), "{fault}");
    let error = write_shared(path, &materials(Some(SOURCE))).err();
    assert!(error.is_some_and(|it| it.to_string().contains("label version")));
    let cut = path.join(format!("oz-{VERSION}-arm64.oci.tar"));
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let fault = faults(path).join("\n");
    assert!(fault.contains("failed to read image archive"), "{fault}");
    fs::remove_file(&cut).unwrap();
    let fault = faults(path).join("\n");
    assert!(
        fault.contains("is not the index of the archives next to it"),
        "{fault}"
    );
}

#[test]
fn shared_files_without_images_are_refused_with_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let error = write_shared(directory.path(), &materials(None)).unwrap_err();
    assert!(error.to_string().contains("--only platform"), "{error}");
}

#[test]
fn rehearsal_has_a_directory_of_the_version_outside_of_the_release() {
    let root = Path::new("/repository");
    let release = directory(root, Profile::Release, VERSION);
    let rehearsal = directory(root, Profile::Quick, VERSION);
    assert_eq!(release, root.join("dist").join(VERSION));
    assert!(!rehearsal.starts_with(&release), "{}", rehearsal.display());
    assert!(rehearsal.ends_with(VERSION), "{}", rehearsal.display());
}
