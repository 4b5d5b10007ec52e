//! What the tasks of the workspace share: the build of oz's programs, the screen, generated files.

pub mod generated;
pub mod programs;
pub mod screen;
