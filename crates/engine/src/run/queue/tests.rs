//! The guarantees of the queue.

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::constant(seconds, 0)
}

fn started(slots: usize) -> Queue {
    let mut queue = Queue::new(slots);
    queue.start();
    queue
}

fn keys(queue: &mut Queue) -> Vec<Key> {
    std::iter::from_fn(|| queue.pop())
        .map(|turn| turn.key)
        .collect()
}

fn rest() -> Next {
    Next {
        wake: Wake::At(None),
        retry: None,
        failed: false,
    }
}

fn wake(seconds: i64) -> Next {
    Next {
        wake: Wake::At(Some(timestamp(seconds))),
        ..rest()
    }
}

#[test]
fn nothing_runs_before_the_start() {
    let mut queue = Queue::new(1);
    queue.push("a", Lane::Urgent);
    queue.start();
    assert_eq!(queue.pop(), None);
}

#[test]
fn a_key_pushed_twice_runs_once() {
    let mut queue = started(8);
    queue.push("a", Lane::Ordinary);
    queue.push("a", Lane::Ordinary);
    queue.push("a", Lane::Urgent);
    assert_eq!(keys(&mut queue), ["a"]);
}

#[test]
fn key_pushed_during_its_pass_runs_again_afterwards() {
    let mut queue = started(8);
    queue.push("a", Lane::Ordinary);
    assert_eq!(keys(&mut queue), ["a"]);
    queue.push("a", Lane::Ordinary);
    queue.push("a", Lane::Urgent);
    assert_eq!(queue.pop(), None);
    queue.done("a", rest(), Instant::now());
    assert_eq!(queue.pop().map(|turn| turn.lane), Some(Lane::Urgent));
    queue.done("a", rest(), Instant::now());
    assert_eq!(queue.pop(), None);
    assert!(queue.entries.is_empty(), "finished keys are forgotten");
}

#[test]
fn urgent_keys_have_separate_slots_and_go_first() {
    let mut queue = started(2);
    for key in ["a", "b", "c"] {
        queue.push(key, Lane::Ordinary);
    }
    assert_eq!(keys(&mut queue), ["a", "b"]);
    queue.push("due", Lane::Urgent);
    assert_eq!(keys(&mut queue), ["due"]);
    queue.done("a", rest(), Instant::now());
    queue.push("due-too", Lane::Urgent);
    assert_eq!(keys(&mut queue), ["due-too", "c"]);
}

#[test]
fn passes_that_are_due_together_all_begin_within_a_bound() {
    let mut queue = started(2);
    for number in 0..100 {
        queue.push(&number.to_string(), Lane::Urgent);
    }
    assert_eq!(keys(&mut queue).len(), 2 * URGENT);
}

#[test]
fn ordinary_passes_begin_once_every_opening_one_has_ended() {
    let mut queue = started(1);
    queue.push("a", Lane::Ordinary);
    queue.push_opening("o1");
    queue.push_opening("o2");
    assert_eq!(keys(&mut queue), ["o1", "o2"]);
    queue.done("o1", rest(), Instant::now());
    assert_eq!(queue.pop(), None);
    let failed = Next {
        failed: true,
        ..rest()
    };
    queue.done("o2", failed, Instant::now());
    assert_eq!(keys(&mut queue), ["a"]);
}

#[test]
fn a_wake_comes_at_its_instant_and_says_for_when_it_was_due() {
    let mut queue = started(1);
    queue.push("a", Lane::Ordinary);
    keys(&mut queue);
    queue.done("a", wake(10), Instant::now());
    assert_eq!(queue.next_wake(), Some(timestamp(10)));
    queue.promote(Timestamp::constant(9, 999_999_999), Instant::now());
    assert_eq!(queue.pop(), None);
    queue.promote(timestamp(12), Instant::now());
    let turn = queue.pop();
    assert_eq!(turn.as_ref().and_then(|turn| turn.due), Some(timestamp(10)));
    assert_eq!(turn.map(|turn| turn.lane), Some(Lane::Urgent));
}

#[test]
fn a_retry_never_postpones_a_wake() {
    let mut queue = started(1);
    let begin = Instant::now();
    queue.push("a", Lane::Ordinary);
    keys(&mut queue);
    let next = Next {
        retry: Some(Duration::from_secs(30)),
        failed: true,
        ..wake(10)
    };
    queue.done("a", next, begin);
    queue.promote(timestamp(10), begin);
    assert_eq!(keys(&mut queue), ["a"]);
    // The pass that began replaced the retry.
    assert_eq!(queue.next_retry(), None);
}

#[test]
fn a_pass_that_made_no_plan_keeps_the_wake_of_the_one_before() {
    let mut queue = started(1);
    queue.push("a", Lane::Ordinary);
    keys(&mut queue);
    queue.done("a", wake(10), Instant::now());
    queue.push("a", Lane::Ordinary);
    keys(&mut queue);
    let failed = Next {
        wake: Wake::AsBefore,
        retry: None,
        failed: true,
    };
    queue.done("a", failed, Instant::now());
    assert_eq!(queue.next_wake(), Some(timestamp(10)));
}

