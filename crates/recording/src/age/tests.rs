//! Tests that only the identities of the recipients decrypt a file, to the original content; and that only valid keys
//! are accepted. e2e/tests/gate/encrypted.rs compares with the published implementation.

use proptest::prelude::*;

use super::header::{self, Stanza};
use super::*;

/// The identity of the specification.
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const SECRETS: usize = 58;

fn identity() -> Identity {
    Identity::generate().unwrap().0
}

#[test]
fn keys_are_those_of_the_specification() {
    let identity: Identity = IDENTITY.parse().unwrap();
    assert_eq!(identity.recipient().to_string(), RECIPIENT);
    assert_eq!(RECIPIENT.parse(), Ok(identity.recipient()));
    let (generated, line) = Identity::generate().unwrap();
    let read: Identity = line.parse().unwrap();
    assert_eq!(read.recipient(), generated.recipient());
    assert_eq!(line.len(), "AGE-SECRET-KEY-1".len() + SECRETS);
    // The debug output of an identity does not contain the secret.
    assert!(!format!("{identity:?}").contains(&IDENTITY[16..]));
}

/// Returns the Bech32 of these bytes.
fn bech32(prefix: &str, bytes: &[u8]) -> String {
    bech32::encode_lower::<bech32::Bech32>(bech32::Hrp::parse(prefix).unwrap(), bytes).unwrap()
}

#[test]
fn invalid_recipient_is_rejected_with_cause() {
    let point = [9; 32];
    let kind = |kind: &str| KeyError::Kind(kind.to_owned());
    let bech32m =
        bech32::encode_lower::<bech32::Bech32m>(bech32::Hrp::parse("age").unwrap(), &point);
    let mut low_order = [0; 32];
    low_order[0] = 1;
    // The same bytes, but with padding bits of the last letter set: q is 0, p is 1, and the last 6 letters are the
    // checksum.
    let filled = {
        use bech32::primitives::iter::{ByteIterExt as _, Fe32IterExt as _};
        let hrp = bech32::Hrp::parse("age").unwrap();
        let mut letters: Vec<bech32::Fe32> = point.iter().copied().bytes_to_fes().collect();
        let last = letters.pop().unwrap();
        letters.push(bech32::Fe32::try_from(last.to_u8() | 1).unwrap());
        let encoded = letters.into_iter().with_checksum::<bech32::Bech32>(&hrp);
        encoded.chars().collect::<String>()
    };
    let cases = [
        (String::new(), KeyError::Foreign("age1")),
        ("age".to_owned(), KeyError::Foreign("age1")),
        ("age1".to_owned(), KeyError::Mistyped),
        (RECIPIENT[..61].to_owned(), KeyError::Mistyped),
        (format!("{RECIPIENT}q"), KeyError::Mistyped),
        (format!(" {RECIPIENT}"), KeyError::Foreign("age1")),
        (format!("{RECIPIENT}\n"), KeyError::Mistyped),
        (RECIPIENT.replace("zvk", "zvl"), KeyError::Mistyped),
        (RECIPIENT.replace("zvk", "ZVK"), KeyError::Mistyped),
        (RECIPIENT.replace("zvk", "zbk"), KeyError::Mistyped),
        (RECIPIENT.replace("zvk", "z\u{e9}k"), KeyError::Mistyped),
        (RECIPIENT.to_uppercase(), KeyError::Case),
        (RECIPIENT.replace("age1", "Age1"), KeyError::Case),
        (bech32("age", &point[..31]), KeyError::Mistyped),
        (bech32("age", &[9; 33]), KeyError::Mistyped),
        (bech32("age", &[]), KeyError::Mistyped),
        (bech32m.unwrap(), KeyError::Mistyped),
        (filled, KeyError::Mistyped),
        (bech32("age", &[0; 32]), KeyError::Weak),
        (bech32("age", &low_order), KeyError::Weak),
        (bech32("bc", &point), KeyError::Foreign("age1")),
        (bech32("agent", &point), KeyError::Foreign("age1")),
        (bech32("age1yubikey", &point), kind("age1yubikey")),
        (format!("age1pq1{}", "q".repeat(100_000)), kind("age1pq")),
        (
            format!("age1{}1q", "x".repeat(100_000)),
            kind(&format!("age1{}", "x".repeat(20))),
        ),
        (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5".to_owned(),
            kind("ssh-ed25519"),
        ),
        (IDENTITY.to_owned(), KeyError::Secret),
        (IDENTITY.to_lowercase(), KeyError::Secret),
        (IDENTITY[..40].to_owned(), KeyError::Secret),
        (
            "-----BEGIN PUBLIC KEY-----".to_owned(),
            KeyError::Foreign("age1"),
        ),
    ];
    for (text, expected) in cases {
        let shown: String = text.chars().take(80).collect();
        assert_eq!(text.parse::<Recipient>(), Err(expected), "{shown}");
    }
}

