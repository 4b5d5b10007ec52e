//! `cargo xtask image`: the container image, without Docker: static programs in an empty root, as one layer
//! of an archive that every container runtime loads. The same sources, compiler and C library must give the
//! same bytes on every machine; `--check-reproducible` checks whether they do. `--index` joins the archives of
//! several processors.

mod build;
mod index;
mod sbom;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use oz_testkit::{Image, ImageArchive, compress};
use strum::Display;

use xtask::programs;

use crate::dependencies::Dependencies;
use crate::{git, notices};
use build::Program;

pub(crate) use build::{program_path, target};
pub(crate) use index::{Archive, Index};

/// The content of an image.
pub(crate) struct Contents {
    pub(crate) name: &'static str,
    /// The packages in the image, each with a program of its name. The image runs the first.
    programs: &'static [&'static str],
    /// The maximum compressed size of a program, as it is transferred to a node, in bytes.
    limit: usize,
}

/// The image of oz.
pub(crate) const OZ: Contents = Contents {
    name: "oz",
    programs: &["oz-operator", "oz-webhook", "oz-broker", "oz-gate", "ozctl"],
    limit: 20_000_000,
};
/// The container of oz in the pods of runs: small, since it is transferred to every node that runs agents.
pub(crate) const HARNESS: Contents = Contents {
    name: "oz-harness",
    programs: &["oz-harness"],
    limit: 8_000_000,
};
/// The output directory, from the root of the repository.
pub(crate) const DIRECTORY: &str = "dist";
/// An unprivileged user; the chart also runs the programs as this user.
const USER: &str = "65532:65532";
/// The beginning of the names of labels.
const LABEL: &str = "org.opencontainers.image";

/// The image to build, and its archive.
#[derive(Args)]
pub(crate) struct Options {
    /// Make the image of the container in the pods of harness runs, oz-harness, instead of oz's own.
    #[arg(long)]
    harness: bool,
    /// The name that the image has in the archive, by default localhost/oz or localhost/oz-harness; the tag
    /// is the version.
    #[arg(long, value_name = "NAME")]
    repository: Option<String>,
    /// The profile of the programs.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// The web page of the repository for the label `source`, by default that of the remote `origin`.
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// Fail unless the image has this digest, as a build elsewhere had.
    #[arg(long, value_name = "DIGEST")]
    expect: Option<String>,
    /// Compile everything a second time, in another directory, and fail unless that gives the same
    /// image.
    #[arg(long)]
    check_reproducible: bool,
    /// Instead of building, join these archives of one image, each for another processor, as one index.
    #[arg(
        long,
        value_name = "ARCHIVE",
        num_args = 1..,
        conflicts_with_all = ["harness", "repository", "profile", "source", "check_reproducible"],
    )]
    index: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, ValueEnum)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Profile {
    /// The release build.
    Release,
    /// The build for tests: fast to compile, large and slow.
    Quick,
}

/// The inputs of a build, apart from the content.
pub(crate) struct Request {
    /// The root of the repository.
    root: PathBuf,
    profile: Profile,
    /// The name of the image with its tag.
    tag: String,
    /// The web page of the repository.
    source: Option<String>,
    /// The commit.
    revision: Option<String>,
}

impl Request {
    /// Returns a request for a build of the sources at `root`, which have the web page `source`.
    ///
    /// # Errors
    /// When git fails.
    pub(crate) fn new(
        contents: &Contents,
        root: &Path,
        profile: Profile,
        repository: Option<&str>,
        source: Option<&str>,
    ) -> Result<Self> {
        let repository = match repository {
            Some(repository) => repository.to_owned(),
            None => format!("localhost/{}", contents.name),
        };
        Ok(Self {
            root: root.to_owned(),
            profile,
            tag: format!("{repository}:{}", env!("CARGO_PKG_VERSION")),
            source: source.map(ToOwned::to_owned).or_else(|| git::origin(root)),
            revision: git::revision(root)?,
        })
    }
}

/// An image, and the descriptions of its content.
pub(crate) struct Built {
    pub(crate) programs: Vec<Program>,
    pub(crate) image: ImageArchive,
    /// The inventory, as CycloneDX.
    pub(crate) inventory: Vec<u8>,
}

