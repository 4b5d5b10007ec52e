//! The streams of frames that are compared.

use super::*;

fn how() -> impl Strategy<Value = How> {
    let protocol = prop_oneof![
        5 => Just(Subprotocol::V5),
        3 => Just(Subprotocol::V4),
        1 => Just(Subprotocol::V4Base64),
    ];
    (protocol, prop::bool::weighted(0.9)).prop_map(|(protocol, stdin)| How { protocol, stdin })
}

/// Returns messages of a client.
fn message(how: How) -> BoxedStrategy<Vec<u8>> {
    let on = |channel: u8, content: &[u8]| [&[channel], content].concat();
    if how.protocol == Subprotocol::V4Base64 {
        let channel = prop_oneof![6 => Just(b'0'), 1 => Just(b'4'), 1 => any::<u8>()];
        let encoded = prop::collection::vec(any::<u8>(), 0..9)
            .prop_map(|content| BASE64_STANDARD.encode(content).into_bytes());
        let content = prop_oneof![
            6 => encoded,
            1 => "[A-Za-z0-9+/= ]{0,9}".prop_map(String::into_bytes),
        ];
        let message = (channel, content).prop_map(move |(channel, content)| on(channel, &content));
        return message.boxed();
    }
    let text = "[a-z\u{e9}\u{20ac}]{0,8}".prop_map(move |text| on(STDIN, text.as_bytes()));
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    let long = prop_oneof![
        4 => 120_usize..132,
        1 => 65_530_usize..65_545,
        1 => 2 * MAX_PIECE - 2..2 * MAX_PIECE + 3,
    ];
    let long = long.prop_map(move |length| {
        let content: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
        on(STDIN, &content)
    });
    let size = (0_u16..300).prop_map(move |width| {
        on(
            RESIZE,
            format!(r#"{{"Width":{width},"Height":24}}"#).as_bytes(),
        )
    });
    let closes = prop_oneof![
        6 => (0_u8..6).prop_map(|channel| vec![CLOSE, channel]),
        1 => prop::collection::vec(any::<u8>(), 0..4).prop_map(move |rest| on(CLOSE, &rest)),
    ];
    prop_oneof![
        12 => text,
        3 => bytes.clone().prop_map(move |bytes| on(STDIN, &bytes)),
        1 => long,
        2 => size,
        2 => closes,
        1 => (any::<u8>(), bytes).prop_map(move |(channel, bytes)| on(channel, &bytes)),
        1 => Just(Vec::new()),
    ]
    .boxed()
}

fn control() -> impl Strategy<Value = Frame> {
    let first = prop_oneof![3 => Just(0x89_u8), 2 => Just(0x8a)];
    (first, "[a-z]{0,8}").prop_map(|(first, payload)| Frame::new(first, payload.into_bytes()))
}

/// Returns messages in several frames, with control frames between them.
fn in_parts(how: How) -> impl Strategy<Value = Vec<Frame>> {
    let cuts = prop::collection::vec((any::<prop::sample::Index>(), control()), 1..4);
    let first = prop_oneof![Just(1_u8), Just(2)];
    (first, message(how), cuts, any::<u8>()).prop_map(|(opcode, message, cuts, with_control)| {
        let mut at: Vec<usize> = cuts
            .iter()
            .map(|(cut, _)| cut.index(message.len() + 1))
            .collect();
        at.sort_unstable();
        let (mut frames, mut from) = (Vec::new(), 0);
        for (number, (to, (_, control))) in at.iter().zip(&cuts).enumerate() {
            let first = if number == 0 { opcode } else { 0 };
            frames.push(Frame::new(first, message[from..*to].to_vec()));
            if with_control & (1 << number) != 0 {
                frames.push(control.clone());
            }
            from = *to;
        }
        frames.push(Frame::new(0x80, message[from..].to_vec()));
        frames
    })
}

/// Returns frames that may be malformed: with an arbitrary head, a wrong length, or without a mask.
fn odd(how: How) -> impl Strategy<Value = Frame> {
    let first = prop_oneof![
        3 => any::<u8>(),
        2 => prop::sample::select(vec![0x00_u8, 0x01, 0x02, 0x08, 0x09, 0x80, 0x81, 0x82]),
        2 => prop::sample::select(vec![0x83_u8, 0x8b, 0xc2, 0xa2, 0x92, 0xc1, 0xc9]),
        2 => Just(0x88_u8),
    ];
    let length = prop_oneof![
        4 => Just(Length::Shortest),
        2 => Just(Length::TwoBytes),
        2 => Just(Length::EightBytes),
        1 => (0_u64..12).prop_map(Length::Another),
        1 => (0_u64..12).prop_map(|length| Length::Another(1 << 63 | length)),
        1 => any::<u64>().prop_map(Length::Another),
        1 => Just(Length::Another(MAX_MESSAGE as u64 + 1)),
    ];
    let mask = prop_oneof![8 => any::<[u8; 4]>().prop_map(Some), 1 => Just(None)];
    let payload = prop_oneof![
        4 => message(how),
        1 => Just(vec![0x03, 0xe8]),
        1 => "\\PC{0,4}".prop_map(|why| [&[0x03, 0xe8], why.as_bytes()].concat()),
        1 => Just(vec![b'x'; 126]),
    ];
    (first, length, mask, payload).prop_map(|(first, length, mask, payload)| Frame {
        first,
        length,
        mask,
        payload,
    })
}

pub(super) fn sent() -> impl Strategy<Value = Sent> {
    how().prop_flat_map(|how| {
        let whole = (
            prop_oneof![3 => Just(0x82_u8), 1 => Just(0x81)],
            message(how),
        );
        let whole = whole.prop_map(|(first, message)| vec![Frame::new(first, message)]);
        let some = prop_oneof![
            10 => whole,
            4 => in_parts(how),
            2 => control().prop_map(|frame| vec![frame]),
            2 => odd(how).prop_map(|frame| vec![frame]),
        ];
        let frames = prop::collection::vec(some, 1..8);
        let rest = prop_oneof![
            4 => Just(Vec::new()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
            // An incomplete frame.
            1 => (message(how), any::<prop::sample::Index>()).prop_map(|(message, at)| {
                let mut bytes = Frame::new(0x82, message).bytes();
                bytes.truncate(at.index(bytes.len()));
                bytes
            }),
        ];
        let piece = prop_oneof![3 => 1_usize..40, 1 => Just(usize::MAX)];
        (frames, rest, piece).prop_map(move |(frames, rest, piece)| Sent {
            how,
            frames: frames.concat(),
            rest,
            piece,
        })
    })
}
