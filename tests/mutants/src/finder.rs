//! Candidates in one file.
//!
//! Macros, patterns, attributes, types, constants and code for tests are left as they are.

use std::{collections::BTreeMap, ops::Range};

use syn::{
    Attribute, Block, Expr, Meta, Signature, Stmt,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::{
    bodies,
    mutant::{Edit, Kind, Mutant, on_one_line},
    operators,
};

/// Finds the candidates in a file of the workspace.
///
/// # Errors
///
/// Fails if the text is no Rust.
pub fn find(file: &str, text: &str) -> syn::Result<Vec<Mutant>> {
    let parsed = syn::parse_file(text)?;
    let mut finder =
        Finder { file, text, around: Vec::new(), found: Vec::new(), equal: BTreeMap::new(), line_starts: starts(text) };
    if !is_excluded(&parsed.attrs) {
        finder.visit_file(&parsed);
    }
    Ok(finder.found)
}

fn starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// Reports whether an item is only for tests or only for the faults of the simulation.
fn is_excluded(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("test") || path.segments.last().is_some_and(|last| last.ident == "test") {
            return true;
        }
        let Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string();
        path.is_ident("cfg") && (condition == "test" || condition.contains("mutations"))
    })
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    /// Names of the items around the place.
    around: Vec<String>,
    found: Vec<Mutant>,
    /// Number of mutants so far by function, original and mutated text.
    equal: BTreeMap<(String, String, String), usize>,
    line_starts: Vec<usize>,
}

impl Finder<'_> {
    fn add(&mut self, kind: Kind, edit: Edit, original: &str, mutated: &str) {
        let at = edit.range().start;
        let line = self.line_starts.partition_point(|start| *start <= at);
        let column = at - self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or_default() + 1;
        let (function, original, mutated) = (self.around.join("::"), on_one_line(original), on_one_line(mutated));
        let equal = self.equal.entry((function.clone(), original.clone(), mutated.clone())).or_default();
        *equal += 1;
        self.found.push(Mutant {
            id: 0,
            file: self.file.to_owned(),
            line,
            column,
            kind,
            function,
            original,
            mutated,
            nth: *equal,
            edit,
        });
    }

    fn of(&self, node: &impl Spanned) -> &str {
        self.text.get(node.span().byte_range()).unwrap_or_default()
    }

    fn replace(&mut self, kind: Kind, node: &impl Spanned, with: String) {
        let range = node.span().byte_range();
        let original = self.text.get(range.clone()).unwrap_or_default().to_owned();
        let mutated = with.clone();
        self.add(kind, Edit::Replace { range, with }, &original, &mutated);
    }

    /// Text of a node with one part of it replaced.
    fn with(&self, node: &impl Spanned, part: &Range<usize>, other: &str) -> String {
        let range = node.span().byte_range();
        let piece = |range| self.text.get(range).unwrap_or_default();
        format!("{}{other}{}", piece(range.start..part.start), piece(part.end..range.end))
    }

    /// A condition that is always true or always false. Parts of a chain that bind variables stay.
    fn condition(&mut self, condition: &Expr, kind: Kind, values: &[&str]) {
        if binds(condition) {
            if let Expr::Binary(chain) = condition {
                self.condition(&chain.left, kind, values);
                self.condition(&chain.right, kind, values);
            }
            return;
        }
        let text = self.of(condition).to_owned();
        for value in values.iter().filter(|value| **value != text) {
            self.replace(kind, condition, (*value).to_owned());
        }
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let Some(first) = block.stmts.first() else { return };
        if signature.constness.is_some() {
            return;
        }
        let whole = self.of(block).to_owned();
        let inside = whole.trim_start_matches('{').trim_end_matches('}').trim().to_owned();
        let at = first.span().byte_range().start;
        for value in bodies::values(&signature.output) {
            if inside == value || (value == "()" && inside.is_empty()) {
                continue;
            }
            let mutated = if value.is_empty() { "{}".to_owned() } else { format!("{{ {value} }}") };
            self.add(Kind::Body, Edit::Return { at, value }, &whole, &mutated);
        }
    }

    fn statement(&mut self, statement: &Stmt) {
        let Stmt::Expr(expression, Some(_)) = statement else { return };
        if has_effect(expression) && !self.of(expression).starts_with("drop(") {
            let range = statement.span().byte_range();
            let original = self.of(statement).to_owned();
            self.add(Kind::Statement, Edit::Skip { range }, &original, ";");
        }
    }

    fn expression(&mut self, node: &Expr) {
        match node {
            Expr::Binary(binary) if !binds(node) => {
                let (kind, others) = operators::neighbours(&binary.op);
                for other in others {
                    let (left, right) = (self.of(&*binary.left), self.of(&*binary.right));
                    let with = if operators::assigns(&binary.op) {
                        format!("{left} {other} {right}")
                    } else {
                        format!("({left}) {other} ({right})")
                    };
                    self.replace(kind, node, with);
                }
            }
            Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Not(_)) => {
                let inner = self.of(&*unary.expr).to_owned();
                self.replace(Kind::Negation, node, inner);
            }
            Expr::If(branch) => self.condition(&branch.cond, Kind::Condition, &["true", "false"]),
            Expr::While(repeat) => self.condition(&repeat.cond, Kind::Condition, &["false"]),
            Expr::Match(choice) => {
                for guard in choice.arms.iter().filter_map(|arm| arm.guard.as_ref()) {
                    self.condition(&guard.1, Kind::Condition, &["true", "false"]);
                }
            }
            Expr::MethodCall(call) => self.method(node, call),
            Expr::Lit(literal) => {
                if let syn::Lit::Int(number) = &literal.lit
                    && let Ok(value) = number.base10_parse::<u64>()
                {
                    self.replace(Kind::Literal, node, format!("{}{}", value.saturating_add(1), number.suffix()));
                }
            }
            _ => {}
        }
    }

    fn method(&mut self, node: &Expr, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        if let Some((other, kind)) = operators::opposite(&name) {
            let with = self.with(node, &call.method.span().byte_range(), other);
            self.replace(kind, node, with);
        }
        if name == "is_empty" {
            let with = format!("!{}", self.of(node));
            self.replace(Kind::Negation, node, with);
        }
        if let Some(Expr::Closure(closure)) = call.args.first()
            && operators::takes_predicate(&name)
        {
            self.condition(&closure.body, Kind::Predicate, &["true", "false"]);
        }
    }

    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.around.push(name);
        visit(self);
        self.around.pop();
    }
}

