//! The end of a session, and what passes while it is held.

use super::*;

#[tokio::test]
async fn exit_status_and_close_of_the_api_server_reach_the_client() {
    for closed in [1000_u16, 1001, 1011, 4000] {
        let mut session = Session::open(on_a_terminal()).await;
        let status = [&[ERROR], br#"{"status":"Success"}"#.as_slice()].concat();
        let close = CloseFrame {
            code: closed.into(),
            reason: "done".into(),
        };
        session
            .pod
            .send(Message::binary(vec![STDOUT]))
            .await
            .unwrap();
        session
            .pod
            .send(Message::binary(status.clone()))
            .await
            .unwrap();
        session
            .pod
            .send(Message::Close(Some(close.clone())))
            .await
            .unwrap();
        let expected = [
            Message::binary(vec![STDOUT]),
            Message::binary(status),
            Message::Close(Some(close)),
        ];
        let told = tokio::spawn(rest(session.alice));
        // The pod receives the reply to its close; then it closes the connection.
        while let Some(Ok(_)) = session.pod.next().await {}
        drop(session.pod);
        assert_eq!(told.await.unwrap(), expected);
        let (why, carried) = session.relayed.await.unwrap();
        assert_eq!((why, carried.exit), (None, Some(0)));
    }
}

#[tokio::test]
async fn api_server_that_breaks_off_and_client_that_closes_end_the_session() {
    let session = Session::open(on_a_terminal()).await;
    drop(session.pod);
    let told = rest(session.alice).await;
    assert_eq!(code(&told), Some(1011), "{told:?}");
    assert_eq!(session.relayed.await.unwrap().0, None);

    let mut session = Session::open(on_a_terminal()).await;
    session
        .says(frame(0x88, &[0x03, 0xe9, b'b', b'y', b'e']))
        .await;
    let close = CloseFrame {
        code: CloseCode::Away,
        reason: "bye".into(),
    };
    assert_eq!(session.heard().await, Some(Message::Close(Some(close))));
    drop(session.pod);
    assert_eq!(session.relayed.await.unwrap().0, None);

    // Also without a close: the client has nothing more to send, and may receive output.
    let mut session = Session::open(on_a_terminal()).await;
    session.alice.shutdown().await.unwrap();
    assert_eq!(session.heard().await, Some(Message::Close(None)));
    drop(session.pod);
    assert_eq!(session.relayed.await.unwrap().0, None);
}

#[tokio::test]
async fn client_receives_reason_of_session_end_within_message() {
    let mut session = Session::open(on_a_terminal()).await;
    // Half of a message in each direction.
    session.says(&frame(0x82, b"\0half")[..8]).await;
    session
        .pod
        .get_mut()
        .write_all(&[0x82, 9, STDOUT, b'h'])
        .await
        .unwrap();
    session.end.send(over()).unwrap();
    assert_eq!(session.relayed.await.unwrap().0, Some(over()));
    let told = rest(session.alice).await;
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(text(&told[0]), "\u{1}\r\noz: it is over\r\n");
    assert!(text(&told[1]).contains(r#""message":"oz: it is over""#));
    assert_eq!(code(&told), Some(1000));
    let heard: Vec<_> = session.pod.collect().await;
    assert!(heard.iter().all(Result::is_err), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn while_it_is_held_nothing_passes_but_what_oz_says_and_nothing_is_lost() {
    let mut session = Session::open(on_a_terminal()).await;
    // Both directions wait for data to read when the session is held.
    tokio::task::yield_now().await;
    session.traffic.hold(true);
    session.traffic.tell("held".to_owned());
    session
        .pod
        .send(Message::binary(&b"\x01out"[..]))
        .await
        .unwrap();
    session.says(frame(0x82, b"\0in")).await;
    let mut alice = WebSocketStream::from_raw_socket(session.alice, Role::Client, None).await;
    let told = alice.next().await.unwrap().unwrap();
    assert_eq!(text(&told), "\u{1}\r\noz: held\r\n");
    session.traffic.alive();
    let alive = alice.next().await.unwrap().unwrap();
    assert_eq!(alive, Message::Pong(Bytes::new()));
    let second = Duration::from_secs(1);
    assert!(
        timeout(second, alice.next()).await.is_err(),
        "something passed out"
    );
    assert!(
        timeout(second, session.pod.next()).await.is_err(),
        "something passed in"
    );
    assert_eq!(session.traffic.bytes(), (0, 0));
    session.traffic.hold(false);
    assert_eq!(text(&alice.next().await.unwrap().unwrap()), "\u{1}out");
    assert_eq!(text(&session.pod.next().await.unwrap().unwrap()), "\0in");
}

#[tokio::test(start_paused = true)]
async fn while_its_user_has_no_room_to_record_nothing_passes_and_nothing_is_lost() {
    const SHARE: usize = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (spool, _storage, recorder, key) = place(directory.path(), 8 * SHARE as u64).await;
    let writer = Tape::begin(recorder, spool.begin(key, "alice"), false)
        .await
        .unwrap();
    let tape = Some(Arc::clone(writer.tape()));
    let mut session = Session::recorded(on_a_terminal(), 1 << 20, tape).await;
    tokio::task::yield_now().await;
    let share = spool.share("alice");
    share.expects(SHARE);
    let out = Message::binary(&b"\x01out"[..]);
    session.pod.send(out.clone()).await.unwrap();
    session.says(frame(0x82, b"\0in")).await;
    let mut alice = WebSocketStream::from_raw_socket(session.alice, Role::Client, None).await;
    let second = Duration::from_secs(1);
    assert!(timeout(second, alice.next()).await.is_err());
    assert!(timeout(second, session.pod.next()).await.is_err());
    assert_eq!(session.traffic.bytes(), (0, 0));
    session.traffic.tell("slowed".to_owned());
    let told = alice.next().await.unwrap().unwrap();
    assert_eq!(text(&told), "\u{1}\r\noz: slowed\r\n");
    share.came(SHARE);
    assert_eq!(text(&alice.next().await.unwrap().unwrap()), "\u{1}out");
    assert_eq!(text(&session.pod.next().await.unwrap().unwrap()), "\0in");
}

#[tokio::test(start_paused = true)]
async fn message_prolongs_a_session_and_a_ping_does_not() {
    let minute = Duration::from_secs(60);
    let mut session = Session::open(on_a_terminal()).await;
    for round in 0..6 {
        tokio::time::advance(minute / 2).await;
        if round % 2 == 0 {
            session.says(frame(0x82, b"\0l")).await;
            session.heard().await.unwrap();
        } else {
            session
                .pod
                .send(Message::binary(&b"\x01$"[..]))
                .await
                .unwrap();
            session.alice.read_exact(&mut [0; 4]).await.unwrap();
        }
        let over = timeout(minute / 4, session.idle.over()).await;
        assert!(over.is_err(), "it ended in round {round}");
    }
    let used = tokio::time::Instant::now();
    let idle = Arc::clone(&session.idle);
    let pings = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            session.says(frame(0x89, b"")).await;
            session.heard().await.unwrap();
            session.pod.send(Message::Ping(Bytes::new())).await.unwrap();
        }
    };
    tokio::select! {
        _ = idle.over() => {}
        () = pings => {}
    }
    assert!(used.elapsed() <= minute, "a ping prolonged it");
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_nothing_keeps_no_session_open() {
    let mut session = Session::with_buffers(on_a_terminal(), 16).await;
    let flood = tokio::spawn(async move {
        let message = || Message::binary(vec![STDOUT; 1024]);
        while session.pod.send(message()).await.is_ok() {}
    });
    session.end.send(over()).unwrap();
    let (why, _) = session.relayed.await.unwrap();
    assert_eq!(why, Some(over()));
    flood.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ping_that_came_while_a_session_was_held_is_answered_and_not_passed_on() {
    let mut session = Session::open(on_a_terminal()).await;
    session.traffic.hold(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.says(frame(0x89, b"held")).await;
    session.says(frame(0x82, b"\0in")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.traffic.hold(false);
    // The input that followed the ping is the first message that passes.
    let input = Message::binary(&b"\0in"[..]);
    assert_eq!(session.heard().await, Some(input));
    let mut pong = [0; 6];
    session.alice.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong, *b"\x8a\x04held");
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.says(frame(0x89, b"late")).await;
    let ping = Message::Ping("late".into());
    assert_eq!(session.heard().await, Some(ping));
}
