//! The README's application, made of the packages as `cargo package` makes them.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{repository, run};
use tokio::sync::OnceCell;

/// The packages of the library.
pub(crate) const LIBRARY: [&str; 3] = ["oz-listen", "oz-runtime", "oz-admission"];

/// A typical first mistake of a new user.
const WRONG: &str = r#"
use oz_admission::{Hook, Notes, Rejection};

fn main() {
    Hook::mutating("note", |_: &str| Ok::<_, Rejection>(Notes::none()));
}
"#;

/// Returns the program, which the first test compiles.
pub(crate) async fn program() -> Result<&'static Path> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let program = PROGRAM.get_or_try_init(|| async { tokio::task::spawn_blocking(build).await? });
    Ok(program.await?)
}

/// Returns the error of the compiler about [`WRONG`].
pub(crate) fn complaint() -> Result<String> {
    let target = target()?;
    let mut cargo = cargo(&target.join("outside/application"));
    cargo.args(["build", "--example", "wrong", "--target-dir"]);
    let output = cargo.arg(&target).output()?;
    ensure!(!output.status.success(), "the wrong program was compiled");
    Ok(String::from_utf8(output.stderr)?)
}

/// Returns cargo, in `directory`.
pub(crate) fn cargo(directory: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory);
    // `cargo xtask test --profile` sets it for the test harness; here it would make cargo compile everything anew.
    cargo.env_remove("RUSTC_BOOTSTRAP");
    cargo
}

/// Returns the directory that cargo compiles into: the test is in target/<profile>/deps.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).context("no target directory")?;
    Ok(target.to_owned())
}

fn build() -> Result<PathBuf> {
    let target = target()?;
    let outside = target.join("outside");
    let library = package(&outside)?;
    let readme = fs::read_to_string(library.join("oz-admission").join("README.md"))?;
    let application = outside.join("application");
    write(
        &application.join("src/main.rs"),
        block(&readme, "rust,no_run")?.as_bytes(),
    )?;
    let dependencies = block(&readme, "toml")?;
    let patches: String = LIBRARY
        .iter()
        .map(|name| format!("{name} = {{ path = \"../library/{name}\" }}\n"))
        .collect();
    let manifest = format!(
        "[package]\nname = \"asked-by\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         {dependencies}\n[patch.crates-io]\n{patches}{}",
        profile()?
    );
    write(&application.join("Cargo.toml"), manifest.as_bytes())?;
    write(&application.join("examples/wrong.rs"), WRONG.as_bytes())?;
    // The versions are those of the workspace, so that cargo does not query the registry again.
    fs::copy(
        repository().join("Cargo.lock"),
        application.join("Cargo.lock"),
    )?;
    let mut command = cargo(&application);
    command.args(["build", "--target-dir"]).arg(&target);
    run(command)?;
    Ok(target.join("debug/asked-by"))
}

/// Returns the profile of the workspace, so that cargo compiles shared dependencies once.
fn profile() -> Result<String> {
    let manifest = fs::read_to_string(repository().join("Cargo.toml"))?;
    let mut profile = String::new();
    let mut is_profile = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_profile = line.starts_with("[profile.dev");
        }
        if is_profile {
            profile = profile + "\n" + line;
        }
    }
    ensure!(!profile.is_empty(), "the workspace has no profile");
    Ok(profile)
}

/// Packages the library and unpacks it: a directory for each package.
fn package(outside: &Path) -> Result<PathBuf> {
    let mut command = cargo(&repository());
    command.args(["package", "--offline", "--allow-dirty", "--no-verify"]);
    command.args(["--no-metadata", "--exclude-lockfile"]);
    command.args(LIBRARY.iter().flat_map(|name| ["--package", name]));
    command.arg("--target-dir").arg(outside);
    run(command)?;
    let library = outside.join("library");
    for name in LIBRARY {
        let version = env!("CARGO_PKG_VERSION");
        let archive = outside.join(format!("package/{name}-{version}.crate"));
        unpack(&archive, &library.join(name))
            .with_context(|| format!("failed to unpack {}", archive.display()))?;
    }
    Ok(library)
}

/// Unpacks over the files of an earlier run, and leaves equal files unchanged: cargo compares their times.
fn unpack(archive: &Path, directory: &Path) -> Result<()> {
    let mut packed = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(archive)?));
    let mut files = Vec::new();
    for entry in packed.entries()? {
        let mut entry = entry?;
        let path: PathBuf = entry.path()?.components().skip(1).collect();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        let path = directory.join(path);
        write(&path, &content)?;
        files.push(path);
    }
    remove_others(directory, &files)
}

/// Removes the files that are not in the package.
fn remove_others(directory: &Path, files: &[PathBuf]) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, files)?;
        } else if !files.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Writes a file, unless it has this content.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    Ok(fs::write(path, content)?)
}

/// Returns the first block of code in `markdown` with the fence `info`.
pub(crate) fn block(markdown: &str, info: &str) -> Result<String> {
    let fence = format!("```{info}\n");
    let (_, rest) = markdown
        .split_once(&fence)
        .with_context(|| format!("no block of {info} in the README"))?;
    let (block, _) = rest.split_once("```").context("a block without an end")?;
    ensure!(
        !block.lines().any(|line| line.starts_with("# ")),
        "what the README's reader is not shown is not part of the program:\n{block}"
    );
    Ok(block.to_owned())
}
