//! Queries on a piece of syntax.

use crate::mutant::Kind;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Stmt};

/// Read-modify-write operations of a word.
const MODIFIES: [&str; 5] = [
    "fetch_add_full",
    "fetch_or_full",
    "fetch_and_full",
    "swap_full",
    "compare_exchange_full",
];

/// Its position, in bytes.
pub fn range(what: &impl Spanned) -> Range<usize> {
    what.span().byte_range()
}

/// Whether code with these attributes is part of a release build.
pub fn stands(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let condition = list.tokens.to_string().replace(' ', "");
        list.path.is_ident("cfg") && matches!(&*condition, "test" | "debug_assertions")
    })
}

/// Attributes of nodes that may have some.
pub fn attributes(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::If(it) => &it.attrs,
        Expr::Block(it) => &it.attrs,
        Expr::Call(it) => &it.attrs,
        Expr::MethodCall(it) => &it.attrs,
        Expr::Return(it) => &it.attrs,
        Expr::Match(it) => &it.attrs,
        _ => &[],
    }
}

/// The last word of a path, and of the callee of a call.
pub fn called(expr: &Expr) -> Option<String> {
    match expr {
        Expr::MethodCall(call) => Some(call.method.to_string()),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// The last word of a path; `None` for anything else.
pub fn last_word(expr: &Expr) -> String {
    match expr {
        Expr::Path(path) => path
            .path
            .segments
            .last()
            .map_or(String::new(), |last| last.ident.to_string()),
        _ => String::new(),
    }
}

/// A word's operation: its mutations, in the order of their numbers.
pub fn operation(call: &syn::ExprMethodCall) -> Option<Vec<Option<Kind>>> {
    let (name, order) = (call.method.to_string(), call.args.last().map(last_word)?);
    match (&*name, call.args.len(), &*order) {
        ("load", 1, "Acquire") => Some(vec![Some(Kind::Relax)]),
        ("store", 2, "Relaxed") => Some(vec![Some(Kind::Drop), None]),
        ("store", 2, "Release") => Some(vec![Some(Kind::Drop), Some(Kind::Relax)]),
        _ if MODIFIES.contains(&&*name) => Some(vec![Some(Kind::Drop), Some(Kind::Split)]),
        _ => None,
    }
}

/// Whether the statement is only a call, with a semicolon.
pub fn call_statement(statement: &Stmt) -> Option<&Expr> {
    match statement {
        Stmt::Expr(expr @ (Expr::Call(_) | Expr::MethodCall(_)), Some(_)) if attributes(expr).is_empty() => Some(expr),
        _ => None,
    }
}
