//! A response body that a client follows: a log, or changes of objects. It ends with the grant, also while its client
//! does not read it.

use std::pin::pin;
use std::sync::Arc;

use axum::BoxError;
use axum::body::{Body, Bytes};
use futures::{Stream, StreamExt as _, stream};
use http_body_util::BodyDataStream;
use oz_core::connect::Refusal;
use tokio::sync::mpsc::{self, Sender};

use super::bytes::Carried;
use crate::close::End;
use crate::session::Session;

/// Returns a body that ends with the grant; its last line states the reason.
pub(crate) fn followed(mut session: Session, body: kube::client::Body) -> Body {
    session.follows();
    let (open, data) = (Arc::clone(&session.data), Arc::clone(&session.data));
    let ended = async move { open.must_end(true).await };
    let passes = move |piece: Option<&Bytes>| {
        data.live.data.idle.used();
        if let Some(piece) = piece {
            data.live.traffic.passed(false, piece.len());
        }
    };
    // When the body ends, or the client disconnects, the audit record states the number of bytes.
    let over = move |why: Option<Refusal>| {
        // A client that watches objects reads one after the other, and no text between them.
        let told = why.as_ref().filter(|_| session.data.way != "watch");
        let told = told.map(|why| format!("\noz: {}\n", why.message));
        let (_, outward) = session.data.live.traffic.bytes();
        let carried = Carried {
            outward,
            ..Carried::default()
        };
        session.end(&End::from_reason(why), carried);
        told
    };
    passed_on(BodyDataStream::new(body), passes, ended, over)
}

/// Returns a body with the pieces of another one, until `ended` returns the reason for the end. A task passes them on:
/// a server polls a body only while its client reads, and `over` must not wait for that. `over` returns the last line.
fn passed_on<E: Into<BoxError> + Send + 'static>(
    body: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    passes: impl Fn(Option<&Bytes>) + Send + Sync + 'static,
    ended: impl Future<Output = Refusal> + Send + 'static,
    over: impl FnOnce(Option<Refusal>) -> Option<String> + Send + 'static,
) -> Body {
    let (to, mut pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        let why = pass(body, passes, ended, &to).await;
        if let Some(line) = over(why) {
            // The session has ended; the line waits for the client, or is dropped with the body.
            let _ = to.send(Ok(line.into())).await;
        }
    });
    Body::from_stream(stream::poll_fn(move |context| pieces.poll_recv(context)))
}

/// Passes on the pieces of a body until it ends, until the client disconnects, or until `ended` returns the reason.
async fn pass<E>(
    body: impl Stream<Item = Result<Bytes, E>>,
    passes: impl Fn(Option<&Bytes>),
    ended: impl Future<Output = Refusal>,
    to: &Sender<Result<Bytes, E>>,
) -> Option<Refusal> {
    let mut body = pin!(body);
    let pieces = async {
        while let Some(piece) = body.next().await {
            passes(piece.as_ref().ok());
            if to.send(piece).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        why = ended => Some(why),
        () = to.closed() => None,
        () = pieces => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;

    use http_body_util::BodyExt as _;
    use tokio::sync::oneshot;

    use super::*;

    type Piece = Result<Bytes, Infallible>;

    /// Returns a body, and the end that is recorded for it.
    fn followed(
        body: impl Stream<Item = Piece> + Send + 'static,
        ended: impl Future<Output = Refusal> + Send + 'static,
    ) -> (Body, oneshot::Receiver<Option<Refusal>>) {
        let (record, recorded) = oneshot::channel();
        let over = move |why: Option<Refusal>| {
            let told = why.as_ref().map(|why| why.message.clone());
            record.send(why).unwrap();
            told
        };
        let passes = |_: Option<&Bytes>| {};
        (passed_on(body, passes, ended, over), recorded)
    }

    fn line() -> Piece {
        Ok(Bytes::from_static(b"line\n"))
    }

    #[tokio::test]
    async fn session_ends_in_time_while_its_client_reads_nothing() {
        let (end, ended) = oneshot::channel();
        let ended = async move { ended.await.unwrap() };
        let (body, recorded) = followed(stream::repeat_with(line), ended);
        tokio::task::yield_now().await;
        let over = Refusal {
            reason: "Expired",
            message: "it is over".to_owned(),
        };
        end.send(over.clone()).unwrap();
        assert_eq!(recorded.await.unwrap(), Some(over));
        // What was on its way arrives, and then the reason.
        let read = body.collect().await.unwrap().to_bytes();
        assert!(read.ends_with(b"it is over"), "{read:?}");
        assert!(read.len() < 100, "{}", read.len());
    }

    #[tokio::test]
    async fn body_that_ends_or_whose_client_disconnects_ends_its_session() {
        let (body, recorded) = followed(stream::iter([line(), line()]), pending());
        let read = body.collect().await.unwrap().to_bytes();
        assert_eq!(read, b"line\nline\n".as_slice());
        assert_eq!(recorded.await.unwrap(), None);

        let (body, recorded) = followed(stream::pending(), pending());
        drop(body);
        assert_eq!(recorded.await.unwrap(), None);
    }
}
