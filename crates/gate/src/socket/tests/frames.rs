//! The frames of a client, and the messages that reach the API server.

use super::*;

#[tokio::test]
async fn fragmented_message_is_joined_shown_and_sent_whole() {
    let mut session = Session::open(on_a_terminal()).await;
    let mut view = session.watch();
    session.says(frame(0x02, &[STDIN, b'r', b'm'])).await;
    session.says(frame(0x89, b"ping")).await;
    session.says(frame(0x00, b" -rf")).await;
    session.says(frame(0x80, b" /\r")).await;
    let ping = Message::Ping("ping".into());
    assert_eq!(session.heard().await, Some(ping), "it is passed on as well");
    let whole = Message::binary(&b"\0rm -rf /\r"[..]);
    assert_eq!(session.heard().await, Some(whole));
    assert_eq!(typed(&mut view), "rm -rf /\r");
    assert_eq!(session.traffic.bytes(), (10, 0));
    let mut pong = [0; 6];
    session.alice.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong, *b"\x8a\x04ping");
}

#[tokio::test]
async fn frame_that_is_none_closes_the_session_and_nothing_of_it_passes() {
    let long = (MAX_MESSAGE + 1) as u64;
    let unmasked = vec![0x82, 3, STDIN, b'i', b'd'];
    let mut frames = vec![
        ("unmasked", unmasked, 1002),
        ("a continuation of nothing", frame(0x80, b"\0id"), 1002),
        ("a ping in two frames", frame(0x09, b"\0id"), 1002),
        ("a ping that is too long", frame(0x89, &[0; 126]), 1002),
        ("text that is no UTF-8", frame(0x81, b"\0\xff"), 1002),
        ("a close of one byte", frame(0x88, &[3]), 1002),
        ("a length with its top bit", head(0x82, 1 << 63), 1009),
        ("a length of all bits", head(0x82, u64::MAX), 1009),
        ("a message that is too long", head(0x82, long), 1009),
        ("one that is no data and long", head(0x8b, 1 << 63), 1002),
    ];
    for opcode in (3..8).chain(11..16) {
        frames.push(("a reserved opcode", frame(0x80 | opcode, b"\0id"), 1002));
    }
    for bit in [0x40, 0x20, 0x10, 0x70] {
        frames.push(("a reserved bit", frame(0x82 | bit, b"\0id"), 1002));
    }
    for (what, bytes, expected) in frames {
        let mut session = Session::open(on_a_terminal()).await;
        let mut view = session.watch();
        session.says(frame(0x82, b"\0ls\r")).await;
        // Bytes after the invalid frame are not read.
        let behind = frame(0x82, b"\0rm\r");
        session.says([bytes, vec![0; 4], behind].concat()).await;
        let (why, carried) = session.relayed.await.unwrap();
        let reason = if expected == 1009 {
            TOO_LONG
        } else {
            MALFORMED
        };
        assert_eq!(why.map(|why| why.reason), Some(reason), "{what}");
        assert_eq!(carried.inward, 4, "{what}");
        let heard: Vec<_> = session.pod.collect().await;
        let heard: Vec<_> = heard.into_iter().filter_map(Result::ok).collect();
        assert_eq!(heard, [Message::binary(&b"\0ls\r"[..])], "{what}");
        assert_eq!(typed(&mut view), "ls\r", "{what}");
        let told = rest(session.alice).await;
        assert_eq!(code(&told), Some(expected), "{what}: {told:?}");
        assert!(text(&told[0]).contains("oz: the client sent"), "{what}");
    }
}

/// A message about the size of a terminal, as the gate writes it.
const SIZE: &[u8] = b"\x04{\"Width\":1,\"Height\":2}";

#[tokio::test]
async fn message_that_the_api_server_does_not_read_is_dropped_and_not_recorded() {
    let mut session = Session::open(on_a_terminal()).await;
    let mut view = session.watch();
    session.says(frame(0x82, b"\0ls\r")).await;
    for message in [&b"\x01forged\r"[..], b"\x07forged\r", b""] {
        session.says(frame(0x82, message)).await;
    }
    // A channel that the client has closed takes no more input.
    session.says(frame(0x82, b"\xff\0")).await;
    session.says(frame(0x82, b"\0forged\r")).await;
    for message in [
        &b"\x04{}"[..],
        b"\x04{\"Width\":1,\"Height\":2}{\"Width\":9,\"Height\":9}",
    ] {
        session.says(frame(0x82, message)).await;
    }
    session
        .says(frame(0x82, b"\x04{\"Height\": 2, \"Width\": 1}\n"))
        .await;
    for heard in [&b"\0ls\r"[..], b"\xff\0", SIZE] {
        assert_eq!(session.heard().await, Some(Message::binary(heard)));
    }
    assert_eq!(typed(&mut view), "ls\r");
    assert_eq!(session.traffic.bytes(), (4 + 2 + 23, 0));
    let without = spoken(Subprotocol::V4, "stdin=false&tty=true", "attach");
    let mut session = Session::open(without).await;
    let mut view = session.watch();
    session.says(frame(0x82, b"\0forged\r")).await;
    session.says(frame(0x82, SIZE)).await;
    assert_eq!(session.heard().await, Some(Message::binary(SIZE)));
    assert_eq!(typed(&mut view), "");
}

