use proptest::prelude::*;
use serde::Deserialize;
use strum::IntoEnumIterator as _;

use super::*;

const STAMP: Purpose = Purpose::Stamp;
const WEBHOOK: Owner = Owner::Webhook;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Statement {
    zebra: u8,
    ant: String,
}

fn statement() -> Statement {
    Statement {
        zebra: 7,
        ant: "x".into(),
    }
}

fn keys(seed: u8) -> Keys {
    Keys::new(WEBHOOK, &[[seed; 32]]).unwrap()
}

fn sealed() -> String {
    seal(&keys(1), STAMP, &statement()).unwrap()
}

/// Returns the keys of a process that has only public keys.
fn verifier(seeds: &[u8]) -> Keys {
    let secrets: Vec<_> = seeds.iter().map(|seed| [*seed; 32]).collect();
    let keys = Keys::default();
    assert_eq!(keys.trust(WEBHOOK, &Keys::published(&secrets)), Ok(true));
    keys
}

/// Returns a seal that the holder of another private key forges for a purpose of another owner.
fn forged(owner: Owner, secret: [u8; 32], purpose: Purpose) -> String {
    let theirs = Purpose::iter().find(|purpose| purpose.owner() == owner);
    let keys = Keys::new(owner, &[secret]).unwrap();
    let Ok(Value::Object(mut object)) = serde_json::to_value(statement()) else {
        panic!("no object");
    };
    let message = message(purpose, &object).unwrap();
    let (key, signature) = keys.sign(theirs.unwrap(), &message).unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.encode(signature.to_bytes());
    object.insert(SIGNATURE.into(), format!("{key}:{signature}").into());
    Value::Object(object).to_string()
}

#[test]
fn sealed_statement_opens_with_the_public_key_and_the_same_purpose() {
    for keys in [keys(1), verifier(&[1]), verifier(&[2, 1])] {
        assert_eq!(open(&keys, STAMP, &sealed()), Ok(statement()));
    }
}

#[test]
fn each_purpose_is_sealed_and_opened_by_the_keys_of_its_owner_alone() {
    let secret = |owner| Keys::of_owner(owner, [5; 32]);
    let published = |owner| Keys::published(&[secret(owner)]);
    let everybody = Keys::default();
    for owner in Owner::iter() {
        everybody.trust(owner, &published(owner)).unwrap();
    }
    for purpose in Purpose::iter() {
        for owner in Owner::iter() {
            let holder = Keys::new(owner, &[secret(owner)]).unwrap();
            let sealed = seal(&holder, purpose, &statement());
            let forged = forged(owner, secret(owner), purpose);
            if owner == purpose.owner() {
                assert_eq!(open(&everybody, purpose, &sealed.unwrap()), Ok(statement()));
                assert_eq!(open(&everybody, purpose, &forged), Ok(statement()));
                continue;
            }
            assert_eq!(sealed, Err(SealError::NotHeld(purpose.owner())));
            let opened = open::<Statement>(&everybody, purpose, &forged);
            assert_eq!(opened, Err(SealError::Forged), "{purpose:?} by {owner}");
            // It does not open either where no key of the purpose is known, or for its holder.
            let opened = open::<Statement>(&holder, purpose, &forged);
            assert_eq!(opened, Err(SealError::NoKeys(purpose.owner())));
            assert!(!is_by_newest(&everybody, purpose, &forged));
        }
        // A statement is for one purpose.
        let all = Keys::with_every_owner([[5; 32]]);
        let text = seal(&all, purpose, &statement()).unwrap();
        for other in Purpose::iter().filter(|other| *other != purpose) {
            let opened = open::<Statement>(&all, other, &text);
            assert_eq!(opened, Err(SealError::Forged), "{purpose:?} as {other:?}");
        }
    }
}

#[test]
fn purposes_have_distinct_names() {
    let names: std::collections::BTreeSet<_> = Purpose::iter().map(Purpose::name).collect();
    assert_eq!(names.len(), Purpose::iter().count());
}

#[test]
fn public_keys_do_not_replace_owned_private_key() {
    let keys = keys(1);
    assert_eq!(keys.trust(WEBHOOK, &Keys::published(&[[2; 32]])), Ok(false));
    assert!(open::<Statement>(&keys, STAMP, &sealed()).is_ok());
    let theirs = seal(&super::tests::keys(2), STAMP, &statement()).unwrap();
    assert_eq!(
        open::<Statement>(&keys, STAMP, &theirs),
        Err(SealError::Forged)
    );
}

