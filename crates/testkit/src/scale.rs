//! The size of tests that find more the longer they run.

/// The environment variable that requests the long form of every test, by the value 1: thousands of
/// objects, hundreds of kills. `make test-long` sets it.
pub const LONG: &str = "OZ_LONG";

/// Checks whether tests are to run in their long form.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os(LONG).is_some_and(|value| value == "1")
}

/// Returns `long` in the long form of a test, otherwise `short`.
#[must_use]
pub fn scaled<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}
