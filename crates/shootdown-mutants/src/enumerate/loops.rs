//! Loops, and calls that visit every member of a collection: the mutation ends them after the first iteration.

use super::{Finder, text};
use crate::mutant::{Kind, shortened};
use crate::syntax::range;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall};

/// Whether this loop has its own `break` without a value: then a further one has the same type.
#[derive(Default)]
struct Breaks {
    found: bool,
}

impl<'ast> Visit<'ast> for Breaks {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Break(it) => self.found |= it.expr.is_none() && it.label.is_none(),
            Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) | Expr::Closure(_) => {}
            _ => visit::visit_expr(self, expr),
        }
    }
}

fn has_own_break(body: &syn::Block) -> bool {
    let mut breaks = Breaks::default();
    breaks.visit_block(body);
    breaks.found
}

impl Finder<'_> {
    /// A loop. One that ends only by a `return` or a value is left out.
    pub(super) fn repeats(&mut self, expr: &Expr) {
        let body = match expr {
            Expr::ForLoop(it) => &it.body,
            Expr::While(it) => &it.body,
            Expr::Loop(it) if has_own_break(&it.body) => &it.body,
            _ => return,
        };
        let (place, inside) = (range(expr), body.brace_token.span.open().byte_range().end);
        let head = place.start..inside - 1;
        self.once(place, head, inside..inside, ["if ", " { break; }"]);
    }

    /// A call that visits every member of an iterator or of a set of CPUs.
    pub(super) fn visits(&mut self, call: &ExprMethodCall, place: Range<usize>) {
        if let Some(Expr::Closure(closure)) = call.args.last() {
            let body = closure.body.span().byte_range();
            self.once(place.clone(), place, body, ["{ if ", " { return; } "]);
        }
    }

    /// `place` is the whole, `head` its name, and `inside` the start of each iteration: an empty range, or the
    /// iteration itself.
    fn once(&mut self, place: Range<usize>, head: Range<usize>, inside: Range<usize>, [before, after]: [&str; 2]) {
        let number = self.add(Kind::Once, &head);
        self.mutants[number - 1].text = shortened(&self.source[head]);
        self.around(place, "{ let mut mutation_first = true; ".into(), " }");
        let ends = format!("{before}!crate::mutation::again({number}, &mut mutation_first){after}");
        if inside.is_empty() {
            self.site(inside, vec![text(ends)]);
        } else {
            self.around(inside, ends, " }");
        }
    }
}