#[test]
fn another_key_does_not_open() {
    for keys in [keys(2), verifier(&[2, 3])] {
        assert_eq!(
            open::<Statement>(&keys, STAMP, &sealed()),
            Err(SealError::Forged)
        );
    }
    assert_eq!(
        open::<Statement>(&Keys::default(), STAMP, &sealed()),
        Err(SealError::NoKeys(WEBHOOK))
    );
    assert!(SealError::NoKeys(WEBHOOK).may_pass() && !SealError::Forged.may_pass());
}

#[test]
fn every_changed_byte_is_refused() {
    let text = sealed();
    let keys = verifier(&[1]);
    // The accepted text is cached, and no other text.
    assert!(open::<Statement>(&keys, STAMP, &text).is_ok());
    for at in 0..text.len() {
        for byte in b"A0z\"{}:, 9" {
            let mut bytes = text.clone().into_bytes();
            if bytes[at] == *byte {
                continue;
            }
            bytes[at] = *byte;
            let changed = String::from_utf8(bytes).unwrap();
            let opened = open::<Statement>(&keys, STAMP, &changed);
            assert!(opened.is_err(), "{changed}");
        }
    }
    let added = text.replacen(",\"sig\"", ",\"extra\":1,\"sig\"", 1);
    assert!(added.len() > text.len());
    assert_eq!(
        open::<Statement>(&keys, STAMP, &added),
        Err(SealError::Forged)
    );
}

#[test]
fn same_statement_in_another_text_is_refused() {
    let text = sealed();
    let keys = verifier(&[1]);
    for other in [
        format!("{text} "),
        format!(" {text}"),
        text.replacen(':', ": ", 1),
        text.replacen("\"ant\":\"x\"", "\"ant\":\"\\u0078\"", 1),
        text.replacen('{', "{\"zebra\":1,", 1),
    ] {
        assert_ne!(other, text);
        let opened = open::<Statement>(&keys, STAMP, &other);
        assert!(matches!(opened, Err(SealError::Malformed(_))), "{other}");
    }
    assert_eq!(open(&keys, STAMP, &text), Ok(statement()));
}

proptest! {
    #[test]
    fn text_with_a_changed_character_is_refused(at in 0_usize..200, character in any::<char>()) {
        let text = sealed();
        let at = at % text.len();
        let mut changed: Vec<char> = text.chars().collect();
        changed[at] = character;
        let changed: String = changed.into_iter().collect();
        prop_assume!(changed != text);
        prop_assert!(open::<Statement>(&keys(1), STAMP, &changed).is_err());
    }

    #[test]
    fn statement_opens_as_it_was_sealed(zebra in any::<u8>(), ant in any::<String>()) {
        let said = Statement { zebra, ant };
        let text = seal(&keys(1), STAMP, &said).unwrap();
        prop_assert_eq!(open::<Statement>(&verifier(&[1]), STAMP, &text), Ok(said));
    }
}

#[test]
fn seal_of_earlier_release_is_retired() {
    for text in [
        r#"{"ant":"x","mac":"q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA","zebra":7}"#,
        r#"{"ant":"x","mac":"","zebra":7}"#,
    ] {
        assert_eq!(
            open::<Statement>(&keys(1), STAMP, text),
            Err(SealError::Retired)
        );
        assert!(is_retired(text));
        assert!(!SealError::Retired.may_pass());
    }
    for text in ["", "{}", r#"{"mac":1}"#, &sealed()] {
        assert!(!is_retired(text), "{text}");
    }
    // A text that has both is judged by its signature.
    let both = sealed().replacen(",\"sig\"", ",\"mac\":\"x\",\"sig\"", 1);
    assert!(!is_retired(&both));
    assert_eq!(
        open::<Statement>(&keys(1), STAMP, &both),
        Err(SealError::Forged)
    );
}

#[test]
fn a_replaced_key_still_opens_what_it_sealed() {
    let both = Keys::new(WEBHOOK, &[[2; 32], [1; 32]]).unwrap();
    assert!(open::<Statement>(&both, STAMP, &sealed()).is_ok());
    assert!(!is_by_newest(&both, STAMP, &sealed()));
    assert!(is_by_newest(&keys(1), STAMP, &sealed()));
    assert!(is_by_newest(&verifier(&[1, 2]), STAMP, &sealed()));
    assert!(!is_by_newest(&verifier(&[2, 1]), STAMP, &sealed()));
}

