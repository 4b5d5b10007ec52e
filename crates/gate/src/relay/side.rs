//! The client's side of a session that opens.

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use crate::message_room::MessageRoom;
use crate::socket::{Client, Spoken};

/// The side of the [module](self), before the connection has switched to the protocol of the session.
pub(crate) enum Side {
    /// The client of a session over SPDY.
    Bytes(OnUpgrade),
    /// The client of a session over a WebSocket.
    Messages(OnUpgrade, Spoken),
    /// The same, for a client that waited for its session.
    Waited(Box<Client<TokioIo<Upgraded>>>, Spoken),
}

/// A connection that has switched.
pub(crate) enum Connected {
    /// A byte stream.
    Bytes(TokioIo<Upgraded>),
    /// Messages with this meaning.
    Messages(Box<Client<TokioIo<Upgraded>>>, Spoken),
}

impl Side {
    /// Creates the side of a client that speaks the agreed protocol; `spoken` is `None` for SPDY.
    pub(crate) fn new(client: OnUpgrade, spoken: Option<Spoken>) -> Self {
        match spoken {
            Some(spoken) => Self::Messages(client, spoken),
            None => Self::Bytes(client),
        }
    }

    /// Waits until the connection has switched. Messages that are read take `room`.
    pub(crate) async fn connected(self, room: &MessageRoom) -> Result<Connected, hyper::Error> {
        Ok(match self {
            Self::Bytes(client) => Connected::Bytes(TokioIo::new(client.await?)),
            Self::Messages(client, spoken) => {
                let client = Client::new(TokioIo::new(client.await?), room).await;
                Connected::Messages(Box::new(client), spoken)
            }
            Self::Waited(client, spoken) => Connected::Messages(client, spoken),
        })
    }
}
