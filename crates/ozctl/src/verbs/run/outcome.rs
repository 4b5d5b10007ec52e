//! The description of a run: its events, its obstacles, its result.

use kube::ResourceExt;
use oz_api::conditions;
use oz_api::harness::{HarnessRun, HarnessRunStatus, RunEvent, RunPhase};

use crate::exit::Exit;
use crate::output::line;
use crate::run::{in_the_way, phase};

/// Returns the exit code of a process that waited for a run.
pub(super) fn exit(phase: RunPhase) -> Exit {
    match phase {
        RunPhase::Succeeded => Exit::SUCCESS,
        RunPhase::Cancelled => Exit::CANCELLED,
        _ => Exit::FAILURE,
    }
}

/// Formats an event as one line: agents choose its words.
pub(super) fn event(event: &RunEvent) -> String {
    let time = event.ts.strftime("%H:%M:%S");
    line(&format!("{time}  {:<11}  {}", event.type_, event.summary))
}

/// Formats the state of a run that is not over as one line: its phase, and its first obstacle if it
/// has not begun.
pub(super) fn state(phase: RunPhase, status: &HarnessRunStatus) -> String {
    match in_the_way(status).next() {
        Some(known) => {
            let why = line(&format!("{} ({})", known.message, known.reason));
            format!("{phase}: {why}")
        }
        None => phase.to_string(),
    }
}

/// Describes the end of a run, and its outputs.
pub(super) fn ending(run: &HarnessRun) -> String {
    let name = run.name_any();
    let mut text = line(&format!("HarnessRun {name}: {}", phase(run)));
    let status = run.status.as_ref();
    let completed = status.and_then(|status| conditions::find(&status.conditions, "Completed"));
    if let Some(known) = completed.filter(|known| !known.message.is_empty()) {
        text.push_str(&line(&format!(": {}", known.message)));
    }
    text.push('\n');
    text + &outputs(run)
}

/// Lists the outputs of a run.
pub(super) fn outputs(run: &HarnessRun) -> String {
    let status = run.status.as_ref();
    let Some(outputs) = status.and_then(|status| status.outputs.as_ref()) else {
        return String::new();
    };
    let mut rows = Vec::new();
    if let Some(summary) = &outputs.summary {
        rows.push(("Summary", summary.clone()));
    }
    if let Some(count) = outputs.files_changed {
        rows.push(("Files changed", count.to_string()));
    }
    let requests = outputs.pull_requests.iter();
    rows.extend(requests.map(|link| ("Pull request", link.clone())));
    let artifacts = outputs.artifacts.iter();
    rows.extend(artifacts.map(|path| ("Artifact", path.clone())));
    let rows = rows
        .iter()
        .map(|(title, text)| format!("{title}: {}\n", line(text)));
    rows.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_exit_is_that_of_the_run() {
        for (phase, code) in [
            (RunPhase::Succeeded, Exit::SUCCESS),
            (RunPhase::Failed, Exit::FAILURE),
            (RunPhase::Cancelled, Exit::CANCELLED),
        ] {
            assert_eq!(exit(phase), code);
        }
    }

    #[test]
    fn nothing_that_an_agent_wrote_moves_the_cursor() {
        let run: HarnessRun = serde_json::from_value(json!({
            "metadata": {"name": "hello"},
            "spec": {"templateRef": {"name": "echo"}, "prompt": "hi"},
            "status": {
                "phase": "Failed",
                "conditions": [{
                    "type": "Completed", "status": "True", "reason": "Failed",
                    "message": "exit\u{1b}[2J 1\nroot", "lastTransitionTime": "2026-01-31T09:00:00Z",
                }, {
                    "type": "PodReady", "status": "False", "reason": "NotStarted",
                    "message": "a\u{7}b", "lastTransitionTime": "2026-01-31T09:00:00Z",
                }],
                "outputs": {
                    "summary": "done\rTotal", "filesChanged": 2,
                    "pullRequests": ["https://example.com/1\u{1b}]8;;"], "artifacts": ["a\nb"],
                },
            },
        }))
        .unwrap();
        assert_eq!(
            ending(&run),
            "HarnessRun hello: Failed: exit\u{fffd}[2J 1 root\nSummary: done Total\nFiles changed: 2\n\
             Pull request: https://example.com/1\u{fffd}]8;;\nArtifact: a b\n"
        );
        let status = run.status.unwrap();
        assert_eq!(
            state(RunPhase::Pending, &status),
            "Pending: a\u{fffd}b (NotStarted)"
        );
        let shown = event(&RunEvent {
            ts: "2026-01-31T09:00:00Z".parse().unwrap(),
            type_: "Message".to_owned(),
            summary: "\u{1b}[1mhi\nthere".to_owned(),
            ..RunEvent::default()
        });
        assert_eq!(shown, "09:00:00  Message      \u{fffd}[1mhi there");
    }
}