#[test]
fn new_key_opens_at_once_and_seals_after_all_know_it() {
    let (old, new, other) = ([1; 32], [2; 32], [3; 32]);
    let ours = keys(1);
    let theirs = ours.clone();
    let sealed_by = |keys: &Keys| {
        let text = seal(keys, STAMP, &statement()).unwrap();
        [1, 2, 3].map(|seed| open::<Statement>(&super::tests::keys(seed), STAMP, &text).is_ok())
    };
    let adopt = |secrets: &[[u8; 32]]| ours.adopt(WEBHOOK, secrets);
    let id = ours.newest(WEBHOOK);
    assert_eq!(adopt(&[old]), Ok(Turn::None));
    assert_eq!(adopt(&[new, old]), Ok(Turn::Begun));
    assert_eq!(sealed_by(&theirs), [true, false, false]);
    assert_eq!(ours.newest(WEBHOOK), id);
    assert_eq!(adopt(&[new, old]), Ok(Turn::Begun));
    let by_new = seal(&keys(2), STAMP, &statement()).unwrap();
    assert!(open::<Statement>(&theirs, STAMP, &by_new).is_ok());
    assert!(theirs.settle(WEBHOOK) && !ours.settle(WEBHOOK));
    assert_eq!(sealed_by(&ours), [false, true, false]);
    assert_ne!(ours.newest(WEBHOOK), id);
    // After the overlap, seals of the old key are invalid, also where they were accepted before.
    assert!(open::<Statement>(&ours, STAMP, &sealed()).is_ok());
    assert_eq!(adopt(&[new]), Ok(Turn::Over));
    assert_eq!(
        open::<Statement>(&ours, STAMP, &sealed()),
        Err(SealError::Forged)
    );
    // A key that is replaced without an overlap is used at once.
    assert_eq!(adopt(&[other]), Ok(Turn::AtOnce));
    assert_eq!(sealed_by(&theirs), [false, false, true]);
    assert_eq!(adopt(&[]), Err(SealError::NoSecret(WEBHOOK)));
    assert_eq!(sealed_by(&theirs), [false, false, true]);
}

#[test]
fn public_keys_that_cannot_be_read_leave_those_before() {
    let keys = verifier(&[1]);
    let good = Keys::published(&[[2; 32]]);
    // The neutral element, under which one signature is valid for every text.
    let weak = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for text in ["", "\n", "x", &format!("{good}\nx"), &good[1..], weak] {
        let refused = keys.trust(WEBHOOK, text);
        assert_eq!(refused, Err(SealError::PublicKeys(WEBHOOK)), "{text}");
        assert!(open::<Statement>(&keys, STAMP, &sealed()).is_ok());
    }
    let both = Keys::published(&[[2; 32], [1; 32]]);
    assert_eq!(keys.trust(WEBHOOK, &both), Ok(true));
    assert_eq!(keys.trust(WEBHOOK, &format!("{both}\n")), Ok(false));
    assert!(open::<Statement>(&keys, STAMP, &sealed()).is_ok());
    assert_eq!(keys.trust(WEBHOOK, &good), Ok(true));
    assert!(open::<Statement>(&keys, STAMP, &sealed()).is_err());
}

#[test]
fn nonsense_is_malformed() {
    let text = |signature: &str| format!("{{\"ant\":\"x\",\"sig\":\"{signature}\",\"zebra\":7}}");
    let mut texts = ["", "null", "[]", "{}", "{\"sig\":1}", "{\"mac\":1}"]
        .map(ToOwned::to_owned)
        .to_vec();
    texts.extend(["", "!", "a:!", "a:AAAA"].map(text));
    for text in texts {
        let result = open::<Statement>(&keys(1), STAMP, &text);
        assert!(
            matches!(result, Err(SealError::Malformed(_))),
            "{text}: {result:?}"
        );
    }
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_LENGTH));
    assert_eq!(
        open::<Statement>(&keys(1), STAMP, &long),
        Err(SealError::TooLong)
    );
    assert!(Keys::new(WEBHOOK, &[]).is_err());
}

#[test]
fn decision_that_could_not_be_opened_is_not_sealed() {
    let of_length = |length: usize| Statement {
        ant: "x".repeat(length),
        ..statement()
    };
    let rest = sealed().len() - statement().ant.len();
    let longest = of_length(MAX_LENGTH - rest);
    let text = seal_decision(&keys(1), STAMP, &longest).unwrap();
    assert_eq!(open(&keys(1), STAMP, &text), Ok(longest));
    let longer = seal_decision(&keys(1), STAMP, &of_length(MAX_LENGTH - rest + 1));
    assert_eq!(longer, Err(SealError::TooLong));
}

#[test]
fn sealed_members_are_sorted_so_that_the_signed_bytes_are_canonical() {
    assert!(sealed().starts_with("{\"ant\":\"x\",\"sig\":"));
}

#[test]
fn debug_output_of_keys_contains_no_secret() {
    let printed = format!("{:?}", keys(1));
    assert_eq!(printed, "Keys { signers: [Webhook], verifiers: [] }");
}
