//! Evaluation of a parsed text for one machine.

use std::{borrow::Cow, cmp::Ordering, fmt::Write as _};

use super::{
    Fault,
    parse::{DatePart, Expr, Field, Function, Kind, Node},
};
use crate::machine::{Date, Machine};

/// Value of an expression.
enum Value<'a> {
    Text(Cow<'a, str>),
    Number(i64),
    Flag(bool),
    List(&'a [String]),
    Labels(&'a [(String, String)]),
}

pub(super) fn run(nodes: &[Node], machine: &Machine, out: &mut String) -> Result<(), Fault> {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Show(expr) => out.push_str(&to_text(expr, &eval(expr, machine)?)?),
            Node::If { test, yes, no } => {
                let branch = if is_truthy(&eval(test, machine)?) { yes } else { no };
                run(branch, machine, out)?;
            }
        }
    }
    Ok(())
}

fn to_text<'a>(expr: &Expr, value: &'a Value<'_>) -> Result<Cow<'a, str>, Fault> {
    match value {
        Value::Text(text) => Ok(Cow::Borrowed(text)),
        Value::Number(n) => Ok(n.to_string().into()),
        Value::Flag(flag) => Ok(flag.to_string().into()),
        Value::List(_) => Err(Fault::new(expr.at, "a list cannot be printed; take an item with index")),
        Value::Labels(_) => {
            Err(Fault::new(expr.at, "the labels cannot be printed; take one with index .Labels \"name\""))
        }
    }
}

fn is_truthy(value: &Value<'_>) -> bool {
    match value {
        Value::Text(text) => !text.is_empty(),
        Value::Number(n) => *n != 0,
        Value::Flag(flag) => *flag,
        Value::List(list) => !list.is_empty(),
        Value::Labels(labels) => !labels.is_empty(),
    }
}

fn eval<'a>(expr: &'a Expr, machine: &'a Machine) -> Result<Value<'a>, Fault> {
    match &expr.kind {
        Kind::Text(text) => Ok(Value::Text(Cow::Borrowed(text))),
        Kind::Number(n) => Ok(Value::Number(*n)),
        Kind::Flag(flag) => Ok(Value::Flag(*flag)),
        Kind::Field(field) => Ok(of(field, machine)),
        Kind::Call(function, arguments) => call(*function, expr, arguments, machine),
    }
}

fn of<'a>(field: &'a Field, machine: &'a Machine) -> Value<'a> {
    let text = |text: &'a str| Value::Text(Cow::Borrowed(text));
    match field {
        Field::Serial => text(&machine.serial),
        Field::Rack => Value::Number(machine.rack),
        Field::IndexInRack => Value::Number(machine.index_in_rack),
        Field::Role => text(&machine.role),
        Field::Ipv4 => Value::List(&machine.ipv4),
        Field::RegisterDate(part) => date(&machine.register_date, part.as_ref()),
        Field::RetireDate(part) => date(&machine.retire_date, part.as_ref()),
        Field::Labels => Value::Labels(&machine.labels),
        Field::Label(name) => label(&machine.labels, name),
        Field::BmcType => text(&machine.bmc_type),
        Field::BmcIpv4 => text(&machine.bmc_ipv4),
    }
}

/// Returns a label. A missing one is empty, as in a map of Go.
fn label<'a>(labels: &'a [(String, String)], name: &str) -> Value<'a> {
    let found = labels.iter().find(|(n, _)| n == name);
    Value::Text(Cow::Borrowed(found.map_or("", |(_, value)| value)))
}

fn date<'a>(date: &Date, part: Option<&DatePart>) -> Value<'a> {
    match part {
        None => Value::Text(date.to_string().into()),
        Some(DatePart::Year) => Value::Number(i64::from(date.civil().year())),
        Some(DatePart::Format(layout)) => {
            let d = date.civil();
            let parts = [
                ("2006", format!("{:04}", d.year())),
                ("01", format!("{:02}", d.month())),
                ("02", format!("{:02}", d.day())),
                ("15", format!("{:02}", d.hour())),
                ("04", format!("{:02}", d.minute())),
                ("05", format!("{:02}", d.second())),
            ];
            let mut out = String::new();
            let mut rest = layout.as_str();
            while let Some(c) = rest.chars().next() {
                if let Some((pattern, value)) = parts.iter().find(|(pattern, _)| rest.starts_with(pattern)) {
                    out.push_str(value);
                    rest = &rest[pattern.len()..];
                } else {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
            Value::Text(out.into())
        }
    }
}

fn call<'a>(
    function: Function,
    expr: &'a Expr,
    arguments: &'a [Expr],
    machine: &'a Machine,
) -> Result<Value<'a>, Fault> {
    // these two evaluate no more arguments than they need
    if matches!(function, Function::And | Function::Or) {
        let mut last = Value::Flag(false);
        for argument in arguments {
            last = eval(argument, machine)?;
            if is_truthy(&last) == (function == Function::Or) {
                break;
            }
        }
        return Ok(last);
    }
    let values = arguments.iter().map(|a| eval(a, machine)).collect::<Result<Vec<_>, _>>()?;
    let compared = |predicate: fn(Ordering) -> bool| match values.as_slice() {
        [a, b] => Ok(Value::Flag(predicate(order(expr, a, b)?))),
        _ => Err(Fault::new(expr.at, "comparing needs two values")),
    };
    match function {
        Function::Index => index(expr, &values),
        Function::Printf => printf(expr, &values).map(|text| Value::Text(text.into())),
        Function::Eq => {
            let Some((first, others)) = values.split_first() else { return Ok(Value::Flag(false)) };
            for other in others {
                if equal(expr, first, other)? {
                    return Ok(Value::Flag(true));
                }
            }
            Ok(Value::Flag(false))
        }
        Function::Ne => match values.as_slice() {
            [a, b] => Ok(Value::Flag(!equal(expr, a, b)?)),
            _ => Err(Fault::new(expr.at, "comparing needs two values")),
        },
        Function::Lt => compared(Ordering::is_lt),
        Function::Le => compared(Ordering::is_le),
        Function::Gt => compared(Ordering::is_gt),
        Function::Ge => compared(Ordering::is_ge),
        Function::Not => Ok(Value::Flag(!values.first().is_some_and(is_truthy))),
        Function::And | Function::Or => Ok(Value::Flag(false)),
    }
}

