//! The rules of [`TransientRoleBinding`].

use oz_api::TransientRoleBinding;

use super::own_binding;

own_binding!(TransientRoleBinding, false);
