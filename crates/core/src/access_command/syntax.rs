//! Converts the text of a command to a tree that gotmpl can run as Go would: unsupported syntax is refused,
//! unknown variables are found, and fields are looked up by a function of our own.

use std::sync::Arc;

use gotmpl::parse::{
    ActionNode, BranchNode, CommandNode, Expr, ListNode, Node, Parser, PipeNode, Pos, SmolStr,
    TextNode,
};

use super::AccessCommandError;
use super::functions::{BOUNDED, FIELD, ITERABLE, PRINTING, SUPPORTED};

type Result<T> = std::result::Result<T, AccessCommandError>;

/// The template's name in messages.
pub(super) const NAME: &str = "accessCommand";

/// The mark that follows the text when it is parsed. gotmpl accepts a missing or superfluous `{{end}}`
/// without an error, and then this mark is not the last item at the top level.
const END: &str = "\0end";

/// The maximum number of actions, and of parentheses, in a command. Each may be inside of the one before, and
/// all code that handles them is recursive: hundreds overflow a stack.
const MAX_DEPTH: usize = 64;

/// Parses a command, and counts the operations of each iteration.
pub(super) fn parse(source: &str) -> Result<(ListNode, usize)> {
    if source.contains('\0') {
        return Err(AccessCommandError::Syntax(
            "contains a NUL character".to_owned(),
        ));
    }
    if source.matches("{{").count() > MAX_DEPTH || source.matches('(').count() > MAX_DEPTH {
        return Err(AccessCommandError::Syntax(format!(
            "has more than {MAX_DEPTH} actions or parentheses"
        )));
    }
    let text = format!("{source}{END}");
    let syntax = |error: gotmpl::TemplateError| AccessCommandError::Syntax(error.to_string());
    let (mut tree, definitions) = Parser::with_name(Some(NAME), &text, "{{", "}}")
        .and_then(Parser::parse)
        .map_err(syntax)?;
    if !definitions.is_empty() {
        return Err(unsupported("define"));
    }
    match tree.nodes.pop() {
        Some(Node::Text(TextNode { pos, text })) if text.ends_with(END) => {
            tree.nodes.push(Node::Text(TextNode {
                pos,
                text: Arc::from(text.trim_end_matches(END)),
            }));
        }
        _ => {
            return Err(AccessCommandError::Syntax(
                "{{if}}, {{with}} and {{range}} need an {{end}} each, and nothing else has one"
                    .to_owned(),
            ));
        }
    }
    let mut checked = Checked {
        variables: vec![SmolStr::new_static("$")],
        operations: 0,
    };
    let tree = checked.list(tree)?;
    Ok((tree, checked.operations))
}

fn unsupported(what: impl Into<String>) -> AccessCommandError {
    AccessCommandError::Unsupported(what.into())
}

/// The walk over a tree that makes the changes, with the variables in scope.
struct Checked {
    variables: Vec<SmolStr>,
    operations: usize,
}

impl Checked {
    fn list(&mut self, list: ListNode) -> Result<ListNode> {
        let nodes = list.nodes.into_iter().map(|node| self.node(node));
        Ok(ListNode {
            pos: list.pos,
            nodes: nodes.collect::<Result<_>>()?,
        })
    }

    fn node(&mut self, node: Node) -> Result<Node> {
        self.operations += 1;
        Ok(match node {
            Node::Text(text) => Node::Text(text),
            Node::List(list) => Node::List(self.list(list)?),
            Node::Action(ActionNode { pos, pipe }) => Node::Action(ActionNode {
                pos,
                pipe: self.pipe(pipe)?,
            }),
            Node::If(branch) => Node::If(self.branch(branch)?),
            Node::With(branch) => Node::With(self.branch(branch)?),
            Node::Range(branch) => {
                let mut branch = self.branch(branch)?;
                let pos = branch.pipe.pos;
                branch.pipe.commands.push(call(pos, ITERABLE, Vec::new()));
                Node::Range(branch)
            }
            Node::Template(_) => return Err(unsupported("template")),
            Node::Define(_) => return Err(unsupported("define")),
            Node::Break(_) => return Err(unsupported("break")),
            Node::Continue(_) => return Err(unsupported("continue")),
        })
    }

    /// Checks a branch; a variable that is declared in it is in scope until its end.
    fn branch(&mut self, branch: BranchNode) -> Result<BranchNode> {
        let outside = self.variables.len();
        let branch = BranchNode {
            pos: branch.pos,
            pipe: self.pipe(branch.pipe)?,
            body: self.list(branch.body)?,
            else_body: branch.else_body.map(|body| self.list(body)).transpose()?,
        };
        self.variables.truncate(outside);
        Ok(branch)
    }

    fn pipe(&mut self, mut pipe: PipeNode) -> Result<PipeNode> {
        let mut commands = Vec::with_capacity(pipe.commands.len());
        for command in pipe.commands {
            let pos = command.pos;
            let prints = matches!(
                command.args.first(),
                Some(Expr::Identifier(_, name)) if PRINTING.contains(&name.as_str())
            );
            let arguments = command
                .args
                .into_iter()
                .map(|argument| self.expression(argument));
            commands.push(CommandNode {
                pos,
                args: arguments.collect::<Result<_>>()?,
            });
            if prints {
                commands.push(call(pos, BOUNDED, Vec::new()));
            }
        }
        pipe.commands = commands;
        for name in &pipe.decl {
            if pipe.is_assign {
                self.check_variable(name)?;
            } else {
                self.variables.push(name.clone());
            }
        }
        Ok(pipe)
    }

    fn expression(&mut self, expression: Expr) -> Result<Expr> {
        self.operations += 1;
        Ok(match expression {
            Expr::Dot(_) | Expr::String(..) | Expr::Number(..) | Expr::Bool(..) | Expr::Nil(_) => {
                expression
            }
            Expr::Identifier(_, ref name) if SUPPORTED.contains(&name.as_str()) => expression,
            Expr::Identifier(_, name) => return Err(unsupported(format!("function {name:?}"))),
            Expr::Field(pos, names) => field(pos, Expr::Dot(pos), names),
            Expr::Variable(pos, name, names) => {
                self.check_variable(&name)?;
                field(pos, Expr::Variable(pos, name, Vec::new()), names)
            }
            Expr::Pipe(pos, pipe) => Expr::Pipe(pos, self.pipe(pipe)?),
            Expr::Chain(pos, inner, names) => field(pos, self.expression(*inner)?, names),
        })
    }

    fn check_variable(&self, name: &SmolStr) -> Result<()> {
        if self.variables.contains(name) {
            Ok(())
        } else {
            Err(AccessCommandError::Syntax(format!(
                "undefined variable {name:?}"
            )))
        }
    }
}

/// Replaces `receiver.A.B` by a call of oz's own function.
fn field(pos: Pos, receiver: Expr, names: Vec<SmolStr>) -> Expr {
    if names.is_empty() {
        return receiver;
    }
    let mut arguments = vec![receiver];
    arguments.extend(
        names
            .into_iter()
            .map(|name| Expr::String(pos, Arc::from(name.as_str()))),
    );
    Expr::Pipe(
        pos,
        PipeNode {
            pos,
            decl: Vec::new(),
            commands: vec![call(pos, FIELD, arguments)],
            is_assign: false,
        },
    )
}

fn call(pos: Pos, function: &'static str, arguments: Vec<Expr>) -> CommandNode {
    let mut args = vec![Expr::Identifier(pos, SmolStr::new_static(function))];
    args.extend(arguments);
    CommandNode { pos, args }
}
