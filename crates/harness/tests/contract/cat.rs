//! `oz-harness cat`: a file of a transcript, and nothing that an agent makes of one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn cat(path: &Path) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_oz-harness"));
    program.arg("cat").arg("--").arg(path).output().unwrap()
}

#[test]
fn a_file_is_written_out_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("-events");
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(&path, &bytes).unwrap();
    let said = cat(&path);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(said.stdout, bytes);
}

#[test]
fn link_pipe_or_folder_is_not_read_as_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("folder")).unwrap();
    fs::write(root.join("folder/secret"), "SECRET").unwrap();
    symlink("folder/secret", root.join("file-link")).unwrap();
    symlink("folder", root.join("folder-link")).unwrap();
    let pipe = root.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let table = [
        ("file-link", "is a link"),
        ("folder-link/secret", "not a directory of oz"),
        ("folder/../folder/secret", "not a plain path"),
        ("folder", "not a plain file"),
        ("pipe", "not a plain file"),
        ("absent", "there is no file"),
        ("absent/secret", "there is no file"),
    ];
    for (name, why) in table {
        let said = cat(&root.join(name));
        let message = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(1), "{name}");
        assert!(said.stdout.is_empty(), "{name}");
        assert!(message.contains(why), "{name}: {message}");
    }
    assert_eq!(cat(Path::new("relative")).status.code(), Some(1));
}