#[test]
fn invalid_identity_is_rejected_and_not_repeated() {
    let cases = [
        ("", KeyError::Foreign("AGE-SECRET-KEY-1")),
        ("hello", KeyError::Foreign("AGE-SECRET-KEY-1")),
        (RECIPIENT, KeyError::Public),
        ("age1pq1qqqq", KeyError::Public),
        (&IDENTITY[..70], KeyError::Mistyped),
        (&IDENTITY.replace("GFPYY", "GFPYX"), KeyError::Mistyped),
        (&IDENTITY.replace("GFPYY", "gfpyy"), KeyError::Mistyped),
        (&IDENTITY.to_lowercase(), KeyError::Case),
        (
            &bech32("age-secret-key-", &[1; 31]).to_uppercase(),
            KeyError::Mistyped,
        ),
        (
            "AGE-SECRET-KEY-PQ-1QQQQ",
            KeyError::Kind("AGE-SECRET-KEY-PQ-".to_owned()),
        ),
        (
            "AGE-PLUGIN-YUBIKEY-1QQQQ",
            KeyError::Kind("AGE-PLUGIN-YUBIKEY-".to_owned()),
        ),
    ];
    for (text, expected) in cases {
        let why = text.parse::<Identity>().unwrap_err();
        assert_eq!(why, expected, "{text}");
        assert!(!why.to_string().contains("GFPY"), "{why}");
    }
}

#[test]
fn files_of_identities_are_as_age_writes_them() {
    let (_, other) = Identity::generate().unwrap();
    let text = format!(
        "# created: today\n# public key: {RECIPIENT}\n{IDENTITY}\r\n\n  {}  \n",
        &*other
    );
    let read = read_identities(&text).unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].recipient().to_string(), RECIPIENT);
    let many = format!("{IDENTITY}\n").repeat(65);
    let long = format!("#{}\n{IDENTITY}", " ".repeat(64 << 10));
    let line = |line, why| IdentityFileError::Line { line, why };
    for (text, expected) in [
        ("", IdentityFileError::Empty),
        ("# nothing\n\n", IdentityFileError::Empty),
        (
            "age-encryption.org/v1\n-> X25519",
            IdentityFileError::Encrypted,
        ),
        (
            "-----BEGIN AGE ENCRYPTED FILE-----\n",
            IdentityFileError::Encrypted,
        ),
        (&many, IdentityFileError::TooLarge),
        (&long, IdentityFileError::TooLarge),
        (
            &format!("{IDENTITY}\n{RECIPIENT}\n"),
            line(2, KeyError::Public),
        ),
        (&format!("#\n\n{IDENTITY}x"), line(3, KeyError::Mistyped)),
    ] {
        assert_eq!(read_identities(text).unwrap_err(), expected);
    }
}

