//! The tests of the rules before a grant, by kind.

use super::cell::{
    BINDING_ORDER, CLUSTER_ORDER, Cell, EXEC_ORDER, KINDS, POD_ORDER, PUBLISHED_ORDER, RUN_ORDER,
    absent, tested,
};

const EXEC_APPROVING: &str = "crates/core/src/access/exec/tests/approving.rs";
const EXEC_EMERGENCIES: &str = "crates/core/src/access/exec/tests/emergencies.rs";
const EXEC_REFUSING: &str = "crates/core/src/access/exec/tests/refusing.rs";
const EXEC_TICKETS: &str = "crates/core/src/access/exec/tests/tickets.rs";
const BINDING_APPROVING: &str = "crates/core/src/transient/tests/approving.rs";
const BINDING_EMERGENCIES: &str = "crates/core/src/transient/tests/emergencies.rs";
const BINDING_REFUSING: &str = "crates/core/src/transient/tests/refusing.rs";
const BINDING_TICKETS: &str = "crates/core/src/transient/tests/tickets.rs";
const PUBLISHED: &str = "crates/core/src/transient/tests/published.rs";
const RUN_APPROVING: &str = "crates/runs/tests/harness/approving.rs";
const RUN_TICKETS: &str = "crates/runs/tests/harness/tickets.rs";
const RUNS: &str = "crates/runs/tests/harness/runs.rs";

/// The cell of a kind without templates.
const NO_TEMPLATE: Cell = absent("no template");
/// The cell of a kind without sessions.
const NO_GATE: Cell = absent("no session of a user: no gate");
/// The cell of a kind with limits that the webhook enforces.
const AT_CREATION: Cell =
    absent("limits of a user and of a namespace, which the webhook enforces at creation");
/// The cell of a kind without emergencies.
const NO_EMERGENCY: Cell = absent("no field for an emergency");

