//! Properties for any input: over a corpus of windows and instants, and over random texts.

use jiff::{SignedDuration, Timestamp};
use oz_rego::{Answer, Policy};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{answer, compile, count, limits, try_compile, window, window_input};

/// Returns instants with nanoseconds that fit into 64 bits, with some room for their neighbours.
fn instant() -> impl Strategy<Value = Timestamp> {
    (-4_000_000_000_000_000_000_i128..9_000_000_000_000_000_000)
        .prop_map(|nanosecond| Timestamp::from_nanosecond(nanosecond).unwrap())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_window_is_open_after_its_start_and_before_its_end(
        from in instant(), until in instant(), now in instant(), near in 0..5_usize, nudge in -1_i64..=1,
    ) {
        // A random instant is rarely at a border.
        let now = [now, from, until, from, until][near] + SignedDuration::from_nanos(nudge);
        let input = window_input(&from.to_string(), &until.to_string());
        let document = answer(&WINDOW, "controller", &input, now);
        let open = usize::from(from < now && now < until);
        prop_assert_eq!(document["children"].as_array().unwrap().len(), open);
    }

    #[test]
    fn a_preview_holds_between_its_changes(from in instant(), until in instant(), now in instant(), somewhere in instant()) {
        let input = window_input(&from.to_string(), &until.to_string());
        let preview = WINDOW.preview("controller", &input, &[from.min(until), from.max(until)], now, &limits(), count).unwrap();
        let at = somewhere.max(now);
        let said = preview.changes.iter().rfind(|change| change.at <= at);
        let said = said.map_or(&preview.now, |change| &change.answer);
        let asked = Answer::Document(answer(&WINDOW, "controller", &input, at));
        prop_assert_eq!(count(said), count(&asked));
    }

    #[test]
    fn identity_policy_returns_value_unchanged(value in any_json()) {
        let document = answer(&IDENTITY, "p.x", &json!({"value": value}), Timestamp::UNIX_EPOCH);
        prop_assert_eq!(document, value);
    }

    #[test]
    fn an_answer_is_the_same_each_time(value in any_json(), now in instant()) {
        let input = json!({"value": value});
        let [first, second] = [(); 2].map(|()| answer(&EVERYTHING, "p", &input, now).to_string());
        prop_assert_eq!(first, second);
    }

    #[test]
    fn no_text_makes_compiling_panic(text in "(package p\n)?[\\[\\]{}()a-z0-9_\"`#:=|,.;\\- \n]{0,60}") {
        let panicked = try_compile(&text).err().is_some_and(|errors| errors.to_string().contains("internal error"));
        prop_assert!(!panicked);
    }
}

static WINDOW: std::sync::LazyLock<Policy> = std::sync::LazyLock::new(window);
static IDENTITY: std::sync::LazyLock<Policy> =
    std::sync::LazyLock::new(|| compile("package p\nx := input.value"));
static EVERYTHING: std::sync::LazyLock<Policy> = std::sync::LazyLock::new(|| {
    compile(
        "package p\npaths contains [p, v] if walk(input.value, [p, v])\n\
         text := json.marshal(input.value)\nkinds := {[type_name(v), p] | walk(input.value, [p, v])}\n\
         now := time.now_ns()",
    )
});
