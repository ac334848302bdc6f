//! Conditions: what they are made of, and what a switch that re-introduces a bug makes of them in the sound engine.

use std::collections::HashMap;
use syn::{BinOp, Expr, UnOp};

/// The constants that a condition is replaced by.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// True.
    pub always: bool,
    /// False.
    pub never: bool,
}

impl Wanted {
    /// Both.
    pub const BOTH: Wanted = Wanted {
        always: true,
        never: true,
    };
    /// True alone: of what is joined by `&&`, where one that never holds is the same for all.
    pub const ALWAYS: Wanted = Wanted {
        always: true,
        never: false,
    };
    /// False alone: of what is joined by `||`.
    pub const NEVER: Wanted = Wanted {
        always: false,
        never: true,
    };

    /// For what a negation negates.
    pub fn negated(self) -> Wanted {
        Wanted {
            always: self.never,
            never: self.always,
        }
    }
}

/// Names of a function that stand for a switched bug, and what they are without it.
pub type Constants = HashMap<String, bool>;

/// What `expr` always is in the sound engine, because of switched bugs (`fault!`) in it.
pub fn constant(expr: &Expr, known: &Constants) -> Option<bool> {
    match expr {
        Expr::Macro(call) if call.mac.path.segments.last().is_some_and(|last| last.ident == "fault") => Some(false),
        Expr::Path(path) => path
            .path
            .get_ident()
            .and_then(|name| known.get(&name.to_string()).copied()),
        Expr::Paren(inner) => constant(&inner.expr, known),
        Expr::Unary(not) if matches!(not.op, UnOp::Not(_)) => constant(&not.expr, known).map(|value| !value),
        Expr::Binary(both) => {
            let decides = match both.op {
                BinOp::And(_) => false,
                BinOp::Or(_) => true,
                _ => return None,
            };
            match (constant(&both.left, known), constant(&both.right, known)) {
                (Some(value), _) | (_, Some(value)) if value == decides => Some(decides),
                (Some(value), Some(_)) => Some(value),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `<`, `<=`, `>` and `>=`, with the border one further.
pub fn one_further(op: &BinOp) -> Option<(&'static str, &'static str)> {
    match op {
        BinOp::Lt(_) => Some(("<", "<=")),
        BinOp::Le(_) => Some(("<=", "<")),
        BinOp::Gt(_) => Some((">", ">=")),
        BinOp::Ge(_) => Some((">=", ">")),
        _ => None,
    }
}

/// Whether `expr` is a condition by its form alone.
pub fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(both) => {
            one_further(&both.op).is_some()
                || matches!(both.op, BinOp::And(_) | BinOp::Or(_) | BinOp::Eq(_) | BinOp::Ne(_))
        }
        Expr::Macro(call) => call.mac.path.is_ident("matches"),
        _ => false,
    }
}

/// Whether some of what is joined by `&&` is a `let`.
pub fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}
