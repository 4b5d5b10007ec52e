//! The names of images: registry, repository, tag and digest.

use anyhow::{Context as _, Result};
use oz_config::OzConfiguration;

use crate::values::refusal;
use crate::{configuration_text, name_of, rendered};

/// Returns the images of the operator, of oz's container in runs, and of the container that clones repositories.
fn images(flags: &[&str]) -> Result<[String; 3]> {
    let objects = rendered(&[&["--set=harness.enabled=true"], flags].concat())?;
    let operator = objects
        .iter()
        .find(|it| name_of(it) == "Deployment oz-operator")
        .context("there is no operator")?;
    let image = &operator["spec"]["template"]["spec"]["containers"][0]["image"];
    let image = image.as_str().context("no image")?.to_owned();
    let configuration = OzConfiguration::read(&configuration_text(&objects)?)?;
    Ok([
        image,
        configuration.harness.image,
        configuration.harness.git_image,
    ])
}

#[test]
fn registry_replaces_host_of_repository() -> Result<()> {
    let tag = env!("CARGO_PKG_VERSION");
    let [oz, harness, git] = images(&[])?;
    assert_eq!(oz, format!("localhost/oz:{tag}"));
    assert_eq!(harness, format!("localhost/oz-harness:{tag}"));
    let (git, git_tag) = git.split_once(':').context("no tag")?;
    assert_eq!(git, "docker.io/alpine/git");

    let everywhere = "--set=global.imageRegistry=mirror.example:5000/oz";
    let of_git = format!("mirror.example:5000/oz/alpine/git:{git_tag}");
    for more in [
        "--set=image.tag=",
        // The registry of all images also replaces this one.
        "--set=image.registry=other.example",
        "--set=image.repository=other.example:443/oz",
        "--set=image.repository=oz",
    ] {
        let expected = [
            format!("mirror.example:5000/oz/oz:{tag}"),
            format!("mirror.example:5000/oz/oz-harness:{tag}"),
            of_git.clone(),
        ];
        assert_eq!(images(&[everywhere, more])?, expected, "{more}");
    }

    for (flag, expected) in [
        ("image.registry=a.example", format!("a.example/oz:{tag}")),
        (
            "image.registry=a.example,image.repository=team/oz",
            format!("a.example/team/oz:{tag}"),
        ),
        (
            "image.repository=a.example/team/oz",
            format!("a.example/team/oz:{tag}"),
        ),
        ("image.repository=oz", format!("oz:{tag}")),
    ] {
        let [oz, others @ ..] = images(&[&format!("--set={flag}")])?;
        assert_eq!(oz, expected, "{flag}");
        assert!(others[0].starts_with("localhost/"), "{flag}: {others:?}");
    }
    let [_, harness, git] = images(&[
        "--set=harness.image.registry=b.example",
        "--set=harness.gitImage.registry=c.example/mirror",
    ])?;
    assert_eq!(harness, format!("b.example/oz-harness:{tag}"));
    assert_eq!(git, format!("c.example/mirror/alpine/git:{git_tag}"));
    Ok(())
}

#[test]
fn registry_with_scheme_or_final_slash_is_refused() -> Result<()> {
    for flag in [
        "global.imageRegistry=https://mirror.example",
        "image.registry=mirror.example/",
        "harness.image.registry=mirror.example//oz",
        "harness.gitImage.registry=:5000",
    ] {
        let said = refusal(&format!("--set={flag}"))?;
        assert!(said.contains("egistry'"), "{flag}: {said}");
    }
    Ok(())
}
