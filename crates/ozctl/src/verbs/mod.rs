//! The verbs, one module each. To add one: a module with a `clap::Args` that has
//! `async fn run(self, context: &Context) -> Result<Exit>`, and its line below. Its doc comment is
//! its help.

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

macro_rules! verbs {
    ($($module:ident :: $Verb:ident,)*) => {
        $(mod $module;)*

        /// What ozctl does.
        #[derive(Subcommand)]
        pub(crate) enum Verb {
            $(
                #[allow(missing_docs, reason = "the help is that of the arguments")]
                $Verb($module::$Verb),
            )*
        }

        impl Verb {
            pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
                match self {
                    // Some verbs are large futures; they need not all fit on one stack.
                    $(Self::$Verb(verb) => Box::pin(verb.run(context)).await,)*
                }
            }
        }
    };
}

verbs! {
    create::Create,
    get::Get,
    completion::Completion,
    options::Options,
    version::Version,
}
