//! The rules of [`TransientClusterRoleBinding`].

use oz_api::TransientClusterRoleBinding;

use super::own_binding;

own_binding!(TransientClusterRoleBinding, true);
