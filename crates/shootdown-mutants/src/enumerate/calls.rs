//! Calls, statements and `let`: omissions, and inverted flags.

use super::{Finder, NOT_DROPPED, text};
use crate::conditions::{self, Constants};
use crate::mutant::{Kind, shortened};
use crate::rewrite::Part;
use crate::syntax::{called, operation, range};
use std::ops::Range;
use syn::{Expr, Lit, Pat};

impl Finder<'_> {
    /// Operands of `&&` other than `let`.
    pub(super) fn chain(&mut self, expr: &Expr) {
        match expr {
            Expr::Let(_) => {}
            Expr::Binary(both) if conditions::has_let(expr) => {
                self.chain(&both.left);
                self.chain(&both.right);
            }
            _ => self.condition(expr, Constants::ALWAYS),
        }
    }

    /// A statement with a semicolon.
    pub(super) fn statement(&mut self, expr: &Expr) {
        let place = range(expr);
        match expr {
            Expr::MethodCall(call) if operation(call).is_some() => {}
            Expr::Call(_) | Expr::MethodCall(_) if called(expr).is_some_and(|name| !NOT_DROPPED.contains(&&*name)) => {
                self.drop_call(place);
            }
            // A variable without a value must get its first one.
            Expr::Assign(it) if matches!(&*it.left, Expr::Path(_)) => {}
            Expr::Assign(_) => self.drop_call(place),
            Expr::Binary(it) if !conditions::is_condition(expr) && !matches!(&*it.left, Expr::Path(_)) => {
                self.drop_call(place);
            }
            _ => {}
        }
    }

    /// `let`: unused results, guards, and the `else` branch.
    pub(super) fn local(&mut self, local: &syn::Local, place: Range<usize>) {
        let Some(init) = &local.init else { return };
        if let Some((_, otherwise)) = &init.diverge {
            let otherwise = range(&**otherwise);
            if !self.source[otherwise.clone()].contains("unreachable!") {
                let number = self.add(Kind::Never, &place);
                let parts = vec![
                    text(format!("if crate::mutation::on({number}) ")),
                    Part::Plain(otherwise),
                    text(" "),
                    Part::Inner(place.clone()),
                ];
                self.site(place, parts);
            }
        }
        let name = match &local.pat {
            Pat::Ident(name) => name.ident.to_string(),
            Pat::Wild(_) => "_".into(),
            _ => return,
        };
        if name.starts_with('_') && called(&init.expr).is_some() {
            let is_operation = matches!(&*init.expr, Expr::MethodCall(call) if operation(call).is_some());
            let place = range(&*init.expr);
            if !is_operation && self.seen.insert(place.clone()) {
                let number = self.add(Kind::Drop, &place);
                self.around(place, format!("(!crate::mutation::on({number})).then(|| "), ")");
            }
        }
    }

    pub(super) fn method(&mut self, call: &syn::ExprMethodCall, place: Range<usize>) {
        self.flags(&call.args);
        if let Some(kinds) = operation(call) {
            let numbers: String = kinds
                .into_iter()
                .map(|kind| format!("{}, ", kind.map_or(0, |kind| self.add(kind, &place))))
                .collect();
            let opening = range(&call.method).start..call.paren_token.span.open().byte_range().end;
            self.site(opening, vec![text(format!("mutable_{}({numbers}", call.method))]);
        } else if call.method == "secondary" {
            let number = self.add(Kind::Drop, &place);
            self.around(
                place,
                format!("(if crate::mutation::on({number}) {{ 0 }} else {{ "),
                " })",
            );
        } else if self.without_result.contains(&call.method.to_string()) {
            self.drop_call(place);
        }
        match &*call.method.to_string() {
            "then" | "then_some" => self.condition(&call.receiver, Constants::BOTH),
            "for_each" | "for_each_but" => self.visits(call, range(call)),
            _ => {}
        }
    }

    /// Flags passed as literals.
    pub(super) fn flags<'e>(&mut self, arguments: impl IntoIterator<Item = &'e Expr>) {
        for argument in arguments {
            if let Expr::Lit(literal) = argument
                && let Lit::Bool(_) = literal.lit
            {
                let place = range(argument);
                let line = self.source[..place.start].matches('\n').count() + 1;
                let number = self.add(Kind::Flip, &place);
                // A flag alone has no meaning; its line has.
                let whole = self.source.lines().nth(line - 1).unwrap_or_default();
                self.mutants[number - 1].text = shortened(whole);
                self.around(place, format!("(crate::mutation::on({number}) ^ "), ")");
            }
        }
    }
}
