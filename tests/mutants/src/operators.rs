//! Neighbours of operators and methods.

use syn::BinOp;

use crate::mutant::Kind;

/// Operators that an operator is replaced by.
pub fn neighbours(operator: &BinOp) -> (Kind, &'static [&'static str]) {
    match operator {
        BinOp::Lt(_) => (Kind::Comparison, &["<=", ">="]),
        BinOp::Le(_) => (Kind::Comparison, &["<", ">"]),
        BinOp::Gt(_) => (Kind::Comparison, &[">=", "<="]),
        BinOp::Ge(_) => (Kind::Comparison, &[">", "<"]),
        BinOp::Eq(_) => (Kind::Comparison, &["!="]),
        BinOp::Ne(_) => (Kind::Comparison, &["=="]),
        BinOp::And(_) => (Kind::Logic, &["||"]),
        BinOp::Or(_) => (Kind::Logic, &["&&"]),
        BinOp::Add(_) => (Kind::Arithmetic, &["-"]),
        BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_) => (Kind::Arithmetic, &["+"]),
        BinOp::AddAssign(_) => (Kind::Arithmetic, &["-="]),
        BinOp::SubAssign(_) => (Kind::Arithmetic, &["+="]),
        BinOp::BitAnd(_) => (Kind::Logic, &["|"]),
        BinOp::BitOr(_) => (Kind::Logic, &["&"]),
        _ => (Kind::Arithmetic, &[]),
    }
}

/// Reports whether an operator assigns.
pub fn assigns(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// Pairs of methods that stand for each other.
const METHODS: [(&str, &str, Kind); 9] = [
    ("min", "max", Kind::Method),
    ("min_by_key", "max_by_key", Kind::Method),
    ("any", "all", Kind::Method),
    ("first", "last", Kind::Method),
    ("is_some", "is_none", Kind::Method),
    ("is_ok", "is_err", Kind::Method),
    ("is_some_and", "is_none_or", Kind::Method),
    ("saturating_add", "saturating_sub", Kind::Arithmetic),
    ("checked_add", "checked_sub", Kind::Arithmetic),
];

/// Method that stands for another one.
pub fn opposite(method: &str) -> Option<(&'static str, Kind)> {
    METHODS.iter().find_map(|(one, other, kind)| match method {
        m if m == *one => Some((*other, *kind)),
        m if m == *other => Some((*one, *kind)),
        _ => None,
    })
}

/// Reports whether a method takes a closure that decides.
pub fn takes_predicate(method: &str) -> bool {
    [
        "filter",
        "any",
        "all",
        "position",
        "find",
        "retain",
        "take_while",
        "skip_while",
        "is_some_and",
        "is_none_or",
        "partition",
    ]
    .contains(&method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposites_work_in_both_directions() {
        assert_eq!(opposite("min"), Some(("max", Kind::Method)));
        assert_eq!(opposite("max"), Some(("min", Kind::Method)));
        assert_eq!(opposite("saturating_sub"), Some(("saturating_add", Kind::Arithmetic)));
        assert_eq!(opposite("map"), None);
    }
}
