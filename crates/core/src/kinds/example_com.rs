//! The rules of the kinds as they were published, `example.com/v1`: see [`oz_api::example_com`].

use oz_api::example_com::{ClusterRoleBinding, RoleBinding};

use super::published_binding;

published_binding!(RoleBinding, "TransientRoleBinding.example.com", false);
published_binding!(
    ClusterRoleBinding,
    "TransientClusterRoleBinding.example.com",
    true
);
