//! Measures evaluations of one policy, for `cargo xtask bench composites --against`: the bench compiles this file with the
//! `oz-rego` of two versions of the repository, and so it uses only what both have.
//!
//! The arguments are the file of the policy and a file with an array of inputs. Each line of the standard input is the
//! position of an input, and the response is a line with the nanoseconds of its evaluation.

use std::error::Error;
use std::io::Write as _;
use std::time::Instant;

use jiff::Timestamp;
use oz_rego::{Limits, Policy};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(policy), Some(inputs)) = (arguments.next(), arguments.next()) else {
        return Err("expected the file of a policy and a file of inputs".into());
    };
    let text = std::fs::read_to_string(policy)?;
    let policy = Policy::compile(&[("windows.rego".to_owned(), text)])?;
    let inputs: Vec<Value> = serde_json::from_slice(&std::fs::read(inputs)?)?;
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lines() {
        let at: usize = line?.trim().parse()?;
        let input = inputs.get(at).ok_or("no input at this position")?;
        let began = Instant::now();
        policy.evaluate("windows", input, Timestamp::now(), &Limits::default())?;
        writeln!(output, "{}", began.elapsed().as_nanos())?;
        output.flush()?;
    }
    Ok(())
}