fn equal(expr: &Expr, a: &Value<'_>, b: &Value<'_>) -> Result<bool, Fault> {
    if let (Value::Flag(a), Value::Flag(b)) = (a, b) {
        return Ok(a == b);
    }
    order(expr, a, b).map(Ordering::is_eq)
}

fn order(expr: &Expr, a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Fault> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Ok(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => Ok(a.cmp(b)),
        _ => Err(Fault::new(expr.at, format!("{} cannot be compared with {}", kind(a), kind(b)))),
    }
}

fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Text(_) => "a text",
        Value::Number(_) => "a number",
        Value::Flag(_) => "true or false",
        Value::List(_) => "a list",
        Value::Labels(_) => "the labels",
    }
}

fn index<'a>(expr: &Expr, values: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    match values {
        [Value::Labels(labels), Value::Text(name)] => Ok(label(labels, name)),
        [Value::List(list), Value::Number(n)] => {
            let item = usize::try_from(*n).ok().and_then(|n| list.get(n));
            let item = item.ok_or_else(|| {
                Fault::new(expr.at, format!("index {n} is out of range: the machine has {} addresses", list.len()))
            })?;
            Ok(Value::Text(Cow::Borrowed(item)))
        }
        [Value::Labels(_), _] => Err(Fault::new(expr.at, "index .Labels needs the label's name in quotes")),
        [Value::List(_), _] => Err(Fault::new(expr.at, "index of a list needs a number")),
        _ => Err(Fault::new(expr.at, "index needs .Labels and a name, or .IPv4 and a number")),
    }
}

/// Limit of a rendered text in bytes, more than any label or annotation may have.
const MAX_TEXT_BYTES: usize = 256 << 10;

fn printf(expr: &Expr, values: &[Value<'_>]) -> Result<String, Fault> {
    let bad = |what: String| Fault::new(expr.at, what);
    let Some((Value::Text(format), mut rest)) = values.split_first() else {
        return Err(bad("printf needs a format in quotes first".to_owned()));
    };
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let (mut left, mut zero) = (false, false);
        while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '0')) {
            left |= flag == '-';
            zero |= flag == '0';
        }
        let mut width = 0_usize;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            chars.next();
            width = (width * 10 + digit as usize).min(64);
        }
        let verb = chars.next().ok_or_else(|| bad("printf: the format ends in a %".to_owned()))?;
        let (value, others) =
            rest.split_first().ok_or_else(|| bad(format!("printf: there is no value for %{verb}")))?;
        rest = others;
        let text = match (verb, value) {
            ('d' | 'v', Value::Number(n)) => n.to_string(),
            ('x', Value::Number(n)) => format!("{n:x}"),
            ('X', Value::Number(n)) => format!("{n:X}"),
            ('s' | 'v', Value::Text(text)) => text.to_string(),
            ('q', Value::Text(text)) => format!("{text:?}"),
            ('t' | 'v', Value::Flag(flag)) => flag.to_string(),
            ('d' | 's' | 'v' | 'q' | 't' | 'x' | 'X', other) => {
                return Err(bad(format!("printf: %{verb} does not fit {}", kind(other))));
            }
            (other, _) => return Err(bad(format!("printf: %{other} is not supported; use %s %d %v %q %t %x"))),
        };
        let number = matches!(value, Value::Number(_));
        let done = match (left, zero && number) {
            (true, _) => write!(out, "{text:<width$}"),
            (false, true) if text.starts_with('-') => {
                write!(out, "-{:0>less$}", &text[1..], less = width.saturating_sub(1))
            }
            (false, true) => write!(out, "{text:0>width$}"),
            (false, false) => write!(out, "{text:>width$}"),
        };
        done.map_err(|e| bad(e.to_string()))?;
        // a %q of a %q can double the length each time
        if out.len() > MAX_TEXT_BYTES {
            return Err(bad(format!("printf: the text has more than {MAX_TEXT_BYTES} bytes")));
        }
    }
    match rest.len() {
        0 => Ok(out),
        n => Err(bad(format!("printf: {n} values too many for the format"))),
    }
}
