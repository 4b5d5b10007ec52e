//! How a namespace treats connections to its pods.

/// What becomes of a connection that no grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter)]
pub enum Mode {
    /// It is recorded.
    Observing,
    /// It is refused.
    Enforcing,
    /// It is recorded as a way around grants, which exists for emergencies.
    BreakGlass,
}

impl Mode {
    /// The detail of a record that names the mode.
    pub const DETAIL: &'static str = "mode";

    /// What records and people call it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Observing => "observing",
            Self::Enforcing => "enforcing",
            Self::BreakGlass => "break-glass",
        }
    }

    /// Whether each connection has a record of its own. Where a namespace enforces, none is counted together with
    /// others: a command would be hidden behind those before it.
    #[must_use]
    pub(crate) fn records_each(self) -> bool {
        match self {
            Self::Observing => false,
            Self::Enforcing | Self::BreakGlass => true,
        }
    }
}
