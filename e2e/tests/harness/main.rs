//! Harness runs on a real API server: one cluster and one oz for all tests, a namespace for each. The node is a
//! simulated one; what the containers of runs do is tested on a real one.

mod admission;
mod approving;
mod defects;
mod definitions;
mod drift;
mod examples;
mod intercepted;
mod isolation;
mod lost;
mod queue;
mod runs;
mod seeds;
mod stuck;
mod support;
