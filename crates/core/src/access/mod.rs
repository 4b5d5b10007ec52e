//! The access domain: who asked ([`stamp`]), until when ([`window`]), which pod ([`target`]), may
//! they ([`decide`]), what was decided ([`grant`]) and what follows from it for exec access
//! ([`exec`]).

pub mod decide;
pub mod exec;
pub mod grant;
pub mod lifecycle;
mod objects;
pub mod request;
pub mod seal;
pub mod stamp;
pub mod status;
pub mod target;
pub mod template;
pub mod window;