/// The rows, in the order of the rules: the name of the rule, and its cell for each kind.
pub(super) const ROWS: &[(&str, [Cell; KINDS])] = &[
    (
        "Spec",
        [
            tested(
                EXEC_REFUSING,
                "a_duration_that_means_nothing_fails_the_request_in_the_words_that_scripts_know",
            ),
            POD_ORDER,
            tested(
                "crates/core/src/transient/tests/admission.rs",
                "invalid_binding_that_was_stored_fails_with_cause",
            ),
            CLUSTER_ORDER,
            PUBLISHED_ORDER,
            RUN_ORDER,
        ],
    ),
    (
        "Stamp",
        [
            tested(
                EXEC_REFUSING,
                "unverified_or_unlisted_requester_is_denied_permanently",
            ),
            POD_ORDER,
            tested(
                BINDING_REFUSING,
                "binding_that_is_not_permitted_is_denied_permanently",
            ),
            CLUSTER_ORDER,
            PUBLISHED_ORDER,
            RUN_ORDER,
        ],
    ),
    (
        "Lock",
        [
            tested(
                "crates/core/src/access/exec/tests/locking.rs",
                "locked_request_is_denied_and_stays_denied_after_unlock",
            ),
            POD_ORDER,
            tested(
                "crates/core/src/transient/tests/locking.rs",
                "a_lock_refuses_one_that_is_not_made_yet_also_before_its_window",
            ),
            CLUSTER_ORDER,
            PUBLISHED_ORDER,
            tested(
                RUNS,
                "a_lock_refuses_a_run_that_has_not_begun_and_one_that_cannot_be_read_holds_it_back",
            ),
        ],
    ),
    (
        "Template",
        [
            EXEC_ORDER,
            tested(
                "crates/core/src/access/pod/tests/granting.rs",
                "a_template_that_is_being_deleted_grants_nothing_more",
            ),
            NO_TEMPLATE,
            NO_TEMPLATE,
            NO_TEMPLATE,
            tested(
                RUNS,
                "run_does_not_begin_by_template_or_base_that_is_being_deleted",
            ),
        ],
    ),
    (
        "Permission",
        [
            tested(
                EXEC_REFUSING,
                "unverified_or_unlisted_requester_is_denied_permanently",
            ),
            POD_ORDER,
            absent("no template: the right to bind the role is checked after all rules"),
            absent("no template: the right to bind the role is checked after all rules"),
            absent("no template: the right to bind the role is checked after all rules"),
            RUN_ORDER,
        ],
    ),
    (
        "AccessPolicy",
        [
            tested(
                "crates/core/src/access/exec/tests/judged.rs",
                "a_sealed_refusal_is_a_denial",
            ),
            POD_ORDER,
            tested(
                BINDING_APPROVING,
                "policies_refuse_ask_for_a_reason_and_shorten",
            ),
            CLUSTER_ORDER,
            PUBLISHED_ORDER,
            tested(
                RUN_APPROVING,
                "access_policies_deny_shorten_and_require_approval",
            ),
        ],
    ),
    (
        "Gate",
        [EXEC_ORDER, POD_ORDER, NO_GATE, NO_GATE, NO_GATE, NO_GATE],
    ),
    (
        "Terms",
        [
            tested(
                EXEC_REFUSING,
                "request_waits_for_condition_that_may_recover",
            ),
            POD_ORDER,
            NO_TEMPLATE,
            NO_TEMPLATE,
            NO_TEMPLATE,
            RUN_ORDER,
        ],
    ),
    (
        "Emergency",
        [
            tested(
                EXEC_EMERGENCIES,
                "a_template_that_says_it_in_a_way_that_cannot_be_used_grants_nothing",
            ),
            tested(
                "crates/core/src/access/pod/tests/rules.rs",
                "emergency_with_invalid_terms_gets_no_dedicated_pod",
            ),
            tested(
                "e2e/tests/audit/binding_tickets.rs",
                "emergency_binding_is_bound_without_approval_announced_and_reviewed",
            ),
            tested(
                BINDING_EMERGENCIES,
                "review_of_cluster_wide_emergency_is_about_no_namespace",
            ),
            NO_EMERGENCY,
            RUN_ORDER,
        ],
    ),
    (
        "Capacity",
        [
            AT_CREATION,
            AT_CREATION,
            tested(
                "crates/core/src/transient/tests/waiting.rs",
                "binding_beyond_the_waiting_ones_of_its_requester_is_denied",
            ),
            CLUSTER_ORDER,
            PUBLISHED_ORDER,
            tested(
                "e2e/tests/harness/runs.rs",
                "no_more_runs_are_live_than_a_policy_lets",
            ),
        ],
    ),
    (
        "Ticket",
        [
            tested(
                EXEC_TICKETS,
                "a_request_waits_until_its_server_has_answered_and_asks_once",
            ),
            POD_ORDER,
            tested(
                BINDING_TICKETS,
                "binding_waits_for_every_check_and_is_denied_by_one",
            ),
            CLUSTER_ORDER,
            tested(
                BINDING_TICKETS,
                "published_kind_is_denied_and_told_of_the_kind_of_oz",
            ),
            tested(
                RUN_TICKETS,
                "response_about_ticket_decides_whether_run_begins",
            ),
        ],
    ),
    (
        "Approval",
        [
            tested(
                EXEC_APPROVING,
                "nothing_is_written_for_a_request_until_it_is_approved_and_its_status_says_who_may",
            ),
            POD_ORDER,
            tested(
                BINDING_APPROVING,
                "binding_waits_without_write_and_its_duration_starts_at_approval",
            ),
            tested(
                "e2e/tests/transient/approving.rs",
                "cluster_binding_is_approved_in_namespace_of_oz",
            ),
            tested(
                BINDING_APPROVING,
                "a_published_kind_cannot_wait_and_is_denied",
            ),
            tested(
                RUN_APPROVING,
                "run_waits_for_approval_and_asks_approvers_once",
            ),
        ],
    ),
    (
        "Window",
        [
            EXEC_ORDER,
            POD_ORDER,
            tested(
                "crates/core/src/transient/tests/window.rs",
                "both_ends_of_the_window_hold_to_the_nanosecond",
            ),
            CLUSTER_ORDER,
            tested(PUBLISHED, "the_four_published_cases_of_the_policy_hold"),
            absent("no window: the timeout begins with the run"),
        ],
    ),
    (
        "FirstStamp",
        [
            tested(
                EXEC_REFUSING,
                "unverified_or_unlisted_requester_is_denied_permanently",
            ),
            POD_ORDER,
            tested(
                BINDING_REFUSING,
                "binding_that_is_not_permitted_is_denied_permanently",
            ),
            CLUSTER_ORDER,
            PUBLISHED_ORDER,
            RUN_ORDER,
        ],
    ),
    (
        "TicketNow",
        [
            tested(
                EXEC_TICKETS,
                "an_answer_from_before_the_request_or_from_long_ago_is_none",
            ),
            POD_ORDER,
            BINDING_ORDER,
            CLUSTER_ORDER,
            absent("no field for a change ticket: denied by the rule AccessPolicy"),
            tested(
                RUN_TICKETS,
                "server_is_asked_while_run_waits_and_again_after_missing_response",
            ),
        ],
    ),
    (
        "Reviews",
        [
            tested(
                EXEC_EMERGENCIES,
                "requester_template_open_reviews_and_approvals_decide",
            ),
            POD_ORDER,
            tested(
                BINDING_EMERGENCIES,
                "unreviewed_emergencies_of_requester_limit_further_ones",
            ),
            CLUSTER_ORDER,
            NO_EMERGENCY,
            tested(
                "e2e/tests/audit/run_emergencies.rs",
                "emergency_run_begins_without_approval_and_its_review_makes_room",
            ),
        ],
    ),
];
