//! `.github/push-release`, with functions of the shell instead of crane and helm, for which the registry is a directory.

use std::process::{Command, Output};

use tempfile::TempDir;

use super::*;

/// The functions, and the start of the script. `BROKEN` names the image of which the push fails; `away` is a registry
/// that does not respond.
const SHELL: &str = r#"
path() { echo "$REGISTRY/$(tr '/:' '__' <<<"$1")"; }
crane() {
    case $1 in
    manifest)
        if [ "$BROKEN" = away ]; then
            echo "Error: connection refused" >&2
            return 1
        fi
        cat "$(path "$2")" 2>/dev/null && return
        echo "Error: GET https://registry.test/v2/: MANIFEST_UNKNOWN: manifest unknown" >&2
        return 1
        ;;
    digest) echo "sha256:$(sha256sum <"$(path "$2")" | cut -c -64)" ;;
    push)
        [[ $3 != *"/$BROKEN:"* ]] || return 1
        cp "$2/blobs/sha256/$(grep -Eo '[0-9a-f]{64}' "$2/index.json")" "$(path "$3")"
        ;;
    esac
}
helm() {
    local file=${2##*/}
    local version=${file#oz-}
    echo "sha256:$(sha256sum <"$2" | cut -c -64)" >"$(path "${3#oci://}/oz:${version%.tgz}")"
}
export -f path crane helm
exec bash "$@"
"#;

/// A release, and a registry with manifests in files.
struct Publication {
    release: TempDir,
    registry: TempDir,
}

impl Publication {
    fn new() -> Self {
        let publication = Self {
            release: tempfile::tempdir().unwrap(),
            registry: tempfile::tempdir().unwrap(),
        };
        let directory = publication.directory();
        fs::create_dir(&directory).unwrap();
        platforms(&directory);
        write_shared(&directory, &materials(Some(SOURCE))).unwrap();
        publication
    }

    fn directory(&self) -> PathBuf {
        self.release.path().join(VERSION)
    }

    fn push(&self, broken: &str) -> Output {
        Command::new("bash")
            .args(["-c", SHELL, "push"])
            .arg(oz_testkit::repository().join(".github/push-release"))
            .arg("registry.test/owner")
            .arg(self.directory())
            .env("REGISTRY", self.registry.path())
            .env("BROKEN", broken)
            .env_remove("GITHUB_OUTPUT")
            .output()
            .unwrap()
    }

    /// Pushes a release that is refused, and returns the message.
    fn refused(&self, broken: &str) -> String {
        let output = self.push(broken);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the manifests in the registry by the names of their files.
    fn manifests(&self) -> BTreeMap<String, Vec<u8>> {
        files(self.registry.path())
    }
}

/// Returns the names of the files of the chart and the images in the registry, in their order.
fn names() -> [String; 3] {
    ["charts_oz", "oz-harness", "oz"].map(|name| format!("registry.test_owner_{name}_{VERSION}"))
}

#[test]
fn second_push_completes_the_first_that_broke_half_way() {
    let publication = Publication::new();
    let [_, _, oz] = names();
    publication.refused("oz-harness");
    assert!(publication.manifests().keys().eq([&oz]));
    let output = publication.push("none");
    assert!(output.status.success(), "{output:?}");
    let manifests = publication.manifests();
    assert!(manifests.keys().eq(&names()), "{manifests:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let digest = digest(&publication.registry.path().join(&oz)).unwrap();
    let line = format!("oz-digest=sha256:{digest}");
    assert!(said.lines().any(|it| it == line), "{said}");
    // A third run changes nothing.
    assert!(publication.push("none").status.success());
    assert_eq!(publication.manifests(), manifests);
}

#[test]
fn published_version_is_never_replaced() {
    for name in names() {
        let publication = Publication::new();
        fs::write(publication.registry.path().join(&name), "{}").unwrap();
        let said = publication.refused("none");
        assert!(said.contains("is never replaced"), "{name}: {said}");
        let expected = BTreeMap::from([(name, b"{}".to_vec())]);
        assert_eq!(publication.manifests(), expected);
    }
}

#[test]
fn registry_without_response_gets_no_push() {
    let publication = Publication::new();
    let said = publication.refused("away");
    assert!(said.contains("connection refused"), "{said}");
    assert_eq!(publication.manifests(), BTreeMap::new());
}
