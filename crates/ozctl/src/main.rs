//! The binary; everything it does is in the library, so that its commands can also be listed for
//! man pages and the reference.

use std::process::ExitCode;

fn main() -> ExitCode {
    ozctl::main()
}