#[test]
fn file_is_decrypted_by_its_recipients_only() {
    let identities: Vec<Identity> = (0..MAX_RECIPIENTS).map(|_| identity()).collect();
    let recipients: Vec<Recipient> = identities.iter().map(Identity::recipient).collect();
    let stranger = [identity()];
    for length in [
        0,
        1,
        17,
        (64 << 10) - 1,
        64 << 10,
        (64 << 10) + 1,
        128 << 10,
        200_000,
    ] {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let file = encrypt(&recipients, &content).unwrap();
        assert_ne!(
            file,
            encrypt(&recipients, &content).unwrap(),
            "each is another"
        );
        for identity in identities.chunks(1).chain([identities.as_slice()]) {
            assert_eq!(decrypt(&file, identity).unwrap(), content, "{length}");
        }
        assert_eq!(decrypt(&file, &stranger), Err(AgeError::NoMatch));
        assert_eq!(decrypt(&file, &[]), Err(AgeError::NoMatch));
        assert_eq!(named_recipients(&file).unwrap(), recipients);
    }
    assert_eq!(encrypt(&[], b"text"), Err(CryptoError));
}

#[test]
fn flipped_bit_or_truncated_byte_is_detected() {
    let one = [identity()];
    let file = encrypt(&[one[0].recipient()], b"what was seen").unwrap();
    for at in 0..file.len() * 8 {
        let mut changed = file.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(decrypt(&changed, &one).is_err(), "bit {at}");
    }
    for length in 0..file.len() {
        assert!(decrypt(&file[..length], &one).is_err(), "{length} bytes");
    }
    let longer = [file.as_slice(), &[0]].concat();
    assert!(decrypt(&longer, &one).is_err());
}

#[test]
fn chunks_are_neither_exchanged_nor_left_out_nor_added() {
    const SEALED: usize = (64 << 10) + 16;
    let one = [identity()];
    let content: Vec<u8> = (0..3 * (64 << 10) + 5)
        .map(|at| (at / 1000) as u8)
        .collect();
    let file = encrypt(&[one[0].recipient()], &content).unwrap();
    let start = file.len() - (3 * SEALED + 5 + 16);
    let (begin, chunks) = file.split_at(start);
    let chunk = |number: usize| &chunks[number * SEALED..chunks.len().min((number + 1) * SEALED)];
    let of = |order: &[usize]| {
        let all: Vec<&[u8]> = [begin]
            .into_iter()
            .chain(order.iter().map(|one| chunk(*one)))
            .collect();
        decrypt(&all.concat(), &one)
    };
    assert_eq!(of(&[0, 1, 2, 3]).unwrap(), content);
    for order in [
        &[1, 0, 2, 3][..],
        &[0, 1, 2],
        &[0, 1, 3],
        &[0, 1, 2, 3, 3],
        &[0, 0, 1, 2, 3],
        &[3],
        &[],
    ] {
        assert!(matches!(of(order), Err(AgeError::Payload(_))), "{order:?}");
    }
}

/// Returns a file with these stanzas before the one for `identity`, as any holder of the file key may write it.
fn with(stanzas: &[(&str, &[u8])], identity: &Identity) -> Vec<u8> {
    let file_key = [7; FILE_KEY];
    let mut all: Vec<Stanza> = stanzas
        .iter()
        .map(|(arguments, body)| Stanza {
            arguments: arguments.split(' ').map(str::to_owned).collect(),
            body: body.to_vec(),
        })
        .collect();
    all.push(keys::wrap(&identity.recipient(), &file_key).unwrap());
    let mut file = header::write(&all, &file_key).unwrap();
    payload::seal(&file_key, b"text", &mut file).unwrap();
    file
}

