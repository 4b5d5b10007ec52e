//! The verbs, one module each. To add one: a module with a `clap::Args` that has
//! `async fn run(self, context: &Context) -> Result<Exit>`, and its line below. Its doc comment is
//! its help.

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
pub(crate) use crate::request::go_duration;

macro_rules! verbs {
    ($($heading:literal { $($module:ident :: $Verb:ident,)* })*) => {
        $($(pub(crate) mod $module;)*)*

        /// The headings of the help, and how many verbs each has, in the order of the verbs.
        pub(crate) const HEADINGS: &[(&str, usize)] =
            &[$(($heading, [$(stringify!($Verb)),*].len())),*];

        /// The commands of ozctl.
        #[derive(Subcommand)]
        pub(crate) enum Verb {
            $($(
                #[allow(missing_docs, reason = "the help is that of the arguments")]
                $Verb($module::$Verb),
            )*)*
        }

        impl Verb {
            pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
                match self {
                    // Some verbs are large futures; they need not all fit on one stack.
                    $($(Self::$Verb(verb) => Box::pin(verb.run(context)).await,)*)*
                }
            }
        }
    };
}

verbs! {
    "Access" {
        exec::Exec,
        pod::Pod,
        logs::Logs,
        cp::Cp,
        port_forward::PortForward,
        bind::Bind,
        templates::Templates,
        requests::Requests,
        revoke::Revoke,
        extend::Extend,
        explain::Explain,
        kubeconfig::Kubeconfig,
        create::Create,
        get::Get,
    }
    "Approvals" {
        approvals::Approvals,
        approve::Approve,
        deny::Deny,
        reviews::Reviews,
        review::Review,
        watch::Watch,
    }
    "Sessions" {
        sessions::Sessions,
        lock::Lock,
        unlock::Unlock,
        locks::Locks,
    }
    "Agents" {
        run::Run,
        workspace::Workspace,
        policy::Policy,
    }
    "Audit" {
        audit::Audit,
    }
    "Administration" {
        lint::Lint,
        doctor::Doctor,
        report::Report,
        composites::Composites,
        rego::Rego,
        completion::Completion,
        options::Options,
        version::Version,
    }
}
