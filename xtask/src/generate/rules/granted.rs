//! The tests of the rules while access lasts, and of the notification of approvers, by kind.

use oz_core::access::rules::Description;

use super::cell::{Cell, KINDS, absent, tested};

const EXEC_ENDING: &str = "crates/core/src/access/exec/tests/ending.rs";
const EXEC_TICKETS: &str = "crates/core/src/access/exec/tests/tickets.rs";
const POD_ENDING: &str = "crates/core/src/access/pod/tests/ending.rs";
const POD_RULES: &str = "crates/core/src/access/pod/tests/rules.rs";
const BINDING_APPROVING: &str = "crates/core/src/transient/tests/approving.rs";
const EVERY_BINDING: &str = "crates/core/src/transient/tests/every_kind.rs";

/// The cell of a kind without templates.
const NO_TEMPLATE: Cell = absent("no template");
/// The cell of a kind with approvals that no on-call check replaces.
const NO_ON_CALL: Cell = absent("no on-call check replaces an approval");

/// The rows: the rule, and its cell for each kind.
pub(super) const ROWS: &[(Description, [Cell; KINDS])] = &[
    (
        Description {
            name: "Notification",
            requires: "Approvers are notified once of an object that waits for them.",
        },
        [
            tested(
                "crates/core/src/access/exec/tests/approving.rs",
                "pending_request_is_recorded_once_and_again_after_change",
            ),
            tested(POD_RULES, "approvers_of_dedicated_pod_are_asked_once"),
            tested(
                BINDING_APPROVING,
                "approvers_are_asked_after_a_pass_that_could_not_ask_them",
            ),
            tested(
                BINDING_APPROVING,
                "answers_to_what_belongs_to_the_cluster_are_in_the_namespace_of_oz",
            ),
            absent("no status for approvals: it is denied instead"),
            tested(
                "crates/runs/tests/harness/approving.rs",
                "run_waits_for_approval_and_asks_approvers_once",
            ),
        ],
    ),
    (
        Description {
            name: "Expiry",
            requires: "Access ends at its expiry.",
        },
        [
            tested(
                EXEC_ENDING,
                "access_ends_at_the_agreed_instant_and_not_a_nanosecond_before",
            ),
            tested(
                POD_ENDING,
                "access_and_pod_end_at_the_agreed_instant_and_not_a_nanosecond_before",
            ),
            tested(EVERY_BINDING, "binding_of_every_kind_ends_with_its_window"),
            tested(EVERY_BINDING, "binding_of_every_kind_ends_with_its_window"),
            tested(EVERY_BINDING, "binding_of_every_kind_ends_with_its_window"),
            tested(
                "e2e/tests/harness/runs.rs",
                "run_is_terminated_at_timeout_with_reason",
            ),
        ],
    ),
    (
        Description {
            name: "Drift",
            requires: "Access ends if another user changes its objects.",
        },
        [
            tested(EXEC_ENDING, "meddling_revokes_and_is_not_repaired"),
            tested(
                POD_ENDING,
                "meddling_revokes_and_the_reason_stays_until_the_pod_has_ended",
            ),
            tested(EVERY_BINDING, "changed_binding_of_every_kind_is_revoked"),
            tested(EVERY_BINDING, "changed_binding_of_every_kind_is_revoked"),
            tested(EVERY_BINDING, "changed_binding_of_every_kind_is_revoked"),
            tested(
                "e2e/tests/harness/drift.rs",
                "a_pod_that_loses_the_label_that_confines_it_ends_its_run",
            ),
        ],
    ),
    (
        Description {
            name: "Lock",
            requires: "Access ends if an AccessLock selects it.",
        },
        [
            tested(
                "crates/core/src/access/exec/tests/locking.rs",
                "a_lock_ends_a_grant_with_its_sessions_and_the_record_names_it",
            ),
            tested(
                POD_ENDING,
                "a_lock_ends_access_and_pod_also_before_that_is_ready",
            ),
            tested(EVERY_BINDING, "lock_ends_binding_of_every_kind"),
            tested(EVERY_BINDING, "lock_ends_binding_of_every_kind"),
            tested(EVERY_BINDING, "lock_ends_binding_of_every_kind"),
            tested(
                "crates/runs/tests/harness/runs.rs",
                "a_lock_ends_a_run_that_has_begun_and_it_stays_ended_when_the_lock_is_gone",
            ),
        ],
    ),
    (
        Description {
            name: "Ticket",
            requires: "Access ends if a ticket check no longer accepts the change ticket.",
        },
        [
            tested(
                EXEC_TICKETS,
                "a_grant_asks_again_at_each_interval_and_ends_when_its_ticket_is_closed",
            ),
            tested(
                POD_RULES,
                "dedicated_pod_ends_when_its_change_ticket_is_closed",
            ),
            tested(
                "e2e/tests/audit/binding_tickets.rs",
                "approved_binding_ends_when_its_ticket_is_closed",
            ),
            tested(
                EVERY_BINDING,
                "closed_ticket_ends_binding_of_both_kinds_of_oz",
            ),
            absent("no field for a change ticket"),
            tested(
                "e2e/tests/audit/run_tickets.rs",
                "approved_run_ends_early_when_its_ticket_is_closed",
            ),
        ],
    ),
    (
        Description {
            name: "OnCall",
            requires: "Access ends if the on-call check that replaced an approval no longer accepts the requester.",
        },
        [
            tested(
                "crates/core/src/access/exec/tests/on_call.rs",
                "grant_asks_at_each_interval_and_ends_with_the_shift",
            ),
            tested(
                POD_RULES,
                "dedicated_pod_ends_with_the_shift_that_replaced_its_approval",
            ),
            NO_ON_CALL,
            NO_ON_CALL,
            NO_ON_CALL,
            NO_ON_CALL,
        ],
    ),
    (
        Description {
            name: "Template",
            requires: "Access ends with a change of its template, if the template says so.",
        },
        [
            tested(
                "crates/core/src/access/exec/tests/granting.rs",
                "a_changed_template_ends_its_grants_only_if_it_said_so",
            ),
            tested(
                POD_ENDING,
                "a_changed_template_ends_its_grants_only_if_it_said_so",
            ),
            NO_TEMPLATE,
            NO_TEMPLATE,
            NO_TEMPLATE,
            absent("no such field: a run keeps the template that it began with"),
        ],
    ),
];
