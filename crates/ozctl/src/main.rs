//! The binary; the library contains all its behaviour, so that man pages and the reference can list
//! its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    ozctl::main()
}
