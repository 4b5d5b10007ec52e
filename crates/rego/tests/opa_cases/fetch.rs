//! The folder of OPA's source, with its cases, which `go mod download` fetches.

use std::path::PathBuf;
use std::process::Command;

/// Returns the folder of OPA's source; none without Go or a network, unless `OZ_REQUIRE_ALL` is set.
pub(crate) fn opa() -> Option<PathBuf> {
    match download() {
        Ok(folder) => Some(folder),
        Err(lacking) => {
            assert!(std::env::var_os("OZ_REQUIRE_ALL").is_none(), "{lacking}");
            eprintln!("skipped: {lacking}");
            None
        }
    }
}

/// Downloads the version of OPA with which the other tests compare, and checks it against its go.sum.
fn download() -> Result<PathBuf, String> {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/tools/opa");
    let download = Command::new("go")
        .args([
            "mod",
            "download",
            "-json",
            "github.com/open-policy-agent/opa",
        ])
        .current_dir(module)
        .output()
        .map_err(|error| format!("failed to run `go`: {error}; install Go 1.26 or newer"))?;
    let said = String::from_utf8_lossy(&download.stdout);
    if !download.status.success() {
        let why = String::from_utf8_lossy(&download.stderr);
        return Err(format!("failed to download the cases of OPA: {said}{why}"));
    }
    let module: serde_json::Value =
        serde_json::from_str(&said).map_err(|error| format!("go mod download: {error}"))?;
    let folder = module["Dir"].as_str().ok_or("go mod download: no folder")?;
    Ok(PathBuf::from(folder))
}
