//! GraphQL documents, limited to what sabakan's clients use: operations with variables, fields with arguments and
//! aliases.

use serde_json::{Map, Value};

/// Position in the document, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub line: usize,
    pub column: usize,
}

/// Syntax error of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub message: String,
    pub at: Position,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub mutation: bool,
    /// Variable names and defaults.
    pub variables: Vec<(String, Option<Literal>)>,
    pub fields: Vec<Field>,
}

/// A selected field.
#[derive(Debug)]
pub(super) struct Field {
    /// Name of the field in the response.
    pub alias: String,
    pub name: String,
    pub arguments: Vec<(String, Literal)>,
    pub fields: Vec<Field>,
    pub at: Position,
}

/// A value in a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Variable(String),
    /// A word that is not true, false or null.
    Enum(String, Position),
    List(Vec<Literal>),
    Object(Vec<(String, Literal)>),
    /// Numbers, strings, booleans and null.
    Plain(Value),
}

impl Literal {
    /// Converts to JSON and fills in variables. Returns `None` for a variable that was not given.
    pub fn json(&self, variables: &Map<String, Value>) -> Option<Value> {
        Some(match self {
            Self::Variable(name) => return variables.get(name).cloned(),
            Self::Enum(word, _) => Value::String(word.clone()),
            Self::List(items) => items.iter().filter_map(|i| i.json(variables)).collect(),
            Self::Object(fields) => {
                Value::Object(fields.iter().filter_map(|(n, l)| Some((n.clone(), l.json(variables)?))).collect())
            }
            Self::Plain(value) => value.clone(),
        })
    }

    /// Returns every enum value in it.
    pub fn enum_values(&self) -> Vec<(&str, Position)> {
        match self {
            Self::Enum(word, at) => vec![(word, *at)],
            Self::List(items) => items.iter().flat_map(Self::enum_values).collect(),
            Self::Object(fields) => fields.iter().flat_map(|(_, l)| l.enum_values()).collect(),
            Self::Variable(_) | Self::Plain(_) => Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Punctuator(char),
    Name(String),
    Value(Value),
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Punctuator(punctuator) => write!(f, "{punctuator}"),
            Self::Name(name) => write!(f, "Name {name:?}"),
            Self::Value(Value::String(text)) => write!(f, "String {text:?}"),
            Self::Value(value) => write!(f, "Int {value:?}"),
            Self::End => f.write_str("<EOF>"),
        }
    }
}

/// Parses the operations of a document.
pub(super) fn parse(text: &str) -> Result<Vec<Operation>, SyntaxError> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0 };
    let mut operations = Vec::new();
    while parser.peek() != &Token::End {
        operations.push(parser.operation()?);
    }
    Ok(operations)
}

fn tokens(text: &str) -> Result<Vec<(Token, Position)>, SyntaxError> {
    let (mut out, mut at) = (Vec::new(), Position { line: 1, column: 1 });
    let mut rest = text.chars().peekable();
    while let Some(&c) = rest.peek() {
        let start = at;
        let mut taken = String::new();
        let mut take = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>, good: &dyn Fn(char) -> bool| {
            while let Some(c) = rest.next_if(|c| good(*c)) {
                taken.push(c);
                at.column += 1;
            }
            std::mem::take(&mut taken)
        };
        match c {
            '\n' => {
                rest.next();
                at = Position { line: at.line + 1, column: 1 };
            }
            '#' => drop(take(&mut rest, &|c| c != '\n')),
            ' ' | '\t' | '\r' | ',' | '\u{feff}' => drop(take(&mut rest, &|c| " \t\r,\u{feff}".contains(c))),
            '_' | 'a'..='z' | 'A'..='Z' => {
                let name = take(&mut rest, &|c| c == '_' || c.is_ascii_alphanumeric());
                out.push((Token::Name(name), start));
            }
            '-' | '0'..='9' => {
                let number = take(&mut rest, &|c| c.is_ascii_digit() || "-+.eE".contains(c));
                let value = serde_json::from_str(&number);
                let bad = |_| SyntaxError { message: format!("Invalid number, {number:?}."), at: start };
                out.push((Token::Value(value.map_err(bad)?), start));
            }
            '"' => {
                rest.next();
                let (mut raw, mut closed) = (String::from('"'), false);
                while let Some(c) = rest.next_if(|c| *c != '\n') {
                    raw.push(c);
                    if c == '\\' {
                        raw.extend(rest.next());
                    } else if c == '"' {
                        closed = true;
                        break;
                    }
                }
                at.column += raw.chars().count();
                let value = serde_json::from_str(&raw).ok().filter(|_| closed);
                let bad = || SyntaxError { message: "Unterminated string.".to_owned(), at: start };
                out.push((Token::Value(value.ok_or_else(bad)?), start));
            }
            '{' | '}' | '(' | ')' | '[' | ']' | ':' | '=' | '!' | '$' => {
                rest.next();
                at.column += 1;
                out.push((Token::Punctuator(c), start));
            }
            other => {
                let message = format!("Cannot parse the unexpected character {:?}.", other.to_string());
                return Err(SyntaxError { message, at: start });
            }
        }
    }
    out.push((Token::End, at));
    Ok(out)
}