#[tokio::test]
async fn malformed_close_of_a_channel_ends_the_session() {
    for message in [&b"\xff"[..], b"\xff\x05", b"\xff\0\0"] {
        let mut session = Session::open(on_a_terminal()).await;
        session.says(frame(0x82, message)).await;
        session.says(frame(0x82, b"\0forged\r")).await;
        let (why, carried) = session.relayed.await.unwrap();
        assert_eq!(why.map(|why| why.reason), Some(MALFORMED), "{message:?}");
        assert_eq!(carried.inward, 0);
    }
}

#[tokio::test]
async fn forwarded_port_passes_as_bytes_without_messages_of_oz() {
    // The Python client has two channels for each port.
    let ports = spoken(Subprotocol::V4, "ports=80,81", "portforward");
    assert_eq!(ports.words, None);
    let mut session = Session::open(ports).await;
    for message in [&b"\0GET"[..], b"\x02GET", b"\xff\0"] {
        session.says(frame(0x82, message)).await;
        assert_eq!(session.heard().await, Some(Message::binary(message)));
    }
    let failed = Message::binary(&b"\x03{\"status\":\"Success\"}"[..]);
    session.pod.send(failed.clone()).await.unwrap();
    session.traffic.tell("for a terminal".to_owned());
    session.end.send(over()).unwrap();
    let (why, carried) = session.relayed.await.unwrap();
    assert_eq!((why, carried.exit), (Some(over()), None));
    let told = rest(session.alice).await;
    let data: Vec<_> = told.iter().filter(|one| one.is_binary()).collect();
    assert!(data.is_empty() || data == [&failed], "{told:?}");
    assert_eq!(code(&told), Some(1000));
}

#[tokio::test]
async fn message_that_is_too_long_in_its_parts_closes_the_session() {
    let mut session = Session::open(on_a_terminal()).await;
    let part = vec![0; 4 << 20];
    let mut first = 0x02;
    for _ in 0..=MAX_MESSAGE / part.len() {
        // The last frame may find the connection closed.
        let _ = session.alice.write_all(&frame(first, &part)).await;
        first = 0x00;
    }
    let (why, carried) = session.relayed.await.unwrap();
    assert_eq!(why.map(|why| why.reason), Some(TOO_LONG));
    assert_eq!(carried.inward, 0);
}

#[tokio::test]
async fn long_message_arrives_in_several_and_the_limit_is_met() {
    let mut session = Session::open(on_a_terminal()).await;
    let content: Vec<u8> = (0..=250).cycle().take(MAX_MESSAGE - 1).collect();
    let message = frame(0x82, &[&[STDIN], content.as_slice()].concat());
    let (mut alice, sent) = (session.alice, content.len());
    let writing = tokio::spawn(async move {
        alice.write_all(&message).await.unwrap();
        alice
    });
    let mut heard = Vec::with_capacity(sent);
    while heard.len() < sent {
        let message = session.pod.next().await.unwrap().unwrap().into_data();
        assert!(message.len() <= MAX_PIECE + 1);
        assert_eq!(message[0], STDIN);
        heard.extend_from_slice(&message[1..]);
    }
    assert!(heard == content);
    drop(writing.await.unwrap());
}

#[tokio::test]
async fn text_on_channels_arrives_as_bytes_and_base64_as_text() {
    let mut session = Session::open(on_a_terminal()).await;
    session.says(frame(0x81, "\0\u{e9}".as_bytes())).await;
    let bytes = Message::binary("\0\u{e9}".as_bytes().to_vec());
    assert_eq!(session.heard().await, Some(bytes));
    let spoken = Spoken {
        framing: Framing::new(Some(Subprotocol::V4Base64)),
        words: None,
    };
    let mut session = Session::open(spoken).await;
    session.says(frame(0x81, b"0bHMK")).await;
    assert_eq!(session.heard().await, Some(Message::text("0bHMK")));
    session.says(frame(0x82, b"0\xff")).await;
    let (why, _) = session.relayed.await.unwrap();
    assert_eq!(why.map(|why| why.reason), Some(MALFORMED));
    // The gate closes without a message on channels that the sub-protocol does not have.
    let told = rest(session.alice).await;
    assert_eq!((told.len(), code(&told)), (1, Some(1002)), "{told:?}");
}
