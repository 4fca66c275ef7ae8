//! Parser: builds a tree of the tokens. It finds faults that hold for every machine: unknown fields, functions and
//! keywords.

use cketerm_model::text::nearest;

use super::{
    Fault,
    lex::{Token, TokenKind},
};

/// A part of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// Literal text.
    Text(String),
    /// The value of an expression.
    Show(Expr),
    /// One of two branches.
    If { test: Expr, yes: Vec<Node>, no: Vec<Node> },
}

/// An expression and the place where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expr {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Text(String),
    Number(i64),
    Flag(bool),
    Field(Field),
    Call(Function, Vec<Expr>),
}

/// A field of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Serial,
    Rack,
    IndexInRack,
    Role,
    Ipv4,
    RegisterDate(Option<DatePart>),
    RetireDate(Option<DatePart>),
    Labels,
    Label(String),
    BmcType,
    BmcIpv4,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DatePart {
    Year,
    Format(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Index,
    Printf,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Not,
}

const FUNCTIONS: [(&str, Function, usize, usize); 11] = [
    ("index", Function::Index, 2, 2),
    ("printf", Function::Printf, 1, usize::MAX),
    ("eq", Function::Eq, 2, usize::MAX),
    ("ne", Function::Ne, 2, 2),
    ("lt", Function::Lt, 2, 2),
    ("le", Function::Le, 2, 2),
    ("gt", Function::Gt, 2, 2),
    ("ge", Function::Ge, 2, 2),
    ("and", Function::And, 1, usize::MAX),
    ("or", Function::Or, 1, usize::MAX),
    ("not", Function::Not, 1, 1),
];
const FIELDS: [&str; 9] =
    ["Serial", "Rack", "IndexInRack", "Role", "IPv4", "RegisterDate", "RetireDate", "Labels", "BMC"];
const UNSUPPORTED_KEYWORDS: [&str; 8] = ["range", "with", "define", "template", "block", "break", "continue", "nil"];

pub(super) fn parse(tokens: Vec<Token>) -> Result<Vec<Node>, Fault> {
    let end = tokens.last().map_or(0, |t| t.at);
    let mut reader = Parser { tokens: tokens.into_iter().peekable(), end, branches: 0, parentheses: 0 };
    let (nodes, stop) = reader.list()?;
    match stop {
        None => Ok(nodes),
        Some((at, word)) => Err(Fault::new(at, format!("{{{{ {word} }}}} without an if before it"))),
    }
}

/// Limit of nested ifs, of nested parentheses, and of commands in a pipeline. A template in etcd must not be able to
/// crash every engine that reads it.
const MAX_DEPTH: usize = 64;

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    end: usize,
    branches: usize,
    parentheses: usize,
}

/// Enters one more level, or fails.
fn check_depth(depth: &mut usize, at: usize, what: &str) -> Result<(), Fault> {
    *depth += 1;
    if *depth > MAX_DEPTH { Err(Fault::new(at, format!("more than {MAX_DEPTH} {what}"))) } else { Ok(()) }
}

/// End of a list of nodes: the place and the keyword, `else` or `end`.
type Stop = (usize, String);

impl Parser {
    /// Reads nodes up to `else`, `end` or the end of the text.
    fn list(&mut self) -> Result<(Vec<Node>, Option<Stop>), Fault> {
        let mut nodes = Vec::new();
        while let Some(token) = self.tokens.next() {
            match token.what {
                TokenKind::Text(text) => nodes.push(Node::Text(text)),
                _ => match self.keyword() {
                    Some((at, word)) if word == "if" => nodes.push(self.branch(at)?),
                    Some((at, word)) if word == "else" || word == "end" => return Ok((nodes, Some((at, word)))),
                    Some((at, word)) => return Err(Fault::new(at, format!("{word} is not supported in labels"))),
                    None => {
                        let shown = self.pipeline()?;
                        self.close()?;
                        nodes.push(Node::Show(shown));
                    }
                },
            }
        }
        Ok((nodes, None))
    }

