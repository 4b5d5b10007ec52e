//! Encrypted recordings, and the room that recordings take.

use super::*;

/// Returns the first line of a recording, of a session with a command.
fn header() -> Header {
    Header {
        version: 2,
        width: 80,
        height: 24,
        timestamp: 0,
        oz: About {
            command: vec!["marked-command".to_owned()],
            command_digest: Some("marked-digest".to_owned()),
            request_uid: "a-uid".to_owned(),
            ..crate::tape::tests::about("s")
        },
    }
}

#[tokio::test]
async fn nothing_that_is_encrypted_is_ever_on_the_disk_as_it_was() {
    let place = Directories::encrypted();
    let (spool, _) = place.open(None).await.unwrap();
    let header = serde_json::to_vec(&header()).unwrap();
    let line = b"[1, \"o\", \"marked-output\"]\n";
    let mut recording = spool.begin(key("0"), "alice");
    let appended = [&header, b"\n".as_slice(), line].concat();
    let unmarked = |what: &str| {
        let all = [files(&place.spool()), files(&place.store())].concat();
        assert!(all.len() > 1, "{what}");
        for path in all {
            let bytes = fs::read(&path).unwrap();
            let marked = bytes.windows(6).any(|part| part == b"marked");
            assert!(!marked, "{what}: {}", path.display());
        }
    };
    recording.append(&appended).await.unwrap();
    unmarked("while it is open");
    recording.seal().await.unwrap();
    unmarked("once it is sealed");
    recording.append(line).await.unwrap();
    recording.append(line).await.unwrap();
    drop((recording, spool));
    let (spool, recovered) = place.open(None).await.unwrap();
    unmarked("once it was taken up");
    while spool.uploads.upload_one().await {}
    unmarked("once it is stored");
    let forms: Vec<Form> = files(&place.store())
        .iter()
        .filter_map(|path| PartName::read(path.strip_prefix(place.store()).ok()?.to_str()?))
        .map(|name| name.form)
        .collect();
    assert_eq!(forms, [Form::Encrypted, Form::Frames]);
    let (lines, head) = place.stored(&key("0")).await;
    assert_eq!(lines, [&appended, line.as_slice(), line].concat());
    // The process that takes the recording up knows its user.
    assert_eq!(recovered[0].head, head);
    assert_eq!(recovered[0].recipients, place.options(0).recipients);
    let kept: Header = serde_json::from_slice(recovered[0].header.as_ref().unwrap()).unwrap();
    assert_eq!(
        (kept.oz.user.as_str(), kept.oz.request_uid.as_str()),
        ("alice", "a-uid")
    );
    assert_eq!((kept.oz.command.len(), kept.oz.command_digest), (0, None));
}

#[tokio::test]
async fn recovered_plain_recording_is_encrypted_for_new_recipients() {
    let mut place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    recording.append(b"{}\n").await.unwrap();
    drop((recording, spool));
    place.identity = Some(Identity::generate().unwrap().0);
    let (spool, recovered) = place.open(None).await.unwrap();
    assert_eq!(recovered.len(), 1);
    while spool.uploads.upload_one().await {}
    assert_eq!(place.stored(&key("0")).await.0, b"{}\n");
}

#[tokio::test]
async fn room_is_counted_as_it_is_taken_also_where_lines_are_encrypted() {
    let place = Directories::encrypted();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    for _ in 0..10 {
        recording.append(b"[1]\n").await.unwrap();
    }
    let frame = 4 + frames::OVERHEAD as u64;
    assert_eq!(spool.usage.full().used, 10 * frame);
    recording.seal().await.unwrap();
    let sealed = spool.waiting().bytes;
    assert_eq!(spool.usage.full().used, sealed);
    recording.finish().await.unwrap();
    while spool.uploads.upload_one().await {}
    assert_eq!(spool.usage.full().used, 0);
}

#[tokio::test]
async fn recovered_recordings_count_against_share_of_their_user() {
    for new in [Directories::new, Directories::encrypted] {
        let place = new();
        let (spool, _) = place.open(None).await.unwrap();
        let header = [serde_json::to_vec(&header()).unwrap(), b"\n".to_vec()].concat();
        let mut hers = spool.begin(key("0"), "alice");
        hers.append(&header).await.unwrap();
        hers.seal().await.unwrap();
        hers.append(b"[1, \"o\", \"open\"]\n").await.unwrap();
        let mut damaged = spool.begin(key("1"), "alice");
        damaged.append(&header).await.unwrap();
        let mut unknown = spool.begin(key("2"), "carol");
        unknown.append(b"{}\n").await.unwrap();
        let used = |spool: &Spool, user| spool.usage.share(user).used();
        assert!(used(&spool, Some("alice")) > 0 && used(&spool, Some("carol")) > 0);
        drop((hers, damaged, unknown, spool));
        let session = place.spool().join(key("1").to_string());
        fs::write(session.join("README"), "whose is this?").unwrap();

        let (spool, _) = place.open(None).await.unwrap();
        assert_eq!(place.meters.damaged.get(), 1);
        let damaged = size(&session);
        let (alice, nobody) = (used(&spool, Some("alice")), used(&spool, None));
        assert!(alice > damaged && nobody > 0, "{alice}, {nobody}");
        assert_eq!(alice + nobody, spool.usage.full().used);
        assert_eq!(
            used(&spool, Some("carol")),
            0,
            "nothing says that it is hers"
        );
        while spool.uploads.upload_one().await {}
        assert_eq!(used(&spool, Some("alice")), damaged);
        assert_eq!(used(&spool, None), 0);
    }
}

#[tokio::test]
async fn share_includes_open_and_unstored_recordings_of_user() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recordings = ["0", "1"].map(|name| spool.begin(key(name), "alice"));
    let mut bobs = spool.begin(key("2"), "bob");
    let line = [vec![b'1'; 99], b"\n".to_vec()].concat();
    for recording in &mut recordings {
        recording.append(&line).await.unwrap();
    }
    bobs.append(&line).await.unwrap();
    let used = |user| spool.share(user).used();
    assert_eq!((used("alice"), used("bob")), (200, 100));
    let [first, second] = recordings;
    first.finish().await.unwrap();
    assert!(used("alice") < 200, "it was packed");
    assert_eq!(used("bob"), 100);
    while spool.uploads.upload_one().await {}
    assert_eq!((used("alice"), used("bob")), (100, 100));
    second.finish().await.unwrap();
    while spool.uploads.upload_one().await {}
    assert_eq!((used("alice"), used("bob")), (0, 100));
}
