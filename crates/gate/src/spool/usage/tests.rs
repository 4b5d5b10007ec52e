//! The shares of the spool: when they are full, and when they have room.

use super::*;

const LIMIT: u64 = 8 << 10;

fn usage() -> Usage {
    Usage::new(LIMIT, SpoolMeters::default())
}

#[test]
fn share_is_full_from_its_limit_on_until_there_is_room_for_a_part() {
    let usage = usage();
    let (alice, bob) = (usage.share(Some("alice")), usage.share(Some("bob")));
    let full = |share: &Share| (share.is_full(), share.room().is_err());
    for (take, give_back, is_full) in [
        (1023, 0, false),
        (1, 0, true),
        (500, 0, true),
        // 1024 and below, but by less than an eighth.
        (0, 500, true),
        (0, 127, true),
        (0, 1, false),
        (127, 0, false),
        (1, 0, true),
        (0, 1024, false),
    ] {
        if take > 0 {
            usage.take(&alice, take).unwrap();
        }
        usage.give_back(&alice, give_back);
        let case = format!("{} are taken", alice.used());
        assert_eq!(full(&alice), (is_full, is_full), "{case}");
        assert_eq!(full(&bob), (false, false), "{case}");
        assert_eq!(usage.meters.shares_full.get(), i64::from(is_full), "{case}");
    }
    assert_eq!(usage.full().used, 0);
}

#[test]
fn bytes_that_are_about_to_come_count() {
    let usage = usage();
    let alice = usage.share(Some("alice"));
    alice.expects(1024);
    assert!(alice.is_full());
    alice.came(1024);
    usage.take(&alice, 800).unwrap();
    assert!(!alice.is_full());
    alice.expects(224);
    assert!(alice.is_full());
    let why = alice.room().unwrap_err().to_string();
    assert!(
        why.starts_with("recordings of alice that wait to be stored use 800 of the 1024 bytes"),
        "{why}"
    );
}

#[test]
fn user_keeps_a_share_while_anything_is_in_it() {
    let usage = usage();
    let first = usage.share(Some("alice"));
    usage.take_anyway(&first, 10);
    drop(first);
    assert_eq!(usage.share(Some("alice")).used(), 10);
    usage.give_back(&usage.share(Some("alice")), 10);
    drop(usage.share(Some("bob")));
    assert_eq!(usage.shares.lock().len(), 1, "the share of bob");
    // Data without a known user does not count for any user.
    let unknown = usage.share(None);
    usage.take_anyway(&unknown, LIMIT);
    assert!(usage.share(Some("")).is_full());
    assert!(!usage.share(Some("alice")).is_full());
    assert_eq!(usage.meters.shares_full.get(), 0);
}

#[test]
fn share_of_user_is_limited_by_spool_size() {
    let usage = usage();
    let alice = usage.share(Some("alice"));
    usage.take(&alice, LIMIT).unwrap();
    let full = Full {
        used: LIMIT,
        limit: LIMIT,
    };
    assert_eq!(usage.take(&usage.share(Some("bob")), 1), Err(full));
    assert_eq!(usage.share(Some("bob")).used(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiter_resumes_when_enough_share_is_returned() {
    let usage = Arc::new(usage());
    let alice = usage.share(Some("alice"));
    usage.take(&alice, 2000).unwrap();
    let waiting = tokio::spawn({
        let alice = Arc::clone(&alice);
        async move { alice.resumes().await }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    usage.give_back(&alice, 1000);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!waiting.is_finished(), "1000 of 1024 are taken");
    usage.give_back(&alice, 200);
    waiting.await.unwrap();
    usage.share(Some("bob")).resumes().await;
}
