//! Conditions and their operands.

use syn::{BinOp, Expr};

/// The constants that replace a condition.
#[derive(Debug, Clone, Copy)]
pub struct Constants {
    /// True.
    pub always: bool,
    /// False.
    pub never: bool,
}

impl Constants {
    /// Both.
    pub const BOTH: Constants = Constants {
        always: true,
        never: true,
    };
    /// True alone: for operands of `&&`, where false is the same for all.
    pub const ALWAYS: Constants = Constants {
        always: true,
        never: false,
    };
    /// False alone: for operands of `||`.
    pub const NEVER: Constants = Constants {
        always: false,
        never: true,
    };

    /// For the operand of a negation.
    pub fn negated(self) -> Constants {
        Constants {
            always: self.never,
            never: self.always,
        }
    }
}

/// `<`, `<=`, `>` and `>=`, with the bound moved by one.
pub fn one_further(op: &BinOp) -> Option<(&'static str, &'static str)> {
    match op {
        BinOp::Lt(_) => Some(("<", "<=")),
        BinOp::Le(_) => Some(("<=", "<")),
        BinOp::Gt(_) => Some((">", ">=")),
        BinOp::Ge(_) => Some((">=", ">")),
        _ => None,
    }
}

/// Whether `expr` is a condition by its syntax alone.
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

/// Whether an operand of `&&` is a `let`.
pub fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}
