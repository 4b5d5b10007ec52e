//! The mode of a namespace for connections to its pods.

/// The treatment of a connection that no grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter)]
pub enum Mode {
    /// The connection is recorded.
    Observing,
    /// The connection is refused.
    Enforcing,
    /// The connection is recorded as an access without a grant, which exists for emergencies.
    BreakGlass,
}

impl Mode {
    /// The detail of a record that names the mode.
    pub const DETAIL: &'static str = "mode";

    /// Returns the name of the mode in records and messages.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Observing => "observing",
            Self::Enforcing => "enforcing",
            Self::BreakGlass => "break-glass",
        }
    }

    /// Checks whether each connection has an individual record. In an enforcing namespace no connections are counted
    /// together: a command would be hidden behind earlier ones.
    #[must_use]
    pub(crate) fn records_each(self) -> bool {
        match self {
            Self::Observing => false,
            Self::Enforcing | Self::BreakGlass => true,
        }
    }
}
