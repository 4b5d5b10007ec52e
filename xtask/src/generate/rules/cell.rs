//! The cells of the tables of rules and kinds, their columns, and the cells that several rows have.

/// The number of columns.
pub(super) const KINDS: usize = 6;

/// The columns: the title, and the kinds by the names of their controllers.
pub(super) const COLUMNS: [(&str, &[&str]); KINDS] = [
    ("ExecAccessRequest", &["execaccessrequest"]),
    ("PodAccessRequest", &["podaccessrequest"]),
    ("TransientRoleBinding", &["transientrolebinding"]),
    (
        "TransientClusterRoleBinding",
        &["transientclusterrolebinding"],
    ),
    (
        "both kinds of example.com",
        &[
            "example-com-transientrolebinding",
            "example-com-transientclusterrolebinding",
        ],
    ),
    ("HarnessRun", &["harnessrun"]),
];

/// A rule for the objects of one column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    /// The file of a test, from the root of the repository, and the name of the test.
    Tested(&'static str, &'static str),
    /// The reason why the kind has no such rule.
    Absent(&'static str),
}

/// Creates the cell of a rule with a test.
pub(super) const fn tested(file: &'static str, name: &'static str) -> Cell {
    Cell::Tested(file, name)
}

/// Creates the cell of a kind without the rule.
pub(super) const fn absent(reason: &'static str) -> Cell {
    Cell::Absent(reason)
}

/// The test that breaks each rule of exec access, alone and with each other rule.
pub(super) const EXEC_ORDER: Cell = tested(
    "crates/core/src/access/exec/tests/order.rs",
    "first_broken_rule_decides_about_request",
);
/// The same test of dedicated pods.
pub(super) const POD_ORDER: Cell = tested(
    "crates/core/src/access/pod/tests/order.rs",
    "first_broken_rule_decides_about_request",
);
/// The same test of bindings in a namespace.
pub(super) const BINDING_ORDER: Cell = tested(
    "crates/core/src/transient/tests/order.rs",
    "first_broken_rule_decides_about_binding",
);
/// The same test of cluster-wide bindings.
pub(super) const CLUSTER_ORDER: Cell = tested(
    "crates/core/src/transient/tests/order.rs",
    "first_broken_rule_decides_about_cluster_binding",
);
/// The same test of published bindings.
pub(super) const PUBLISHED_ORDER: Cell = tested(
    "crates/core/src/transient/tests/order.rs",
    "first_broken_rule_decides_about_published_binding",
);
/// The same test of harness runs.
pub(super) const RUN_ORDER: Cell = tested(
    "crates/runs/tests/harness/rule_order.rs",
    "run_that_violates_rules_has_the_outcome_of_the_first",
);
