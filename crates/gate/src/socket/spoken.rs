//! The meaning of the messages of a session, by the protocol that was agreed on.

use oz_gating::messages::{Framing, ReadChannels};
use oz_gating::query::Options;
use oz_gating::upgrade::Agreed;

/// The meaning of what passes in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoken {
    pub(crate) framing: Framing,
    /// The meaning of messages; `None` if the gate neither reads messages nor sends any.
    pub(crate) words: Option<Words>,
}

/// The meaning of the messages of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// True for a session on a terminal.
    pub(crate) tty: bool,
    /// The channels on which the API server reads.
    pub(crate) channels: ReadChannels,
}

impl Spoken {
    /// Returns the meaning under the protocol that was agreed on; `None` if that is not a WebSocket. Clients also forward
    /// ports over the sub-protocols of commands, and the channels of ports differ, so `way` is the operation.
    pub(crate) fn new(agreed: &Agreed, options: &Options, way: &str) -> Option<Self> {
        let Agreed::WebSocket(protocol) = agreed else {
            return None;
        };
        let read = protocol.filter(|_| agreed.is_recorded() && runs_command(way));
        Some(Self {
            framing: Framing::new(*protocol),
            words: read.map(|protocol| Words {
                tty: options.tty(),
                channels: ReadChannels::new(protocol, options),
            }),
        })
    }
}

/// Checks whether an operation is a session with a command.
pub(crate) fn runs_command(way: &str) -> bool {
    matches!(way, "exec" | "attach")
}
