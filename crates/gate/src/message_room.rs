//! The memory for messages that are being read: a message is joined before it is passed on, and may be long. Small
//! messages always have room; the long messages of all sessions share a limit, so that no user fills the memory of the
//! gate with many sessions that each hold half of a long message.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use oz_gating::messages::MAX_MESSAGE;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The part of each message that always has room, in bytes.
const FREE: usize = 256 << 10;
/// The step in which room is taken, in bytes.
const STEP: usize = 1 << 20;
/// The bytes of a short frame before its payload: two, and four of a mask.
const SHORT_HEAD: usize = 6;

/// The shared room of the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct MessageRoom(Arc<Semaphore>);

/// The error of a long message for which there is no room now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "messages of more than {FREE} bytes, of all sessions together, use all memory that the gate \
     has for them; send shorter messages"
)]
pub(crate) struct NoRoom;

/// The room that one session takes.
#[derive(Debug)]
pub(crate) struct RoomReservation {
    room: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of bytes that were read and not yet passed on.
    waiting: usize,
    taken: Option<OwnedSemaphorePermit>,
}

/// The side of a session that sends messages.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    held: Arc<RoomReservation>,
}

impl Default for MessageRoom {
    /// Creates room for one message of the maximum length.
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_MESSAGE / STEP)))
    }
}

impl MessageRoom {
    /// Watches the stream of a session.
    pub(crate) fn watch<S>(&self, stream: S) -> (Watched<S>, Arc<RoomReservation>) {
        let held = Arc::new(RoomReservation {
            room: Arc::clone(&self.0),
            state: Mutex::default(),
        });
        let watched = Watched {
            stream,
            held: Arc::clone(&held),
        };
        (watched, held)
    }
}

impl NoRoom {
    /// Checks whether this error is the reason for which a stream could not be read.
    pub(crate) fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|why| why.is::<Self>())
    }
}

impl RoomReservation {
    fn read(&self, bytes: usize) -> Result<(), NoRoom> {
        let mut state = self.state();
        state.waiting += bytes;
        let needed = state.waiting.saturating_sub(FREE).div_ceil(STEP);
        let taken = state
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = needed.checked_sub(taken).filter(|more| *more > 0) else {
            return Ok(());
        };
        let more = u32::try_from(more).map_err(|_| NoRoom)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(more);
        let room = room.map_err(|_| NoRoom)?;
        match &mut state.taken {
            Some(taken) => taken.merge(room),
            None => state.taken = Some(room),
        }
        Ok(())
    }

    /// Records that a message was passed on. The bytes of the next message that were already read are less than a
    /// buffer.
    pub(crate) fn passed_on(&self) {
        *self.state() = State::default();
    }

    /// Records that a ping or pong with a payload of so many bytes was read between the parts of a message.
    pub(crate) fn passed(&self, payload: usize) {
        let mut state = self.state();
        state.waiting = state.waiting.saturating_sub(SHORT_HEAD + payload);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = read {
            let bytes = buffer.filled().len() - before;
            self.held.read(bytes).map_err(io::Error::other)?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_share_room_and_give_it_back() {
        let room = MessageRoom::default();
        let (_, alice) = room.watch(());
        let (_, bob) = room.watch(());
        assert_eq!(alice.read(MAX_MESSAGE), Ok(()));
        assert_eq!(bob.read(FREE), Ok(()), "a short one has room in any case");
        assert_eq!(bob.read(1), Err(NoRoom));
        alice.passed_on();
        assert_eq!(bob.read(1), Ok(()));
        assert_eq!(alice.read(MAX_MESSAGE), Err(NoRoom));
        bob.passed_on();
        drop(alice);
        let (_, carol) = room.watch(());
        for _ in 0..MAX_MESSAGE / STEP {
            assert_eq!(carol.read(STEP), Ok(()));
        }
        drop(carol);
        assert_eq!(room.0.available_permits(), MAX_MESSAGE / STEP);
    }

    #[test]
    fn pings_of_a_silent_session_take_no_room() {
        let room = MessageRoom::default();
        let (_, alice) = room.watch(());
        for _ in 0..100_000 {
            assert_eq!(alice.read(SHORT_HEAD + 8), Ok(()));
            alice.passed(8);
        }
        assert_eq!(room.0.available_permits(), MAX_MESSAGE / STEP);
    }
}