/// Returns the packages with programs in images.
pub(crate) fn released_programs() -> Vec<&'static str> {
    let images = [&OZ, &HARNESS];
    images.iter().flat_map(|it| it.programs).copied().collect()
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !options.index.is_empty() {
        return join(options);
    }
    let root = oz_testkit::repository().canonicalize()?;
    let contents = if options.harness { &HARNESS } else { &OZ };
    let repository = options.repository.as_deref();
    let source = options.source.as_deref();
    let request = Request::new(contents, &root, options.profile, repository, source)?;
    let built = make(contents, &request, &programs::target_directory()?)?;
    let image = &built.image;
    let mut said = sizes(contents, options.profile, &built.programs)?;
    let (archive, inventory) = write(contents, &request, &built)?;
    said += &format!(
        "image        {}\ndigest       {}\n",
        request.tag, image.digest
    );
    said += &format!("archive      {}\n", programs::from_here(&archive).display());
    said += &format!(
        "inventory    {}\n",
        programs::from_here(&inventory).display()
    );
    io::stdout().write_all(said.as_bytes())?;
    expect(options, &image.digest)?;
    if options.check_reproducible {
        let elsewhere = tempfile::tempdir_in(programs::target_directory()?)?;
        let again = make(contents, &request, elsewhere.path())?.image;
        ensure!(
            again == *image,
            "the second build gave another image, {}: it is not reproducible",
            again.digest
        );
        io::stdout().write_all(b"again        the same, byte for byte\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn expect(options: &Options, digest: &str) -> Result<()> {
    if let Some(expected) = &options.expect {
        ensure!(
            expected == digest,
            "the image is not the one expected, {expected}: other sources, another compiler or \
             another C library"
        );
    }
    Ok(())
}

/// Joins the archives of several processors.
fn join(options: &Options) -> Result<ExitCode> {
    let archives: Vec<Archive> = options
        .index
        .iter()
        .map(|path| Archive::read(path))
        .collect::<Result<_>>()?;
    let index = Index::new(archives)?;
    let out = oz_testkit::repository().canonicalize()?.join(DIRECTORY);
    let path = write_into(&out, &index.file_name(), &index.archive()?)?;
    let mut said = format!("image        {}\n", index.name());
    said += &format!("processors   {}\n", index.processors().join(", "));
    said += &format!("digest       {}\n", index.digest());
    said += &format!("archive      {}\n", programs::from_here(&path).display());
    io::stdout().write_all(said.as_bytes())?;
    expect(options, index.digest())?;
    Ok(ExitCode::SUCCESS)
}

/// Compiles the programs in `directory`, and packs them.
pub(crate) fn make(contents: &Contents, request: &Request, directory: &Path) -> Result<Built> {
    let root = &request.root;
    let programs = build::build(contents, root, directory, request.profile)?;
    let dependencies = Dependencies::read(root, &target())?;
    let libraries = notices::libraries(root, &target())?;
    let notices = notices::notices(contents.programs, &dependencies, &libraries)?;
    let licence = std::fs::read(root.join("LICENSE")).context("failed to read LICENSE")?;
    let image = pack(contents, &programs, request)?
        .file("LICENSE", 0o644, &licence)?
        .file("NOTICES", 0o644, notices.as_bytes())?;
    Ok(Built {
        inventory: sbom::of(
            contents.name,
            contents.programs,
            &dependencies,
            &libraries,
            root,
        )?,
        image: image.archive()?,
        programs,
    })
}

/// Returns the sizes of the programs, a line each.
///
/// # Errors
/// When the released program is larger than its limit.
pub(crate) fn sizes(contents: &Contents, profile: Profile, programs: &[Program]) -> Result<String> {
    let mut said = String::new();
    for (program, bytes) in programs {
        let small = compress(bytes)?.len();
        said += &format!(
            "{program:12} {}, compressed {}\n",
            megabytes(bytes.len()),
            megabytes(small)
        );
        ensure!(
            small <= contents.limit || profile == Profile::Quick,
            "{program} is {} compressed, more than the {} that it may be",
            megabytes(small),
            megabytes(contents.limit)
        );
    }
    Ok(said)
}

fn megabytes(bytes: usize) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{:3}.{} MB", tenths / 10, tenths % 10)
}

