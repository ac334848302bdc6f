//! Every mutation of one source file, found by its syntax alone, without a manual selection.
//!
//! Left out: code of other builds (tests, debug assertions), events (they report), arithmetic, and conditions without a
//! syntactic form (a call as the last expression of a closure).

mod calls;
mod loops;
#[cfg(test)]
mod tests;

use crate::conditions::{self, Constants};
use crate::mutant::{Kind, Mutant, shortened};
use crate::rewrite::{Part, Site};
use crate::syntax::{attributes, call_statement, called, operation, range, stands};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use syn::visit::{self, Visit};
use syn::{Expr, ReturnType, Stmt};

/// Functions that return nothing and are not part of the protocol: reports, and a guard's end, which may come late.
const NOT_DROPPED: [&str; 2] = ["event", "drop"];

/// Names that the standard library uses for functions that return a value.
const AMBIGUOUS: [&str; 2] = ["take", "next"];

/// Names of functions that return nothing, anywhere in the engine.
pub fn functions_without_result(files: &[syn::File]) -> BTreeSet<String> {
    #[derive(Default)]
    struct Signatures(BTreeSet<String>, BTreeSet<String>);
    impl Visit<'_> for Signatures {
        fn visit_signature(&mut self, signature: &syn::Signature) {
            let name = signature.ident.to_string();
            match signature.output {
                ReturnType::Default => self.0.insert(name),
                ReturnType::Type(..) => self.1.insert(name),
            };
        }
    }
    let mut found = Signatures::default();
    files.iter().for_each(|file| found.visit_file(file));
    let Signatures(mut without, with) = found;
    without.retain(|name| {
        let name = name.as_str();
        !with.contains(name) && !NOT_DROPPED.contains(&name) && !AMBIGUOUS.contains(&name)
    });
    without
}

/// Finds the mutations of `source`, whose syntax is `syntax`; appends them to `mutants` and returns the sites.
pub fn enumerate(
    file: &str,
    source: &str,
    syntax: &syn::File,
    without_result: &BTreeSet<String>,
    mutants: &mut Vec<Mutant>,
) -> Vec<Site> {
    let mut finder = Finder {
        file,
        source,
        without_result,
        mutants,
        sites: Vec::new(),
        type_name: String::new(),
        function: String::new(),
        seen: HashSet::new(),
        returns_bool: false,
        constant_functions: Vec::new(),
    };
    finder.visit_file(syntax);
    finder.unmake_constants();
    finder.sites
}

/// A function that can be called at compile time.
struct ConstantFunction {
    /// Where `const` is written.
    word: Range<usize>,
    name: String,
    body: Range<usize>,
    has_sites: bool,
}

struct Finder<'a> {
    file: &'a str,
    source: &'a str,
    without_result: &'a BTreeSet<String>,
    mutants: &'a mut Vec<Mutant>,
    sites: Vec<Site>,
    type_name: String,
    function: String,
    /// Conditions, and calls, that have been handled.
    seen: HashSet<Range<usize>>,
    /// Whether the innermost function or closure returns a condition.
    returns_bool: bool,
    constant_functions: Vec<ConstantFunction>,
}

fn text(words: impl Into<String>) -> Part {
    Part::Text(words.into())
}

