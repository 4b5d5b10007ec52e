//! The content of a request, apart from its pod.

/// The content of a request, apart from its pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The requester's reason.
    pub reason: Option<&'a str>,
    /// The container that the request names.
    pub container: Option<&'a str>,
    /// The change ticket that the request names.
    pub ticket: Option<&'a str>,
    /// The request declares an emergency.
    pub emergency: bool,
}
