//! The rules of the kinds as they were published, `example.com/v1`: see [`oz_api::example_com`].

use oz_api::example_com::{ClusterRoleBinding, RoleBinding};

use super::published_binding;

published_binding!(
    RoleBinding,
    "example-com-transientrolebinding",
    "TransientRoleBinding.example.com",
    false
);
published_binding!(
    ClusterRoleBinding,
    "example-com-transientclusterrolebinding",
    "TransientClusterRoleBinding.example.com",
    true
);