    /// Reads a keyword that is no function.
    fn keyword(&mut self) -> Option<(usize, String)> {
        let is = |t: &Token| match &t.what {
            TokenKind::Word(word) => {
                matches!(word.as_str(), "if" | "else" | "end") || UNSUPPORTED_KEYWORDS.contains(&word.as_str())
            }
            _ => false,
        };
        let token = self.tokens.next_if(is)?;
        match token.what {
            TokenKind::Word(word) => Some((token.at, word)),
            _ => None,
        }
    }

    fn branch(&mut self, at: usize) -> Result<Node, Fault> {
        check_depth(&mut self.branches, at, "ifs within each other")?;
        let branch = self.parse_branch(at);
        self.branches -= 1;
        branch
    }

    fn parse_branch(&mut self, at: usize) -> Result<Node, Fault> {
        let test = self.pipeline()?;
        self.close()?;
        let (yes, stop) = self.list()?;
        let unfinished = || Fault::new(at, "the if has no {{ end }}");
        let (stopped_at, word) = stop.ok_or_else(unfinished)?;
        if word == "end" {
            self.close()?;
            return Ok(Node::If { test, yes, no: Vec::new() });
        }
        if let Some((next, word)) = self.keyword() {
            if word != "if" {
                return Err(Fault::new(next, format!("{word} cannot follow else")));
            }
            // an `else if` shares the `end` of the whole
            return Ok(Node::If { test, yes, no: vec![self.branch(next)?] });
        }
        self.close()?;
        let (no, stop) = self.list()?;
        match stop {
            Some((_, word)) if word == "end" => self.close()?,
            Some((second, _)) => return Err(Fault::new(second, "a second else")),
            None => return Err(Fault::new(stopped_at, "the else has no {{ end }}")),
        }
        Ok(Node::If { test, yes, no })
    }

    fn close(&mut self) -> Result<(), Fault> {
        match self.tokens.next() {
            Some(Token { what: TokenKind::Close, .. }) => Ok(()),
            Some(other) => Err(Fault::new(other.at, "expected }}")),
            None => Err(Fault::new(self.end, "expected }}")),
        }
    }

    fn pipeline(&mut self) -> Result<Expr, Fault> {
        let (mut value, mut pipes) = (self.command(None)?, 0);
        while let Some(pipe) = self.tokens.next_if(|t| t.what == TokenKind::Pipe) {
            check_depth(&mut pipes, pipe.at, "commands in a pipeline")?;
            value = self.command(Some(value))?;
        }
        Ok(value)
    }

    /// Reads one command of a pipeline. The value before it becomes its last argument.
    fn command(&mut self, piped: Option<Expr>) -> Result<Expr, Fault> {
        let end = self.end;
        let at = self.tokens.peek().map_or(end, |t| t.at);
        let function = self.tokens.next_if(|t| matches!(&t.what, TokenKind::Word(w) if w != "true" && w != "false"));
        let Some(token) = function else {
            let first = self.operand(at)?;
            let mut arguments = self.operands()?;
            arguments.extend(piped);
            return match arguments.into_iter().next() {
                None => Ok(first),
                Some(argument) => Err(Fault::new(argument.at, "only a function takes arguments")),
            };
        };
        let TokenKind::Word(name) = token.what else { return Err(Fault::new(at, "expected a function")) };
        let Some(&(_, function, least, most)) = FUNCTIONS.iter().find(|f| f.0 == name) else {
            let known = FUNCTIONS.map(|f| f.0);
            let hint = nearest(&name, known)
                .map_or_else(|| format!("known: {}", known.join(", ")), |near| format!("did you mean {near}?"));
            return Err(Fault::new(at, format!("{name} is not a known function; {hint}")));
        };
        let mut arguments = self.operands()?;
        arguments.extend(piped);
        if arguments.len() < least || arguments.len() > most {
            let wanted = if least == most { format!("{least}") } else { format!("at least {least}") };
            return Err(Fault::new(at, format!("{name} takes {wanted} arguments, not {}", arguments.len())));
        }
        Ok(Expr { at, kind: Kind::Call(function, arguments) })
    }

    fn operands(&mut self) -> Result<Vec<Expr>, Fault> {
        let mut out = Vec::new();
        while let Some(token) = self.tokens.peek() {
            if matches!(token.what, TokenKind::Pipe | TokenKind::Right | TokenKind::Close) {
                break;
            }
            let at = token.at;
            out.push(self.operand(at)?);
        }
        Ok(out)
    }

