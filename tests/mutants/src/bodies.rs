//! Plain values of a function, by its return type.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// Values that a function may return at once; an empty one for a function that returns nothing.
pub fn values(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, of) => values_of(of),
    }
}

fn values_of(of: &Type) -> Vec<String> {
    let strings = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
    match of {
        Type::Tuple(tuple) if tuple.elems.is_empty() => strings(&["()"]),
        Type::Reference(reference) if last_name(&reference.elem).as_deref() == Some("str") => strings(&["\"\""]),
        Type::Path(_) => match last_name(of).unwrap_or_default().as_str() {
            "bool" => strings(&["true", "false"]),
            "Option" => strings(&["None"]),
            "Vec" | "String" | "BTreeMap" | "BTreeSet" | "HashMap" | "HashSet" => strings(&["Default::default()"]),
            "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => strings(&["0", "1"]),
            "f32" | "f64" => strings(&["0.0", "1.0"]),
            "Result" => first_argument(of)
                .map(|inner| values_of(inner).into_iter().map(|value| format!("Ok({value})")).collect())
                .unwrap_or_default(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn last_name(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

fn first_argument(of: &Type) -> Option<&Type> {
    let Type::Path(path) = of else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        let item: syn::ItemFn = syn::parse_str(&format!("fn f() {text} {{}}")).unwrap();
        values(&item.sig.output)
    }

    #[test]
    fn plain_types_have_values() {
        assert_eq!(of(""), [""]);
        assert_eq!(of("-> bool"), ["true", "false"]);
        assert_eq!(of("-> std::option::Option<Entry>"), ["None"]);
        assert_eq!(of("-> Result<(), Error>"), ["Ok(())"]);
        assert_eq!(of("-> anyhow::Result<Vec<u8>>"), ["Ok(Default::default())"]);
        assert_eq!(of("-> &'static str"), ["\"\""]);
        assert!(of("-> Entry").is_empty());
        assert!(of("-> Result<Entry, Error>").is_empty());
        assert!(of("-> impl Iterator<Item = u8>").is_empty());
    }
}
