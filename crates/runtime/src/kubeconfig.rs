//! Kubeconfig files, as kubectl reads them: an empty value counts as absent, and a path is relative to the folder of the
//! file that contains it. kube's own reader uses empty values, and its paths are relative to the working directory if the
//! path of the file is.
//! See <https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/>.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, is_separator};

use kube::config::{Kubeconfig, KubeconfigError, Preferences};
use secrecy::ExposeSecret as _;

/// Finds the kubeconfig that `paths` names, the value of `$KUBECONFIG`: all its files that exist, merged into one. If
/// `paths` is empty, this is the file in the home directory. Returns `None` if no file exists.
///
/// # Errors
/// A file cannot be read, or is no kubeconfig.
pub fn find(paths: Option<&OsStr>) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let Some(paths) = paths.filter(|paths| !paths.is_empty()) else {
        return match Kubeconfig::read() {
            Ok(kubeconfig) if !kubeconfig.clusters.is_empty() => {
                Ok(Some(without_empty_values(kubeconfig)))
            }
            Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath) | Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
    };
    let mut whole: Option<Kubeconfig> = None;
    for path in std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()) {
        let next = match read(&path) {
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == ErrorKind::NotFound => {
                continue;
            }
            read => read?,
        };
        whole = Some(match whole {
            // As in kubectl, the first entry of a name counts, without any value of the second one.
            Some(before) => before.merge(next)?,
            None => next,
        });
    }
    Ok(whole)
}

/// Reads one kubeconfig file. All its paths are absolute afterwards, also the command of a credential plugin, unless the
/// command is a name to look up in `$PATH`.
///
/// # Errors
/// The file cannot be read, or is no kubeconfig.
pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    // kube puts the folder of the file before each path.
    let file = std::path::absolute(path)
        .map_err(|error| KubeconfigError::ReadConfig(error, path.to_owned()))?;
    Kubeconfig::read_from(file).map(without_empty_values)
}

/// Removes empty values, which would otherwise hide those of later files, and be used.
fn without_empty_values(mut whole: Kubeconfig) -> Kubeconfig {
    whole
        .preferences
        .take_if(|preferences| is_unset(preferences));
    let mut texts = vec![
        &mut whole.current_context,
        &mut whole.kind,
        &mut whole.api_version,
    ];
    let mut files = Vec::new();
    let mut secrets = Vec::new();
    for named in &mut whole.clusters {
        let Some(cluster) = &mut named.cluster else {
            continue;
        };
        files.push(&mut cluster.certificate_authority);
        texts.extend([
            &mut cluster.server,
            &mut cluster.certificate_authority_data,
            &mut cluster.proxy_url,
            &mut cluster.tls_server_name,
        ]);
    }
    for named in &mut whole.auth_infos {
        let Some(user) = &mut named.auth_info else {
            continue;
        };
        files.extend([
            &mut user.token_file,
            &mut user.client_certificate,
            &mut user.client_key,
        ]);
        secrets.extend([
            &mut user.password,
            &mut user.token,
            &mut user.client_key_data,
        ]);
        texts.extend([
            &mut user.username,
            &mut user.client_certificate_data,
            &mut user.impersonate,
            &mut user.impersonate_uid,
        ]);
        if let Some(plugin) = &mut user.exec {
            texts.extend([
                &mut plugin.api_version,
                &mut plugin.command,
                &mut plugin.install_hint,
            ]);
        }
    }
    for named in &mut whole.contexts {
        if let Some(context) = &mut named.context {
            texts.extend([&mut context.user, &mut context.namespace]);
        }
    }
    for text in texts {
        text.take_if(|text| text.is_empty());
    }
    for file in files {
        // kube has already put the folder before an empty path.
        file.take_if(|file| file.is_empty() || file.ends_with(is_separator));
    }
    for secret in secrets {
        secret.take_if(|secret| secret.expose_secret().is_empty());
    }
    whole
}