    fn operand(&mut self, at: usize) -> Result<Expr, Fault> {
        let token = self.tokens.next().ok_or_else(|| Fault::new(at, "something is missing"))?;
        let kind = match token.what {
            TokenKind::Quoted(text) => Kind::Text(text),
            TokenKind::Number(n) => Kind::Number(n),
            TokenKind::Word(word) if word == "true" || word == "false" => Kind::Flag(word == "true"),
            TokenKind::Word(word) if FUNCTIONS.iter().any(|f| f.0 == word) => {
                return Err(Fault::new(at, format!("put {word} and its arguments in parentheses")));
            }
            TokenKind::Word(word) => return Err(Fault::new(at, format!("unexpected {word}"))),
            TokenKind::Left => {
                check_depth(&mut self.parentheses, at, "parentheses within each other")?;
                let inner = self.pipeline()?;
                self.parentheses -= 1;
                return match self.tokens.next() {
                    Some(Token { what: TokenKind::Right, .. }) => Ok(inner),
                    _ => Err(Fault::new(at, "the parenthesis is not closed")),
                };
            }
            TokenKind::Field(names) => {
                let field = self.field(at, &names)?;
                Kind::Field(field)
            }
            TokenKind::Close => return Err(Fault::new(at, "something is missing before }}")),
            TokenKind::Pipe => return Err(Fault::new(at, "something is missing before |")),
            TokenKind::Right => return Err(Fault::new(at, "a closing parenthesis has no opening one")),
            TokenKind::Text(_) | TokenKind::Open => return Err(Fault::new(at, "an action within an action")),
        };
        Ok(Expr { at, kind })
    }

    fn field(&mut self, at: usize, names: &[String]) -> Result<Field, Fault> {
        let unknown = |name: &str, known: &[&str]| {
            let hint = nearest(name, known.iter().copied())
                .map_or_else(|| format!("known: .{}", known.join(", .")), |near| format!("did you mean .{near}?"));
            Err(Fault::new(at, format!(".{} is not a known field; {hint}", names.join("."))))
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(match names.as_slice() {
            [] => return Err(Fault::new(at, "a machine cannot be printed; name a field such as .Rack")),
            ["Serial"] => Field::Serial,
            ["Rack"] => Field::Rack,
            ["IndexInRack"] => Field::IndexInRack,
            ["Role"] => Field::Role,
            ["IPv4"] => Field::Ipv4,
            ["Labels"] => Field::Labels,
            ["Labels", name] => Field::Label((*name).to_owned()),
            ["BMC", "Type" | "BMCType" | "BmcType"] => Field::BmcType,
            ["BMC", "IPv4"] => Field::BmcIpv4,
            ["BMC"] => return Err(Fault::new(at, ".BMC cannot be printed; name .BMC.Type or .BMC.IPv4")),
            ["BMC", other, ..] => return unknown(other, &["Type", "IPv4"]),
            ["RegisterDate"] => Field::RegisterDate(None),
            ["RegisterDate", part] => Field::RegisterDate(Some(self.date_part(at, part)?)),
            ["RetireDate"] => Field::RetireDate(None),
            ["RetireDate", part] => Field::RetireDate(Some(self.date_part(at, part)?)),
            [first, rest @ ..] if FIELDS.contains(first) => {
                let what = format!(".{first} has no field {}", rest.join("."));
                return Err(Fault::new(at, what));
            }
            [other, ..] => return unknown(other, &FIELDS),
        })
    }

    fn date_part(&mut self, at: usize, part: &str) -> Result<DatePart, Fault> {
        match part {
            "Year" => Ok(DatePart::Year),
            "Format" => match self.tokens.next_if(|t| matches!(t.what, TokenKind::Quoted(_))).map(|t| t.what) {
                Some(TokenKind::Quoted(layout)) => Ok(DatePart::Format(layout)),
                _ => Err(Fault::new(at, "Format needs a layout such as \"2006-01\"")),
            },
            other => Err(Fault::new(at, format!("a date has Year and Format, not {other}"))),
        }
    }
}
