//! Encrypted recordings: the readers, the data that all other users see, and the format of the files, which is that of
//! age.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{
    GATED, Gate, RecordingStore, Scene, Session, System, exec_request, recording_template,
};
use oz_gating::recording::ENCRYPTED_TO;
use oz_recording::{age, frames};
use oz_testkit::{CONDITION_TIMEOUT, Tool, Tools, eventually};
use oz_trail::Action;
use tempfile::TempDir;

use crate::passing::said;
use crate::recording::{REQUIRED, contains, parts, recorded};
use crate::{TURN, cluster};

/// An identity in a file.
struct Key {
    directory: TempDir,
    identity: [age::Identity; 1],
}

impl Key {
    fn new() -> Result<Self> {
        let (identity, line) = age::Identity::generate()?;
        let directory = TempDir::new()?;
        let key = Self {
            directory,
            identity: [identity],
        };
        let text = format!("# public key: {}\n{}\n", key.recipient(), *line);
        fs::write(key.path(), text)?;
        fs::set_permissions(key.path(), fs::Permissions::from_mode(0o600))?;
        Ok(key)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("key.txt")
    }

    fn recipient(&self) -> String {
        self.identity[0].recipient().to_string()
    }
}

/// Runs the published program with this standard input.
fn published(arguments: &[&str], input: &[u8]) -> Result<Output> {
    let tools = Tools::obtain(&[Tool::Age])?;
    let mut child = Command::new(tools.path(Tool::Age)?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let input = input.to_vec();
    // A program that refuses a header reads no further.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output()?;
    writer.join().ok().context("the writer panicked")?;
    Ok(output)
}

#[test]
fn encrypted_files_are_interoperable_with_age() -> Result<()> {
    let (one, other) = (Key::new()?, Key::new()?);
    let (path, recipient) = (one.path(), one.recipient());
    let path = path.to_str().context("a path")?;
    for length in [0, 1, 65_535, 65_536, 65_537, 300_000] {
        let content: Vec<u8> = (0..length)
            .map(|at| u8::try_from(at % 251))
            .collect::<Result<_, _>>()?;
        let recipients = [other.identity[0].recipient(), one.identity[0].recipient()];
        let ours = age::encrypt(&recipients, &content)?;
        let decrypted = published(&["--decrypt", "--identity", path], &ours)?;
        ensure!(decrypted.status.success(), "{length}: {}", said(&decrypted));
        ensure!(
            decrypted.stdout == content,
            "{length} bytes came back otherwise"
        );
        let arguments = ["--recipient", &other.recipient(), "--recipient", &recipient];
        let theirs = published(&arguments, &content)?;
        ensure!(theirs.status.success(), "{length}: {}", said(&theirs));
        ensure!(
            age::decrypt(&theirs.stdout, &one.identity)? == content,
            "{length}"
        );
        ensure!(age::named_recipients(&theirs.stdout)?.is_empty());
    }
    let most: Vec<age::Recipient> = (1..age::MAX_RECIPIENTS)
        .map(|_| Ok(age::Identity::generate()?.0.recipient()))
        .chain([Ok(one.identity[0].recipient())])
        .collect::<Result<_>>()?;
    let decrypted = published(
        &["--decrypt", "--identity", path],
        &age::encrypt(&most, b"text")?,
    )?;
    ensure!(decrypted.stdout == b"text", "{}", said(&decrypted));
    let refused = published(
        &["--decrypt", "--identity", path],
        &age::encrypt(&most[..1], b"text")?,
    )?;
    ensure!(!refused.status.success());
    Ok(())
}

/// A gate that encrypts, its recordings, and their recipient.
struct Recorded {
    gate: Gate,
    scene: Scene,
    kept: RecordingStore,
    auditor: Key,
}

impl Recorded {
    /// Returns `ozctl sessions` for a user who may see recordings.
    fn ozctl(&self, arguments: &[&str]) -> Result<Command> {
        let viewer = format!("{}-auditors", self.scene.name());
        self.scene
            .ozctl(&viewer, &[&["sessions"], arguments].concat())
    }

    /// Checks that no disk has the text of the sessions.
    fn is_unreadable(&self) -> Result<()> {
        let store = self.kept.store();
        for place in [&store, &store.with_file_name("spool")] {
            ensure!(!contains(place, b"marked")?, "{} has it", place.display());
        }
        Ok(())
    }
}

#[tokio::test]
async fn encrypted_recording_requires_identity_to_play_but_not_to_verify() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let (auditor, other) = (Key::new()?, Key::new()?);
    let kept = RecordingStore::new()?;
    let recipients = format!("{},{}", auditor.recipient(), other.recipient());
    let options = kept
        .options()
        .set("gate.recordings.recipients", format!("[{recipients}]"));
    let _system = System::start_with(cluster, &Gate::operator_options()).await?;
    let scene = Scene::set(cluster, "encrypted").await?;
    let mut all = Recorded {
        gate: Gate::start(cluster, &options).await?,
        scene,
        kept,
        auditor,
    };
    all.scene.template(&recording_template(REQUIRED)).await?;
    all.scene.may_view_recordings("auditors").await?;
    let alice = all.scene.requests("alice").await?;
    let pod = alice
        .granted(&exec_request("mine", GATED, "5m"))
        .await?
        .pod();
    let command = ["exec", &pod, "--", "echo", "marked-first"];
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let output = all.scene.through_gate("alice", "mine", &command).output()?;
        Ok(output.status.success().then_some(()))
    })
    .await?;
    let first = recorded(&all.gate, &all.scene, Action::SessionRecorded, 1).await?;
    ensure!(
        first[0].details.get(ENCRYPTED_TO) == Some(&recipients),
        "{first:?}"
    );
    let script = "echo here marked-second; exec cat";
    let command = ["exec", "-i", &pod, "--", "sh", "-c", script];
    let session = Session::open(all.scene.through_gate("alice", "mine", &command))?;
    in_the_spool(&all, b"marked-second").await?;
    all.is_unreadable()?;

    all.gate.process.kill9();
    session.ended(CONDITION_TIMEOUT)?;
    all.gate = Gate::start(cluster, &options).await?;
    let second = recorded(&all.gate, &all.scene, Action::SessionRecorded, 1).await?;
    ensure!(second[0].reason == "Interrupted", "{second:?}");
    ensure!(
        second[0].details.get(ENCRYPTED_TO) == Some(&recipients),
        "{second:?}"
    );
    ensure!(
        second[0]
            .user
            .as_ref()
            .is_some_and(|user| user.user == "alice"),
        "{second:?}"
    );
    eventually("both to be stored", CONDITION_TIMEOUT, async || {
        Ok((parts(&all.kept.store()).unwrap_or_default().len() == 2).then_some(()))
    })
    .await?;
    all.is_unreadable()?;
    let session = first[0].details.get("session").context("no session")?;
    played_with_the_identity_alone(&all, session)?;
    age_reads_a_part(&all)?;
    verified_without(&all)
}