fn is_unset(preferences: &Preferences) -> bool {
    let extensions = preferences.extensions.as_deref().unwrap_or_default();
    !preferences.colors.unwrap_or(false) && extensions.is_empty() && preferences.other.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a kubeconfig with one cluster, user and context of this name.
    fn complete(name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "preferences": {"colors": true},
            "clusters": [{"name": name, "cluster": {"server": format!("https://{name}:6443/")}}],
            "users": [{"name": name, "user": {"token": name}}],
            "contexts": [{
                "name": name,
                "context": {"cluster": name, "user": name, "namespace": name},
            }],
        })
    }

    /// Writes the files, and reads them as one kubeconfig.
    fn merged(files: &[Value]) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..files.len())
            .map(|number| folder.path().join(number.to_string()))
            .collect();
        for (path, file) in paths.iter().zip(files) {
            std::fs::write(path, file.to_string()).unwrap();
        }
        let paths = std::env::join_paths(&paths).unwrap();
        let merged = find(Some(&paths)).unwrap().unwrap();
        serde_json::to_value(&merged).unwrap()
    }

    #[test]
    fn empty_value_of_first_file_hides_no_value_of_second() {
        for first in [
            json!({}),
            json!({"current-context": "", "preferences": {}}),
            json!({"current-context": null, "preferences": null, "clusters": null, "users": []}),
            json!({"apiVersion": "", "kind": "", "current-context": "", "contexts": []}),
            json!({"current-context": "", "preferences": {"colors": false, "extensions": []}}),
        ] {
            let second = complete("second");
            assert_eq!(merged(&[first.clone(), second.clone()]), second, "{first}");
            assert_eq!(merged(&[second.clone(), first.clone()]), second, "{first}");
        }
    }

    #[test]
    fn first_value_of_several_files_counts() {
        let (first, second) = (complete("first"), complete("second"));
        let whole = merged(&[first.clone(), second.clone()]);
        assert_eq!(whole["current-context"], "first");
        for list in ["clusters", "users", "contexts"] {
            assert_eq!(whole[list], json!([first[list][0], second[list][0]]));
        }
        // An entry counts as a whole, although another file has more values for its name.
        let mut more = complete("first");
        more["users"][0]["user"] = json!({"username": "alice"});
        let whole = merged(&[first.clone(), more]);
        assert_eq!(whole["users"], first["users"]);
    }

    #[test]
    fn empty_values_of_entries_are_absent() {
        let paths = ["certificate-authority", "client-certificate", "client-key"];
        for (list, part, fields) in [
            (
                "clusters",
                "cluster",
                &[
                    "server",
                    "certificate-authority-data",
                    "proxy-url",
                    "tls-server-name",
                    paths[0],
                ][..],
            ),
            (
                "users",
                "user",
                &[
                    "token",
                    "tokenFile",
                    "username",
                    "password",
                    "client-certificate-data",
                    "client-key-data",
                    "as",
                    "as-uid",
                    paths[1],
                    paths[2],
                ],
            ),
            ("contexts", "context", &["user", "namespace"]),
        ] {
            for field in fields {
                let mut file = complete("first");
                file[list][0][part][field] = json!("");
                let read = merged(&[file]);
                let seen = &read[list][0][part][field];
                assert!(seen.is_null(), "{list} {field}: {seen}");
            }
        }
        // The environment of a plugin may contain empty values.
        let mut file = complete("first");
        let plugin = json!({
            "command": "login", "args": ["", "token"], "env": [{"name": "A", "value": ""}],
            "installHint": "", "provideClusterInfo": false,
        });
        file["users"][0]["user"]["exec"] = plugin.clone();
        let read = merged(&[file]);
        let seen = &read["users"][0]["user"]["exec"];
        assert_eq!(seen["args"], plugin["args"]);
        assert_eq!(seen["env"], plugin["env"]);
        assert!(seen["installHint"].is_null(), "{seen}");
    }

    #[test]
    fn paths_are_absolute_by_folder_of_their_file() {
        // The test's working directory is the one of the package.
        let folder = tempfile::tempdir_in(".").unwrap();
        let relative = Path::new(".").join(folder.path().file_name().unwrap());
        let here = std::path::absolute(&relative).unwrap();
        for (written, expected) in [
            ("ca.crt", here.join("ca.crt")),
            ("./pki/ca.crt", here.join("./pki/ca.crt")),
            ("../ca.crt", here.join("../ca.crt")),
            ("/etc/ca.crt", "/etc/ca.crt".into()),
        ] {
            let mut file = complete("first");
            file["clusters"][0]["cluster"]["certificate-authority"] = json!(written);
            file["users"][0]["user"] = json!({
                "client-certificate": written, "client-key": written, "tokenFile": written,
                "exec": {"command": written},
            });
            let path = relative.join("kubeconfig");
            std::fs::write(&path, file.to_string()).unwrap();
            let read = serde_json::to_value(read(&path).unwrap()).unwrap();
            let user = &read["users"][0]["user"];
            let expected = json!(expected);
            assert_eq!(
                read["clusters"][0]["cluster"]["certificate-authority"],
                expected
            );
            for field in ["client-certificate", "client-key", "tokenFile"] {
                assert_eq!(user[field], expected, "{field}");
            }
            // A command without a separator is a name in $PATH.
            let command = match written.contains('/') {
                true => expected,
                false => json!(written),
            };
            assert_eq!(user["exec"]["command"], command);
        }
    }
}
