use futures::{FutureExt, StreamExt};
use serde_json::Value;

use super::*;
use crate::{functions::validate_fn, review::Review, rules::Rules, verdict::Notes};

fn hook(rules: &Rules) -> Hook {
    let handler = validate_fn(|_, _: &Review<Value>| Ok(Notes::none()));
    Hook::validating_on("guard", None, handler).rules_from(rules)
}

fn plural(plural: &str) -> ResourceRule {
    ResourceRule::new("example.com", "v1", plural)
}

#[test]
fn nothing_is_known_before_the_first_are_set_and_none_is_known_too() {
    let rules = Rules::default();
    let hook = hook(&rules);
    assert_eq!(
        RulesNow::from_hook(&hook),
        RulesNow::Unknown { too_many: false }
    );
    rules.set([]);
    assert_eq!(RulesNow::from_hook(&hook), RulesNow::Known(vec![]));
}

#[test]
fn they_have_one_order_and_stand_after_those_that_never_change() {
    let rules = Rules::default();
    let hook = hook(&rules).also(plural("zebras"));
    rules.set([plural("b"), plural("a"), plural("b")]);
    let known = RulesNow::Known(vec![plural("zebras"), plural("a"), plural("b")]);
    assert_eq!(RulesNow::from_hook(&hook), known);
}

#[test]
fn a_rule_that_no_api_server_takes_is_left_out_and_keeps_no_other_from_being_registered() {
    let rules = Rules::default();
    let hook = hook(&rules);
    let bad = [
        ResourceRule::new("Not A Group", "v1", "a"),
        ResourceRule::new("example.com", "", "a"),
        plural(""),
        plural("a/b"),
        plural("a").subresource("*").subresource("status"),
        plural("a").on([]),
    ];
    rules.set(bad.into_iter().chain([plural("good")]));
    assert_eq!(
        RulesNow::from_hook(&hook),
        RulesNow::Known(vec![plural("good")])
    );
    let handler = crate::mutate_fn(|_, _, _: &mut Value| Ok(Notes::none()));
    let mutating = Hook::mutating_on("change", None, handler).rules_from(&rules);
    rules.set([plural("a").on([Operation::Delete])]);
    assert_eq!(RulesNow::from_hook(&mutating), RulesNow::Known(vec![]));
}

#[test]
fn more_than_a_configuration_can_hold_change_nothing() {
    let rules = Rules::default();
    let hook = hook(&rules);
    rules.set((0..=MAX_RULES).map(|number| plural(&format!("kind-{number}"))));
    assert_eq!(
        RulesNow::from_hook(&hook),
        RulesNow::Unknown { too_many: true }
    );
}

#[tokio::test]
async fn rules_follower_is_notified_of_changed_rules_only() {
    let rules = Rules::default();
    let mut changes = Box::pin(rules.changes());
    assert!(changes.next().now_or_never().is_none());
    rules.set([plural("a"), plural("b")]);
    assert!(changes.next().now_or_never().is_some());
    rules.set([plural("b"), plural("a")]);
    assert!(changes.next().now_or_never().is_none());
    rules.set([]);
    assert!(changes.next().now_or_never().is_some());
}
