//! What somebody asks for.

/// What a request asks for, besides a pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The requester's reason.
    pub reason: Option<&'a str>,
    /// The container, if one is named.
    pub container: Option<&'a str>,
    /// The ticket, if one is named.
    pub ticket: Option<&'a str>,
    /// Whether it is an emergency.
    pub emergency: bool,
}