/// Waits until the open part contains this, decrypted with the identity.
async fn in_the_spool(all: &Recorded, text: &[u8]) -> Result<()> {
    let spool = all.kept.store().with_file_name("spool");
    eventually("the session in the spool", CONDITION_TIMEOUT, async || {
        for path in parts(&spool)? {
            let file = fs::read(&path).unwrap_or_default();
            let lines = frames::open(frames::whole(&file), &all.auditor.identity, 1 << 20);
            if lines.is_ok_and(|lines| lines.windows(text.len()).any(|part| part == text)) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })
    .await
}

/// Checks that without the identity, or with another, ozctl names the recipient, and with it shows the recording.
fn played_with_the_identity_alone(all: &Recorded, session: &str) -> Result<()> {
    let (_, named) = session.split_once('/').context("no namespace")?;
    let stranger = Key::new()?;
    let (path, strange) = (all.auditor.path(), stranger.path());
    let identity = ["--identity", path.to_str().context("a path")?];
    let wrong = ["--identity", strange.to_str().context("a path")?];
    for verb in ["play", "transcript"] {
        for session in [named, "mine"] {
            let refused = all.ozctl(&[verb, session])?.output()?;
            let told = said(&refused);
            ensure!(refused.status.code() == Some(1), "{told}");
            ensure!(
                told.contains(&all.auditor.recipient()) && told.contains("--identity"),
                "{told}"
            );
            let refused = all
                .ozctl(&[&[verb, session], wrong.as_slice()].concat())?
                .output()?;
            let told = said(&refused);
            ensure!(refused.status.code() == Some(1), "{told}");
            ensure!(
                told.contains(&all.auditor.recipient()) && told.contains(&stranger.recipient()),
                "{told}"
            );
            ensure!(!told.contains("marked"), "{told}");
        }
    }
    for (session, expected) in [(named, "marked-first\n"), ("mine", "here marked-second\n")] {
        let shown = all
            .ozctl(&[&["transcript", session], identity.as_slice()].concat())?
            .output()?;
        ensure!(
            shown.status.success() && shown.stdout == expected.as_bytes(),
            "{}",
            said(&shown)
        );
        let played = all
            .ozctl(&[&["play", session], identity.as_slice()].concat())?
            .output()?;
        ensure!(said(&played).contains(expected.trim()), "{}", said(&played));
        ensure!(!said(&played).contains("warning"), "{}", said(&played));
    }
    // The identity comes from standard input, or from a file that other users can read.
    let mut piped = all.ozctl(&["transcript", named, "--identity", "-"])?;
    let piped = piped.stdin(fs::File::open(&path)?).output()?;
    ensure!(piped.stdout == b"marked-first\n", "{}", said(&piped));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    let warned = all
        .ozctl(&[&["transcript", named], identity.as_slice()].concat())?
        .output()?;
    ensure!(
        warned.status.success() && said(&warned).contains("chmod 600"),
        "{}",
        said(&warned)
    );
    let listed = all.scene.ozctl("admin", &["sessions", "list"])?.output()?;
    ensure!(
        said(&listed).contains("yes, encrypted"),
        "{}",
        said(&listed)
    );
    ensure!(
        said(&listed).contains("until the gate stopped, encrypted"),
        "{}",
        said(&listed)
    );
    Ok(())
}

/// Checks that age alone, without oz, decrypts a part.
fn age_reads_a_part(all: &Recorded) -> Result<()> {
    let all_parts = parts(&all.kept.store())?;
    let part = all_parts
        .iter()
        .find(|path| path.to_string_lossy().ends_with(".cast.zst.age"));
    let path = all.auditor.path();
    let arguments = ["--decrypt", "--identity", path.to_str().context("a path")?];
    let packed = published(&arguments, &fs::read(part.context("no part")?)?)?;
    let lines = oz_recording::unpack(&packed.stdout, 1 << 20)?;
    ensure!(String::from_utf8(lines)?.contains("marked-first"));
    Ok(())
}

/// Checks that the stored recordings verify without the identity, until a byte is changed.
fn verified_without(all: &Recorded) -> Result<()> {
    let path = all.auditor.path();
    let identity = ["--identity", path.to_str().context("a path")?];
    let verify = |flags: &[&str]| {
        Ok::<_, anyhow::Error>(
            all.scene
                .ozctl("admin", &[&["sessions", "verify"], flags].concat())?
                .output()?,
        )
    };
    for flags in [&[][..], &identity] {
        let output = verify(flags)?;
        ensure!(
            output.status.success() && said(&output).contains("as recorded"),
            "{}",
            said(&output)
        );
    }
    let stranger = Key::new()?;
    let output = verify(&["--identity", stranger.path().to_str().context("a path")?])?;
    ensure!(
        output.status.code() == Some(1) && said(&output).contains("not read"),
        "{}",
        said(&output)
    );
    for part in parts(&all.kept.store())? {
        let whole = fs::read(&part)?;
        let mut changed = whole.clone();
        changed[whole.len() - 1] ^= 1;
        fs::write(&part, &changed)?;
        for flags in [&[][..], &identity] {
            let output = verify(flags)?;
            ensure!(output.status.code() == Some(1), "{}", said(&output));
            ensure!(said(&output).contains("changed"), "{}", said(&output));
        }
        fs::write(&part, &whole)?;
    }
    ensure!(verify(&[])?.status.success());
    Ok(())
}
