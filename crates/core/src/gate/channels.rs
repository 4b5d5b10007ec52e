//! The channels of `v4` and `v5.channel.k8s.io`: the first byte of each message.

/// Standard input, on its way in.
pub const STDIN: u8 = 0;
/// Standard output.
pub const STDOUT: u8 = 1;
/// Standard error.
pub const STDERR: u8 = 2;
/// How a session ended, as a Status.
pub const ERROR: u8 = 3;
/// A terminal's new size, on its way in.
pub const RESIZE: u8 = 4;