/// Reports whether a condition binds variables by `let`.
fn binds(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(chain) if matches!(chain.op, syn::BinOp::And(_)) => binds(&chain.left) || binds(&chain.right),
        _ => false,
    }
}

/// Reports whether a statement is a call or an assignment.
fn has_effect(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => operators::assigns(&binary.op),
        Expr::Try(inner) => has_effect(&inner.expr),
        Expr::Await(inner) => has_effect(&inner.base),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_excluded(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_excluded(&item.attrs) {
            return;
        }
        let name = self.of(&*item.self_ty).split('<').next().unwrap_or_default().to_owned();
        self.inside(name, |this| visit::visit_item_impl(this, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if !is_excluded(&item.attrs) {
            self.inside(item.ident.to_string(), |this| visit::visit_item_trait(this, item));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_excluded(&item.attrs) || item.sig.constness.is_some() {
            return;
        }
        self.inside(item.sig.ident.to_string(), |this| {
            this.function(&item.sig, &item.block);
            visit::visit_item_fn(this, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_excluded(&item.attrs) || item.sig.constness.is_some() {
            return;
        }
        self.inside(item.sig.ident.to_string(), |this| {
            this.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(this, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if is_excluded(&item.attrs) || item.sig.constness.is_some() {
            return;
        }
        self.inside(item.sig.ident.to_string(), |this| {
            if let Some(block) = &item.default {
                this.function(&item.sig, block);
            }
            visit::visit_trait_item_fn(this, item);
        });
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Local(local) = statement
            && is_excluded(&local.attrs)
        {
            return;
        }
        self.statement(statement);
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        if matches!(node, Expr::Const(_)) {
            return;
        }
        self.expression(node);
        visit::visit_expr(self, node);
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_path_arguments(&mut self, _: &'ast syn::PathArguments) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Vec<String> {
        let found = find("src/rules/src/a.rs", text).unwrap();
        found.into_iter().map(|m| format!("{} -> {}", m.original, m.mutated)).collect()
    }

    fn inside(body: &str) -> Vec<String> {
        let all = changes(&format!("fn f(a: u8) -> Entry {{ {body} }}"));
        all.into_iter().filter(|change| !change.starts_with('{')).collect()
    }

    #[test]
    fn operators_get_their_neighbours_with_the_operands_in_parentheses() {
        assert_eq!(inside("a < b"), ["a < b -> (a) <= (b)", "a < b -> (a) >= (b)"]);
        assert_eq!(inside("a && b"), ["a && b -> (a) || (b)"]);
        assert_eq!(inside("!a"), ["!a -> a"]);
        assert_eq!(inside("a.min(b)"), ["a.min(b) -> a.max(b)"]);
        assert_eq!(inside("7_u32"), ["7_u32 -> 8u32"]);
    }

    #[test]
    fn a_chain_with_let_stays_and_its_other_parts_change() {
        let all = inside("if let Some(x) = a && x { b } else { c }");
        assert_eq!(all, ["x -> true", "x -> false"]);
    }

    #[test]
    fn closures_that_decide_become_constant() {
        assert_eq!(inside("v.filter(|x| x.ready())"), ["x.ready() -> true", "x.ready() -> false"]);
        assert_eq!(inside("v.map(|x| x.ready())"), Vec::<String>::new());
    }

    #[test]
    fn calls_and_assignments_are_left_out_but_no_drop() {
        assert_eq!(inside("a.push(b); c = d; e += f; drop(g); let h = i(); h").len(), 4);
    }

    #[test]
    fn bodies_return_plain_values() {
        assert_eq!(changes("fn f() -> bool { a() }"), ["{ a() } -> { true }", "{ a() } -> { false }"]);
        assert_eq!(changes("fn f() -> bool { true }"), ["{ true } -> { false }"]);
    }

    #[test]
    fn constants_patterns_macros_and_tests_stay() {
        for text in [
            "const A: u8 = 1 + 1;",
            "const fn f() -> u8 { 1 }",
            "fn f(a: u8) -> Entry { match a { 1 => b, _ => c } }",
            "fn f(a: u8) -> Entry { fault!(A if a < 1 => return b); c }",
            "#[cfg(test)] mod tests { fn f() -> bool { a < 1 } }",
            "#[test] fn f() { a(1); }",
            "#[cfg(feature = \"mutations\")] fn f() -> bool { a < 1 }",
            "fn f() -> Entry { let a: [u8; 3] = b; [a; 4] }",
        ] {
            assert_eq!(changes(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn places_are_named_by_line_column_and_function() {
        let found =
            find("src/rules/src/a.rs", "impl A {\n    fn f(&self) -> Entry {\n        a == b\n    }\n}\n").unwrap();
        let first = &found[0];
        assert_eq!((first.line, first.column, first.function.as_str()), (3, 9, "A::f"));
    }
}