struct Parser {
    tokens: Vec<(Token, Position)>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn at(&self) -> Position {
        self.tokens[self.next].1
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        // The last token is the end of the document, which stays.
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&mut self, punctuator: char) -> bool {
        let yes = self.peek() == &Token::Punctuator(punctuator);
        if yes {
            self.take();
        }
        yes
    }

    fn wrong<T>(&self, expected: &str) -> Result<T, SyntaxError> {
        Err(SyntaxError { message: format!("Expected {expected}, found {}", self.peek()), at: self.at() })
    }

    fn punctuator(&mut self, punctuator: char) -> Result<(), SyntaxError> {
        if self.is(punctuator) { Ok(()) } else { self.wrong(&punctuator.to_string()) }
    }

    fn name(&mut self) -> Result<String, SyntaxError> {
        let Token::Name(name) = self.peek() else { return self.wrong("Name") };
        let name = name.clone();
        self.take();
        Ok(name)
    }

    fn operation(&mut self) -> Result<Operation, SyntaxError> {
        let (mut mutation, mut variables) = (false, Vec::new());
        if self.peek() != &Token::Punctuator('{') {
            let at = self.at();
            match self.name()?.as_str() {
                "query" => {}
                "mutation" => mutation = true,
                other => return Err(SyntaxError { message: format!("Unexpected Name {other:?}"), at }),
            }
            if matches!(self.peek(), Token::Name(_)) {
                self.take();
            }
            if self.is('(') {
                while !self.is(')') {
                    self.punctuator('$')?;
                    let variable = self.name()?;
                    self.punctuator(':')?;
                    self.kind()?;
                    let default = if self.is('=') { Some(self.literal()?) } else { None };
                    variables.push((variable, default));
                }
            }
        }
        let fields = self.selection()?;
        Ok(Operation { mutation, variables, fields })
    }

    /// Parses and ignores a type, because the type of every variable is known.
    fn kind(&mut self) -> Result<(), SyntaxError> {
        if self.is('[') {
            self.kind()?;
            self.punctuator(']')?;
        } else {
            self.name()?;
        }
        self.is('!');
        Ok(())
    }

    fn selection(&mut self) -> Result<Vec<Field>, SyntaxError> {
        self.punctuator('{')?;
        let mut fields = Vec::new();
        loop {
            let at = self.at();
            let first = self.name()?;
            let (alias, name) = if self.is(':') { (first, self.name()?) } else { (first.clone(), first) };
            let mut arguments = Vec::new();
            if self.is('(') {
                while !self.is(')') {
                    let argument = self.name()?;
                    self.punctuator(':')?;
                    arguments.push((argument, self.literal()?));
                }
            }
            let inner = if self.peek() == &Token::Punctuator('{') { self.selection()? } else { Vec::new() };
            fields.push(Field { alias, name, arguments, fields: inner, at });
            if self.is('}') {
                return Ok(fields);
            }
        }
    }

    fn literal(&mut self) -> Result<Literal, SyntaxError> {
        let at = self.at();
        match self.take() {
            Token::Punctuator('$') => Ok(Literal::Variable(self.name()?)),
            Token::Punctuator('[') => {
                let mut items = Vec::new();
                while !self.is(']') {
                    items.push(self.literal()?);
                }
                Ok(Literal::List(items))
            }
            Token::Punctuator('{') => {
                let mut fields = Vec::new();
                while !self.is('}') {
                    let name = self.name()?;
                    self.punctuator(':')?;
                    fields.push((name, self.literal()?));
                }
                Ok(Literal::Object(fields))
            }
            Token::Value(value) => Ok(Literal::Plain(value)),
            Token::Name(word) => Ok(match word.as_str() {
                "true" => Literal::Plain(Value::Bool(true)),
                "false" => Literal::Plain(Value::Bool(false)),
                "null" => Literal::Plain(Value::Null),
                _ => Literal::Enum(word, at),
            }),
            other => Err(SyntaxError { message: format!("Unexpected {other}"), at }),
        }
    }
}