#[test]
fn recipients_of_other_kinds_are_passed_over_and_malformed_ones_refused() {
    let one = identity();
    let share = header::encode(&[9; 32]);
    let short = header::encode(&[9; 31]);
    let weak = header::encode(&[0; 32]);
    let x25519 = |rest: &str| format!("X25519 {rest}");
    let cases: Vec<(String, Vec<u8>, bool)> = vec![
        ("grease a b c".to_owned(), vec![1; 100], true),
        ("ssh-ed25519 abcd ef".to_owned(), vec![1; 48], true),
        ("x25519".to_owned(), vec![], true),
        (NAMED.to_owned(), vec![], true),
        (format!("{NAMED} no-key"), vec![], true),
        ("scrypt salt 18".to_owned(), vec![1; 32], false),
        (x25519(&share), vec![1; 32], true),
        (x25519(&share), vec![1; 31], false),
        (x25519(&share), vec![1; 33], false),
        (x25519(&format!("{share} more")), vec![1; 32], false),
        ("X25519".to_owned(), vec![1; 32], false),
        (x25519(&short), vec![1; 32], false),
        (x25519(&format!("{share}=")), vec![1; 32], false),
        (x25519(&weak), vec![1; 32], false),
        // The same bytes in an encoding that no tool writes.
        (x25519(&format!("{}l", &share[..42])), vec![1; 32], false),
    ];
    for (arguments, body, taken) in cases {
        let file = with(&[(&arguments, &body)], &one);
        let decrypted = decrypt(&file, std::slice::from_ref(&one));
        match taken {
            true => assert_eq!(decrypted.as_deref(), Ok(b"text".as_slice()), "{arguments}"),
            false => assert!(
                matches!(decrypted, Err(AgeError::Malformed(_))),
                "{arguments}: {decrypted:?}"
            ),
        }
    }
    // Bodies of whole lines end with an empty line.
    for length in [47, 48, 49, 95, 96, 97] {
        assert!(
            decrypt(
                &with(&[("other", &vec![1; length])], &one),
                std::slice::from_ref(&one)
            )
            .is_ok()
        );
    }
}

#[test]
fn malformed_headers_are_refused() {
    let one = identity();
    let file = with(&[("other", &[1; 60])], &one);
    let end = file.windows(4).position(|four| four == b"\n---").unwrap();
    let edits: [(&str, &str, &str); 12] = [
        ("another version", "org/v1\n", "org/v2\n"),
        ("a carriage return", "org/v1\n", "org/v1\r\n"),
        ("one in a stanza", "-> other\n", "-> other\r\n"),
        ("no argument", "-> other\n", "-> \n"),
        ("two spaces", "-> other\n", "->  other\n"),
        ("a space at the end", "-> other\n", "-> other \n"),
        ("no space", "-> other\n", "->other\n"),
        (
            "a letter of another alphabet",
            "-> other\n",
            "-> oth\u{e9}r\n",
        ),
        ("no body", "-> other\n", "-> other\n-> other\n"),
        ("an end without a MAC", "\n--- ", "\n---\n"),
        ("two spaces before the MAC", "\n--- ", "\n---  "),
        ("a blank line", "\n--- ", "\n\n--- "),
    ];
    for (what, from, to) in edits {
        let at = file
            .windows(from.len())
            .position(|part| part == from.as_bytes())
            .unwrap();
        let edited = [&file[..at], to.as_bytes(), &file[at + from.len()..]].concat();
        assert!(
            matches!(
                decrypt(&edited, std::slice::from_ref(&one)),
                Err(AgeError::Malformed(_))
            ),
            "{what}"
        );
    }
    let long = [&file[..end], b"\n-> ", &vec![b'a'; 64 << 10], &file[end..]].concat();
    assert_eq!(
        header::read(&long).unwrap_err(),
        AgeError::Malformed("its header has over 64 KiB")
    );
    for nothing in [&b""[..], MAGIC, b"age-encryption.org/v1\n--- AAAA\n"] {
        assert!(header::read(nothing).is_err());
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rejected_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let one = [IDENTITY.parse().unwrap()];
        let file = [MAGIC, &bytes].concat();
        prop_assert!(decrypt(&file, &one).is_err());
        prop_assert!(named_recipients(&bytes).is_err());
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(text.parse::<Recipient>().is_err());
        prop_assert!(text.parse::<Identity>().is_err());
    }
}
