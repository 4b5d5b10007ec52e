//! Slowed sessions: the gate does not read from them, since recordings of their user take their whole share of the
//! spool. This module sends notices to their clients. The sessions continue when enough recordings were stored; nothing
//! is left out of their recordings.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::idle::Idle;
use crate::metrics::Metrics;
use crate::moderated::ALIVE_EVERY;
use crate::tape::Tape;
use crate::traffic::Traffic;

/// The time for which a session is slowed down before its user receives a notice: the user perceives a shorter time as
/// slow output.
const NOTICE_AFTER: Duration = Duration::from_secs(5);
/// The notice to the user of a slowed session.
const SLOWED: &str = "your recordings that wait to be stored use the whole share of one user; this \
                      session continues when some are stored";
/// The notice when the session continues.
const RESUMED: &str = "this session continues";

/// Sends the notices of a session for as long as it is open.
pub(crate) async fn look_after(
    tape: Option<&Arc<Tape>>,
    traffic: &Traffic,
    idle: &Idle,
    metrics: &Metrics,
) -> Infallible {
    let Some(tape) = tape else {
        return pending().await;
    };
    loop {
        tape.slowed().await;
        let _slowed = metrics.slowed();
        if timeout(NOTICE_AFTER, tape.resumed()).await.is_ok() {
            continue;
        }
        // The session cannot be used now, and its client would give up.
        idle.slow(true);
        traffic.tell(SLOWED.to_owned());
        loop {
            tokio::select! {
                () = tape.resumed() => break,
                () = sleep(ALIVE_EVERY) => traffic.alive(),
            }
        }
        idle.slow(false);
        traffic.tell(RESUMED.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use jiff::SignedDuration;

    use super::*;
    use crate::tape::tests::place;
    use crate::traffic::Word;

    const SHARE: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn user_hears_of_a_session_that_is_slowed_down_for_long_and_its_client_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (spool, _storage, recorder, key) = place(directory.path(), 8 * SHARE as u64).await;
        let writer = Tape::begin(recorder, spool.begin(key, "alice"), false)
            .await
            .unwrap();
        let (traffic, metrics) = (Arc::new(Traffic::default()), Metrics::default());
        let idle = Idle::new(Some(SignedDuration::from_mins(1)));
        let looking = tokio::spawn({
            let tape = Arc::clone(writer.tape());
            let (traffic, idle, metrics) = (traffic.clone(), idle.clone(), metrics.clone());
            async move { look_after(Some(&tape), &traffic, &idle, &metrics).await }
        });
        let share = spool.share("alice");
        // The user receives no notice about a short time.
        share.expects(SHARE);
        sleep(NOTICE_AFTER / 2).await;
        assert_eq!(metrics.slowed.get(), 1);
        share.came(SHARE);
        sleep(NOTICE_AFTER).await;
        assert_eq!(metrics.slowed.get(), 0);
        assert_eq!(traffic.word().now_or_never(), None);

        share.expects(SHARE);
        let line = |text: &str| Word::Line(text.to_owned());
        assert_eq!(traffic.word().await, line(SLOWED));
        for _ in 0..3 {
            let alive = timeout(ALIVE_EVERY * 2, traffic.word()).await;
            assert_eq!(alive, Ok(Word::Alive));
        }
        let over = timeout(Duration::from_secs(300), idle.over()).await;
        assert!(over.is_err(), "it ends while it cannot be used");
        share.came(SHARE);
        let mut said = traffic.word().await;
        while said == Word::Alive {
            said = traffic.word().await;
        }
        assert_eq!(said, line(RESUMED));
        assert_eq!(metrics.slowed.get(), 0);
        idle.over().await;
        share.expects(SHARE);
        sleep(NOTICE_AFTER / 2).await;
        looking.abort();
        assert!(looking.await.unwrap_err().is_cancelled());
        assert_eq!(
            metrics.slowed.get(),
            0,
            "a session that ended is slowed down"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn session_that_is_not_recorded_is_not_slowed_down() {
        let (traffic, idle, metrics) = (Traffic::default(), Idle::new(None), Metrics::default());
        let looking = look_after(None, &traffic, &idle, &metrics);
        assert!(timeout(NOTICE_AFTER * 100, looking).await.is_err());
        assert_eq!(traffic.word().now_or_never(), None);
    }
}
