//! A response body that a client follows: a log, or changes of objects. It ends with the grant.

use std::sync::Arc;

use axum::body::Body;
use futures::future::{FutureExt as _, Shared};
use futures::{StreamExt as _, stream};
use http_body_util::BodyDataStream;
use oz_core::connect::Refusal;

use super::bytes::Carried;
use crate::close::End;
use crate::session::Session;

/// Returns a body that ends with the grant; its last line states the reason.
pub(crate) fn followed(mut session: Session, body: kube::client::Body) -> Body {
    session.follows();
    let data = Arc::clone(&session.data);
    // The body has the session, and with it the slot: this future is dropped with the body.
    let ended = {
        let data = Arc::clone(&data);
        async move { data.must_end(true).await }
    };
    let ended = ended.shared();
    // A client that watches objects reads one after the other, and no text between them.
    let in_words = data.way != "watch";
    let over = Followed {
        session,
        ended: ended.clone(),
    };
    let last = stream::once(async move {
        let why = over.ended.clone().now_or_never();
        drop(over);
        let told = why.filter(|_| in_words);
        let told = told.map(|why| format!("\noz: {}\n", why.message).into_bytes());
        Ok(told.unwrap_or_default().into())
    });
    let body = BodyDataStream::new(body).inspect(move |piece| {
        data.live.data.idle.used();
        if let Ok(piece) = piece {
            data.live.traffic.passed(false, piece.len());
        }
    });
    let body = body.take_until(ended);
    Body::from_stream(body.chain(last))
}

/// The session of a body. When the body ends, or the client disconnects, the audit record states the number of bytes.
struct Followed<F: Future<Output = Refusal>> {
    session: Session,
    ended: Shared<F>,
}

impl<F: Future<Output = Refusal>> Drop for Followed<F> {
    fn drop(&mut self) {
        let (_, outward) = self.session.data.live.traffic.bytes();
        let carried = Carried {
            outward,
            ..Carried::default()
        };
        let end = End::from_reason(self.ended.peek().cloned());
        self.session.end(&end, carried);
    }
}