impl Finder<'_> {
    fn add(&mut self, kind: Kind, place: &Range<usize>) -> usize {
        let line = self.source[..place.start].matches('\n').count() + 1;
        self.mutants.push(Mutant {
            file: self.file.into(),
            function: self.function.clone(),
            kind,
            text: shortened(&self.source[place.clone()]),
            nth: 1,
            line,
        });
        self.mutants.len()
    }

    /// The active mutation is known at run time only: functions with sites, and their callers, lose their `const`.
    fn unmake_constants(&mut self) {
        let (mut unmade, mut left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.constant_functions)
            .into_iter()
            .partition(|function| function.has_sites);
        while let Some(function) = unmade.pop() {
            self.site(function.word, Vec::new());
            let call = format!("{}(", function.name);
            let calls = |other: &ConstantFunction| self.source[other.body.clone()].contains(&call);
            let (callers, others): (Vec<_>, Vec<_>) = left.into_iter().partition(calls);
            unmade.extend(callers);
            left = others;
        }
    }

    fn site(&mut self, range: Range<usize>, parts: Vec<Part>) {
        self.sites.push(Site { range, parts });
    }

    /// `before`, the original text, `after`.
    fn around(&mut self, place: Range<usize>, before: String, after: &str) {
        let parts = vec![text(before), Part::Inner(place.clone()), text(after)];
        self.site(place, parts);
    }

    fn drop_call(&mut self, place: Range<usize>) {
        if self.seen.insert(place.clone()) {
            let number = self.add(Kind::Drop, &place);
            self.around(place, format!("{{ if !crate::mutation::on({number}) {{ "), "; } }");
        }
    }

    /// A condition, and its operands.
    fn condition(&mut self, expr: &Expr, constants: Constants) {
        let place = range(expr);
        if matches!(expr, Expr::Let(_)) || !self.seen.insert(place.clone()) {
            return;
        }
        match expr {
            Expr::Paren(inner) => return self.condition(&inner.expr, constants),
            Expr::Unary(not) if matches!(not.op, syn::UnOp::Not(_)) => {
                return self.condition(&not.expr, constants.negated());
            }
            Expr::Binary(both) => {
                let (own, parts) = match both.op {
                    syn::BinOp::And(_) => (
                        Constants {
                            always: false,
                            ..constants
                        },
                        Constants::ALWAYS,
                    ),
                    syn::BinOp::Or(_) => (
                        Constants {
                            never: false,
                            ..constants
                        },
                        Constants::NEVER,
                    ),
                    _ => return self.comparison(both, place, constants),
                };
                self.truth(place, own);
                self.condition(&both.left, parts);
                self.condition(&both.right, parts);
                return;
            }
            Expr::Lit(_) => return,
            Expr::Macro(call) if call.mac.path.is_ident("cfg") => return,
            _ => {}
        }
        self.truth(place, constants);
    }

    fn truth(&mut self, place: Range<usize>, constants: Constants) {
        if !constants.always && !constants.never {
            return;
        }
        let always = if constants.always {
            self.add(Kind::Always, &place)
        } else {
            0
        };
        let never = if constants.never {
            self.add(Kind::Never, &place)
        } else {
            0
        };
        self.around(place, format!("crate::mutation::truth({always}, {never}, "), ")");
    }

    fn comparison(&mut self, both: &syn::ExprBinary, place: Range<usize>, constants: Constants) {
        let Some((op, further)) = conditions::one_further(&both.op) else {
            return self.truth(place, constants);
        };
        let always = if constants.always {
            self.add(Kind::Always, &place)
        } else {
            0
        };
        let never = if constants.never {
            self.add(Kind::Never, &place)
        } else {
            0
        };
        let edge = self.add(Kind::Edge, &place);
        let parts = vec![
            text("(match (&("),
            Part::Inner(range(&both.left)),
            text("), &("),
            Part::Inner(range(&both.right)),
            text(format!(
                ")) {{ (left, right) => crate::mutation::truth({always}, {never}, \
                 crate::mutation::edge({edge}, left {further} right, left {op} right)) }})"
            )),
        ];
        self.site(place, parts);
    }

    /// The last expression of a block or branch, if it is a condition.
    fn result(&mut self, expr: &Expr) {
        match expr {
            Expr::Block(it) => self.result_of(&it.block),
            Expr::If(it) => {
                self.result_of(&it.then_branch);
                if let Some((_, otherwise)) = &it.else_branch {
                    self.result(otherwise);
                }
            }
            Expr::Match(it) => it.arms.iter().for_each(|arm| self.result(&arm.body)),
            Expr::Return(_) | Expr::Loop(_) | Expr::Unsafe(_) => {}
            _ => self.condition(expr, Constants::BOTH),
        }
    }

    fn result_of(&mut self, block: &syn::Block) {
        if let Some(Stmt::Expr(expr, None)) = block.stmts.last() {
            self.result(expr);
        }
    }

    fn in_function(&mut self, signature: &syn::Signature, block: &syn::Block, visit: impl FnOnce(&mut Self)) {
        let name = match &*self.type_name {
            "" | "Engine" => signature.ident.to_string(),
            of => format!("{of}::{}", signature.ident),
        };
        let outer = std::mem::replace(&mut self.function, name);
        let before = self.sites.len();
        self.returns_bool = matches!(&signature.output, ReturnType::Type(_, of)
            if matches!(&**of, syn::Type::Path(path) if path.path.is_ident("bool")));
        if self.returns_bool {
            self.result_of(block);
        }
        visit(self);
        if let Some(word) = &signature.constness {
            self.constant_functions.push(ConstantFunction {
                word: range(word),
                name: signature.ident.to_string(),
                body: range(block),
                has_sites: self.sites.len() > before,
            });
        }
        self.function = outer;
    }

    /// Statements that may change places with the next: calls, at least one of which other CPUs can observe.
    fn swaps(&mut self, block: &syn::Block) {
        let statements = &block.stmts;
        let may = |pair: &[Stmt]| match (call_statement(&pair[0]), call_statement(&pair[1])) {
            (Some(one), Some(other)) => self.is_seen(one) || self.is_seen(other),
            _ => false,
        };
        let swapped: Vec<bool> = statements.windows(2).map(may).collect();
        let mut first = 0;
        while first < swapped.len() {
            let pairs = swapped[first..].iter().take_while(|may| **may).count();
            let run: Vec<_> = statements[first..=first + pairs].iter().map(range).collect();
            first += pairs + 1;
            let (Some(begin), Some(end)) = (run.first(), run.last()) else {
                continue;
            };
            let place = begin.start..end.end;
            let mut parts = Vec::new();
            for second in 1..run.len() {
                let number = self.add(Kind::Swap, &run[second - 1]);
                parts.push(text(format!("if crate::mutation::on({number}) {{ ")));
                let mut order = run.clone();
                order.swap(second - 1, second);
                for statement in order {
                    parts.extend([Part::Plain(statement), text(" ")]);
                }
                parts.push(text("} else "));
            }
            if !parts.is_empty() {
                parts.extend([text("{ "), Part::Inner(place.clone()), text(" }")]);
                self.site(place, parts);
            }
        }
    }

    /// Whether other CPUs can observe this call and its order: not a relaxed store, which is ordered by its
    /// surroundings.
    fn is_seen(&self, expr: &Expr) -> bool {
        match expr {
            Expr::MethodCall(call) if call.method == "event" => false,
            Expr::MethodCall(call) if operation(call).is_some() => {
                operation(call) != Some(vec![Some(Kind::Drop), None])
            }
            _ => called(expr).is_some_and(|name| self.without_result.contains(&name) && name != "store"),
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attrs = match item {
            syn::Item::Fn(it) => &it.attrs,
            syn::Item::Impl(it) => &it.attrs,
            syn::Item::Mod(it) => &it.attrs,
            _ => return,
        };
        if stands(attrs) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of_trait = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "Debug");
        if item.trait_.as_ref().is_some_and(|(_, path, _)| of_trait(path)) {
            return;
        }
        if let syn::Type::Path(path) = &*item.self_ty {
            self.type_name = path
                .path
                .segments
                .last()
                .map_or(String::new(), |last| last.ident.to_string());
        }
        visit::visit_item_impl(self, item);
        self.type_name.clear();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.in_function(&item.sig, &item.block, |finder| visit::visit_item_fn(finder, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if stands(&item.attrs) {
            self.in_function(&item.sig, &item.block, |finder| visit::visit_impl_item_fn(finder, item));
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let outer = std::mem::replace(&mut self.returns_bool, false);
        visit::visit_expr_closure(self, closure);
        self.returns_bool = outer;
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.swaps(block);
        visit::visit_block(self, block);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        match statement {
            Stmt::Expr(expr, _) if !stands(attributes(expr)) => return,
            Stmt::Local(local) if !stands(&local.attrs) => return,
            Stmt::Macro(call) => {
                if call.mac.path.is_ident("assert") {
                    let place = range(call);
                    let number = self.add(Kind::Drop, &place);
                    self.around(place, format!("if !crate::mutation::on({number}) {{ "), " }");
                }
                return;
            }
            Stmt::Expr(expr, Some(_)) => self.statement(expr),
            Stmt::Local(local) => self.local(local, range(statement)),
            _ => {}
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, Constants::BOTH);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_if(&mut self, it: &'ast syn::ExprIf) {
        if conditions::has_let(&it.cond) {
            let place = range(&*it.cond);
            let number = self.add(Kind::Never, &place);
            self.around(place, format!("!crate::mutation::on({number}) && "), "");
            self.chain(&it.cond);
        } else {
            self.condition(&it.cond, Constants::BOTH);
        }
        visit::visit_expr_if(self, it);
    }

    fn visit_expr_while(&mut self, it: &'ast syn::ExprWhile) {
        if !conditions::has_let(&it.cond) {
            self.condition(&it.cond, Constants::BOTH);
        }
        visit::visit_expr_while(self, it);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if !stands(attributes(expr)) {
            return;
        }
        match expr {
            Expr::Return(it) if self.returns_bool => {
                if let Some(value) = &it.expr {
                    self.condition(value, Constants::BOTH);
                }
            }
            Expr::MethodCall(call) => self.method(call, range(expr)),
            Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) => self.repeats(expr),
            Expr::Call(call) => {
                self.flags(&call.args);
                if called(expr).is_some_and(|name| self.without_result.contains(&name)) {
                    self.drop_call(range(expr));
                }
            }
            _ if conditions::is_condition(expr) && !conditions::has_let(expr) => self.condition(expr, Constants::BOTH),
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}
