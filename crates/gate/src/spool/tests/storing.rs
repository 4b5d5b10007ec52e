//! The way of recordings into the storage, and the files of the spool.

use super::*;

#[tokio::test]
async fn recordings_are_stored_when_unavailable_store_returns() {
    let place = Directories::new();
    let storage = place.storage();
    fs::remove_dir(place.store()).unwrap();
    fs::write(place.store(), "in the way").unwrap();
    let (spool, recovered) = Spool::start(place.options(LIMIT), storage.clone())
        .await
        .unwrap();
    assert_eq!(recovered, []);
    let mut recording = spool.begin(key("0"), "alice");
    for line in ["{}\n", "[1]\n", "[2]\n"] {
        recording.append(line.as_bytes()).await.unwrap();
        recording.seal().await.unwrap();
    }
    let waiting = spool.flush(Duration::ZERO).await.unwrap_err();
    assert!(waiting.parts > 0, "{waiting:?}");
    let failed = || async { Ok((place.meters.failures_of("Unavailable") > 0).then_some(())) };
    eventually("a failed attempt", DEADLINE, failed)
        .await
        .unwrap();
    let waiting = spool.waiting();
    assert_eq!(waiting.parts, 3);
    assert!(waiting.oldest.is_some());
    assert_eq!(waiting.bytes, spool.usage.full().used);
    drop((recording, spool));

    fs::remove_file(place.store()).unwrap();
    let opened = || async {
        Spool::start(place.options(LIMIT), storage.clone())
            .await
            .map(Some)
    };
    let (spool, recovered) = eventually("the lock of the spool", DEADLINE, opened)
        .await
        .unwrap();
    spool.flush(DEADLINE).await.unwrap();
    let (lines, head) = place.stored(&key("0")).await;
    assert_eq!(lines, b"{}\n[1]\n[2]\n");
    let expected = Recovered {
        key: key("0"),
        head,
        header: Some(b"{}".to_vec()),
        recipients: Vec::new(),
    };
    assert_eq!(recovered, [expected]);
}

#[tokio::test]
async fn full_spool_rejects_data_and_keeps_its_content() {
    let place = Directories::new();
    let disk = Disk::default();
    let (spool, _) = Spool::open(&place.options(1000), place.storage(), disk).unwrap();
    let spool = Arc::new(spool);
    let mut recording = spool.begin(key("0"), "alice");
    let line = [vec![b'1'; 99], b"\n".to_vec()].concat();
    for number in 0..10 {
        assert_eq!(spool.room().is_ok(), number < 9, "line {number}");
        recording.append(&line).await.unwrap();
    }
    let error = recording.append(b"\n").await.unwrap_err();
    let full = Full {
        used: 1000,
        limit: 1000,
    };
    assert!(matches!(error, SpoolError::Full(error) if error == full));
    assert_eq!(spool.room(), Err(full));
    // A sealed part replaces the open part.
    recording.seal().await.unwrap();
    assert_eq!(spool.room(), Ok(()));
    recording.append(&line).await.unwrap();
    recording.finish().await.unwrap();
    while spool.uploads.upload_one().await {}
    assert_eq!(spool.usage.full().used, 0);
    assert_eq!(place.stored(&key("0")).await.0, line.repeat(11));
}

#[tokio::test]
async fn part_that_differs_from_stored_object_is_kept_as_evidence() {
    let place = Directories::new();
    let name = key("0").part(0, Form::Plain);
    let put = place.storage().put(&name, "another part".into()).await;
    put.unwrap();
    for start in 1..=2 {
        let (spool, _) = place.open(None).await.unwrap();
        if start == 1 {
            for session in ["0", "1"] {
                let mut recording = spool.begin(key(session), "alice");
                recording.append(b"{}\n").await.unwrap();
                recording.finish().await.unwrap();
            }
        }
        while spool.uploads.upload_one().await {}
        assert_eq!(place.meters.different.get(), start);
        assert_eq!(spool.waiting(), Waiting::default());
        assert!(spool.usage.full().used > 0, "its room is taken");
        let kept = fs::read(place.spool().join(&name)).unwrap();
        assert_eq!(oz_recording::unpack(&kept, 10).unwrap(), b"{}\n");
    }
    let read = place.storage().get(&name, 100).await.unwrap();
    assert_eq!(read.unwrap(), "another part");
    assert_eq!(place.stored(&key("1")).await.0, b"{}\n");
}

