//! Warnings about a wrong clock of this process's node: a log line and an event. The warning has no other
//! effect, since the API server's clock decides everything; but an administrator needs to know of a node
//! with a wrong clock, and of a control plane with clocks that differ.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use crate::clock::{Clock, NOTABLE_SKEW, skew_in_words};
use crate::{Task, Warnings};

/// The interval between two checks.
const LOOK: Duration = Duration::from_secs(5);

/// The task that checks the clock for one replica of one component.
pub struct ClockAlarm {
    clock: Arc<dyn Clock>,
    component: &'static str,
    replica: String,
    warnings: Warnings,
}

impl ClockAlarm {
    /// Creates an alarm without warnings.
    pub fn new(
        clock: impl Clock,
        component: &'static str,
        replica: &str,
        warnings: Warnings,
    ) -> Self {
        Self {
            clock: Arc::new(clock),
            component,
            replica: replica.to_owned(),
            warnings,
        }
    }

    async fn alarm(&self, skew: SignedDuration) {
        let note = note(self.component, &self.replica, skew);
        tracing::warn!(skew_seconds = skew.as_secs_f64(), "{note}");
        self.warnings.publish("ClockSkewed", note).await;
    }
}

impl Task for ClockAlarm {
    /// Checks the clock at intervals.
    async fn run(&self) {
        let mut warned = false;
        loop {
            let skew = self.clock.skew();
            let wrong = skew.abs() > NOTABLE_SKEW;
            if wrong && !warned {
                self.alarm(skew).await;
            }
            warned = wrong;
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn note(component: &str, replica: &str, skew: SignedDuration) -> String {
    format!(
        "the clock of {component} {replica} is {}. Grants use the API server's clock and expire on \
         time; correct the clock of the node (NTP), or of the control plane",
        skew_in_words(skew)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_alarm_names_process_and_offset() {
        let hour = SignedDuration::from_hours(1);
        let ahead = note("oz-operator", "oz-0", hour);
        assert!(ahead.starts_with("the clock of oz-operator oz-0 is 3600 s ahead of the API"));
        assert!(note("oz-webhook", "oz-1", -hour).contains("3600 s behind the API server's"));
    }
}