#[test]
fn a_new_plan_replaces_the_wake_of_the_one_before() {
    let mut queue = started(1);
    for next in [wake(10), wake(20), rest()] {
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        queue.done("a", next, Instant::now());
        assert_eq!(Wake::At(queue.next_wake()), next.wake);
    }
    assert!(queue.wakes.is_empty() && queue.entries.is_empty());
}

#[test]
fn a_wake_that_comes_due_during_the_pass_is_not_lost() {
    let mut queue = started(1);
    queue.push("a", Lane::Ordinary);
    keys(&mut queue);
    queue.done("a", wake(10), Instant::now());
    queue.push("a", Lane::Ordinary);
    keys(&mut queue);
    queue.promote(timestamp(11), Instant::now());
    let broke_off = Next {
        wake: Wake::AsBefore,
        retry: None,
        failed: true,
    };
    queue.done("a", broke_off, Instant::now());
    assert_eq!(queue.pop().map(|turn| turn.lane), Some(Lane::Urgent));
}

#[test]
fn failures_count_up_and_a_success_forgets_them() {
    let mut queue = started(1);
    for (failed, count) in [(true, 1), (true, 2), (false, 0)] {
        queue.push("a", Lane::Ordinary);
        keys(&mut queue);
        queue.done("a", Next { failed, ..wake(10) }, Instant::now());
        assert_eq!(queue.failures("a"), count);
    }
}

#[test]
fn a_clock_that_is_set_back_only_delays_and_one_set_forward_is_noticed() {
    let mut queue = started(1);
    queue.push("a", Lane::Ordinary);
    keys(&mut queue);
    queue.done("a", wake(3_600), Instant::now());
    queue.promote(NOW, Instant::now());
    assert_eq!(queue.pop(), None);
    queue.promote(timestamp(7_200), Instant::now());
    assert_eq!(keys(&mut queue), ["a"]);
}

#[test]
fn pass_without_slot_runs_alone_and_blocks_no_others() {
    let mut queue = started(1);
    let many: Vec<String> = (0..URGENT).map(|number| number.to_string()).collect();
    for key in &many {
        queue.push(key, Lane::Urgent);
    }
    assert_eq!(keys(&mut queue).len(), URGENT);
    queue.push("due", Lane::Urgent);
    assert_eq!(queue.pop(), None);
    queue.give_up_slot("0");
    queue.give_up_slot("0");
    queue.push("0", Lane::Urgent);
    queue.push("due-too", Lane::Urgent);
    assert_eq!(
        keys(&mut queue),
        ["due"],
        "one slot, and not twice the same pass"
    );
    queue.done("0", rest(), Instant::now());
    assert_eq!(queue.pop(), None, "the slot was given up before");
    queue.done("due", rest(), Instant::now());
    queue.done("1", rest(), Instant::now());
    assert_eq!(keys(&mut queue), ["due-too", "0"]);
}

#[test]
fn ordinary_passes_do_not_wait_for_an_opening_one_without_a_slot() {
    let mut queue = started(1);
    queue.push_opening("o");
    queue.push("a", Lane::Ordinary);
    assert_eq!(keys(&mut queue), ["o"]);
    queue.give_up_slot("o");
    assert_eq!(keys(&mut queue), ["a"]);
    queue.done("o", rest(), Instant::now());
    queue.done("a", rest(), Instant::now());
    assert!(queue.entries.is_empty());
}

#[test]
fn queue_serves_flows_in_turn() {
    let mut queue = started(100);
    for key in ["m1", "m2", "m3", "m4"] {
        queue.push_of(key, "mallory".to_owned());
    }
    queue.push_of("a1", "alice".to_owned());
    queue.push_of("a2", "alice".to_owned());
    queue.push("nobody's", Lane::Ordinary);
    assert_eq!(queue.depth(), 7);
    assert_eq!(
        keys(&mut queue),
        ["m1", "a1", "nobody's", "m2", "a2", "m3", "m4"]
    );
    assert_eq!(queue.depth(), 0);
}

#[test]
fn a_flow_that_came_late_waits_for_one_of_each_other() {
    let mut queue = started(1);
    for number in 0..1_000 {
        queue.push_of(&format!("m{number}"), "mallory".to_owned());
    }
    assert_eq!(keys(&mut queue), ["m0"]);
    queue.push_of("a", "alice".to_owned());
    queue.done("m0", rest(), Instant::now());
    assert_eq!(keys(&mut queue), ["m1"]);
    queue.done("m1", rest(), Instant::now());
    assert_eq!(keys(&mut queue), ["a"]);
}

#[test]
fn retried_key_waits_in_its_flow() {
    let mut queue = started(1);
    let began = Instant::now();
    queue.push_of("m0", "mallory".to_owned());
    assert_eq!(keys(&mut queue), ["m0"]);
    for key in ["m1", "m2", "m3"] {
        queue.push_of(key, "mallory".to_owned());
    }
    let again = Next {
        retry: Some(Duration::from_secs(1)),
        failed: true,
        ..rest()
    };
    queue.done("m0", again, began);
    queue.promote(NOW, began + Duration::from_secs(1));
    queue.push_of("a", "alice".to_owned());
    let mut order = Vec::new();
    while let Some(turn) = queue.pop() {
        queue.done(&turn.key, rest(), began);
        order.push(turn.key);
    }
    assert_eq!(order, ["m1", "a", "m2", "m3", "m0"]);
}
