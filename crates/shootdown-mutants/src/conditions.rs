//! Conditions: what they are made of.

use syn::{BinOp, Expr};

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