#[tokio::test]
async fn damaged_recording_is_left_and_others_are_recovered() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let damaged = ["state", "no-state", "file", "gap"];
    for session in [damaged.as_slice(), &["fine"]].concat() {
        let mut recording = spool.begin(key(session), "alice");
        recording.append(b"{}\n").await.unwrap();
        recording.seal().await.unwrap();
    }
    drop(spool);
    let at = |session: &str| place.spool().join(key(session).to_string());
    fs::write(at("state").join("state.json"), "{\"parts\": 7").unwrap();
    fs::remove_file(at("no-state").join("state.json")).unwrap();
    fs::write(at("file").join("README"), "whose is this?").unwrap();
    let part = at("gap").join("000000.cast.zst");
    fs::rename(part, at("gap").join("000007.cast.zst")).unwrap();

    let before = files(&place.spool());
    let (spool, recovered) = place.open(None).await.unwrap();
    let keys: Vec<&SessionKey> = recovered.iter().map(|recovered| &recovered.key).collect();
    assert_eq!(keys, [&key("fine")]);
    assert_eq!(place.meters.damaged.get(), damaged.len() as u64);
    assert_eq!(files(&place.spool()), before);
    while spool.uploads.upload_one().await {}
    assert_eq!(place.stored(&key("fine")).await.0, b"{}\n");
}

#[tokio::test]
async fn spool_is_locked_by_one_process_and_session_by_one_recording() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let again = Spool::open(&place.options(LIMIT), place.storage(), Disk::default());
    let error = again.unwrap_err();
    assert!(is_locked(&error), "{error:#}");
    let mut recording = spool.begin(key("0"), "alice");
    recording.append(b"{}\n").await.unwrap();
    let mut same = spool.begin(key("0"), "alice");
    let error = same.append(b"{}\n").await.unwrap_err();
    assert!(matches!(error, SpoolError::Io { .. }), "{error}");
    let head = recording.finish().await.unwrap();
    assert_eq!(head.parts, 1);
}

#[tokio::test]
async fn a_session_without_a_line_leaves_nothing() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    recording.append(b"").await.unwrap();
    let start = Head::start(&key("0").to_string());
    assert_eq!(recording.seal().await.unwrap(), start);
    assert_eq!(recording.finish().await.unwrap(), start);
    assert_eq!(files(&place.spool()), [place.spool().join("lock")]);
}

#[tokio::test]
async fn spool_files_are_accessible_to_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    for _ in 0..2 {
        recording.append(b"{}\n").await.unwrap();
        recording.seal().await.unwrap();
    }
    recording.append(b"{}\n").await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let below = place.spool().join(key("0").to_string());
    let names = directories::entries(&below).unwrap();
    assert_eq!(names.len(), 4, "{names:?}");
    for path in names {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(&below), 0o700);
    assert_eq!(mode(&place.spool()), 0o700);
}

#[tokio::test(start_paused = true)]
async fn lines_are_on_the_disk_after_a_second_and_not_brought_there_more_often() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    let second = Duration::from_secs(1);
    let mut appended = Vec::new();
    for pause in [0, 1, 100, 300, 700, 50, 5000, 20, 20, 990, 1000, 1, 2500] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        recording.append(b"[1]\n").await.unwrap();
        appended.push(Instant::now());
    }
    tokio::time::sleep(2 * second).await;
    let synced = recording.synced();
    for pair in synced.windows(2) {
        assert!(pair[1] - pair[0] >= second, "{pair:?}");
    }
    for line in appended {
        let next = synced.iter().find(|synced| **synced >= line);
        assert!(*next.unwrap() - line <= second, "{line:?}: {synced:?}");
    }
}