fn pack(contents: &Contents, programs: &[Program], request: &Request) -> Result<Image> {
    let first = contents.programs.first().context("the image is empty")?;
    let mut image = Image::new(&request.tag, &[&format!("/{first}")])
        .user(USER)
        .search("/")
        .label(&format!("{LABEL}.title"), contents.name)
        .label(&format!("{LABEL}.version"), env!("CARGO_PKG_VERSION"))
        .label(&format!("{LABEL}.licenses"), env!("CARGO_PKG_LICENSE"));
    for (name, value) in [("source", &request.source), ("revision", &request.revision)] {
        if let Some(value) = value {
            image = image.label(&format!("{LABEL}.{name}"), value);
        }
    }
    for (name, bytes) in programs {
        image = image.file(name, 0o755, bytes)?;
    }
    Ok(image)
}

/// Returns the name of the archive of an image for one processor, without its extension.
pub(crate) fn base_name(contents: &Contents, profile: Profile, processor: &str) -> String {
    let name = format!(
        "{}-{}-{processor}",
        contents.name,
        env!("CARGO_PKG_VERSION")
    );
    match profile {
        Profile::Release => name,
        Profile::Quick => format!("{name}-{profile}"),
    }
}

/// Writes the archive and the inventory.
fn write(contents: &Contents, request: &Request, built: &Built) -> Result<(PathBuf, PathBuf)> {
    let out = request.root.join(DIRECTORY);
    let name = base_name(contents, request.profile, Image::architecture());
    Ok((
        write_into(&out, &format!("{name}.oci.tar"), &built.image.bytes)?,
        write_into(&out, &format!("{name}.cdx.json"), &built.inventory)?,
    ))
}

/// Writes a file of a directory, which it creates if it does not exist; returns the path.
pub(crate) fn write_into(directory: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("failed to make {}", directory.display()))?;
    let path = directory.join(name);
    std::fs::write(&path, bytes).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chart starts every program of the image.
    #[test]
    fn dockerfile_builds_the_programs_of_the_images() {
        let dockerfile = oz_testkit::repository().join("Dockerfile");
        let dockerfile = std::fs::read_to_string(dockerfile).unwrap();
        let normalised = dockerfile.replace("\\\n", " ");
        let words: Vec<&str> = normalised.split_whitespace().collect();
        let text = words.join(" ");
        for contents in [&OZ, &HARNESS] {
            let copied = format!("cp {} /out/", contents.programs.join(" "));
            assert!(text.contains(&copied), "not there: {copied}");
            let packages: Vec<String> = contents
                .programs
                .iter()
                .map(|program| format!("--package {program}"))
                .collect();
            let packages = packages.join(" ");
            // The build, and the notices.
            assert_eq!(
                text.matches(&format!("{packages} ")).count(),
                2,
                "{packages}"
            );
        }
        let last = text.rsplit("FROM scratch").next().unwrap();
        assert!(last.contains("COPY LICENSE /"), "{last}");
        assert!(last.contains("CMD [\"/oz-operator\"]"), "{last}");
    }

    #[test]
    fn labels_have_source_and_revision() {
        let request = |source: Option<&str>| Request {
            root: PathBuf::new(),
            profile: Profile::Quick,
            tag: "localhost/oz:1".to_owned(),
            source: source.map(ToOwned::to_owned),
            revision: Some("abc".to_owned()),
        };
        let archive = |source| {
            let image = pack(
                &OZ,
                &[("oz-operator", b"program".to_vec())],
                &request(source),
            );
            let image = image.and_then(Image::archive).unwrap();
            Archive::parse("archive", &image.bytes).unwrap()
        };
        let with = archive(Some("https://example.test/oz"));
        assert_eq!(with.label("source"), Some("https://example.test/oz"));
        assert_eq!(with.label("revision"), Some("abc"));
        assert_eq!(with.label("version"), Some(env!("CARGO_PKG_VERSION")));
        assert_eq!(archive(None).label("source"), None);
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(megabytes(20_000_000), " 20.0 MB");
        assert_eq!(megabytes(20_000_001), " 20.1 MB");
    }
}
