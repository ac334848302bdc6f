//! An event as a row: its values in the columns that not every event has.

use crate::{Call, Function, Reason, What};

/// The columns that not every event has.
#[derive(Default)]
pub(super) struct Row<'t> {
    pub(super) from_task: Option<i32>,
    pub(super) to_task: Option<i32>,
    pub(super) text: Option<&'t str>,
    pub(super) pages: Option<i64>,
    pub(super) reason: Option<i32>,
    pub(super) target: Option<i32>,
    pub(super) call: Option<bool>,
    pub(super) address: Option<i64>,
    pub(super) length: Option<i64>,
    pub(super) argument: Option<i64>,
}

impl<'t> Row<'t> {
    /// Sets the values of `what`; returns the event's name.
    pub(super) fn fill(&mut self, what: &What<'t>) -> &'static str {
        match *what {
            What::Switch { from, state, to } => {
                self.to_task = Some(to as i32);
                self.text = Some(state);
                self.from_task = Some(from as i32);
                "switch"
            }
            What::Flush { pages, reason } => {
                self.pages = Some(pages);
                self.reason = Some(reason as i32);
                "flush"
            }
            What::Queued { target, function } => {
                self.target = Some(target as i32);
                match function {
                    Function::Unnamed(address) => self.address = Some(address as i64),
                    function => self.call = Some(function == Function::Shootdown),
                }
                "queued"
            }
            What::Interrupt { target, call } => {
                (self.target, self.call) = (Some(target as i32), Some(call));
                "interrupt"
            }
            What::Interrupts { targets, call } => {
                (self.text, self.call) = (Some(targets), Some(call));
                "interrupts"
            }
            What::HandlerEntry => "handler",
            What::Fork { child } => {
                self.to_task = Some(child as i32);
                "fork"
            }
            What::NewTask { child, flags } => {
                (self.to_task, self.argument) = (Some(child as i32), Some(flags as i64));
                "new_task"
            }
            What::Exec => "exec",
            What::Exit => "exit",
            What::Fault { address } => {
                self.address = Some(address as i64);
                "fault"
            }
            What::Call {
                call,
                address,
                length,
                argument,
            } => {
                self.address = Some(address as i64);
                self.length = Some(length as i64);
                self.argument = Some(argument as i64);
                Call::ALL
                    .iter()
                    .find(|(_, known)| *known == call)
                    .map_or("madvise", |(name, _)| name)
            }
        }
    }

    pub(super) fn what(&self, event: &str) -> Option<What<'t>> {
        Some(match event {
            "switch" => What::Switch {
                from: self.from_task? as u32,
                state: self.text?,
                to: self.to_task? as u32,
            },
            "flush" => What::Flush {
                pages: self.pages?,
                reason: Reason::numbered(self.reason? as u64)?,
            },
            "queued" => What::Queued {
                target: self.target? as u32,
                function: match self.call {
                    Some(true) => Function::Shootdown,
                    Some(false) => Function::Other,
                    None => Function::Unnamed(self.address? as u64),
                },
            },
            "interrupt" => What::Interrupt {
                target: self.target? as u32,
                call: self.call?,
            },
            "interrupts" => What::Interrupts {
                targets: self.text?,
                call: self.call?,
            },
            "handler" => What::HandlerEntry,
            "fork" => What::Fork {
                child: self.to_task? as u32,
            },
            "new_task" => What::NewTask {
                child: self.to_task? as u32,
                flags: self.argument? as u64,
            },
            "exec" => What::Exec,
            "exit" => What::Exit,
            "fault" => What::Fault {
                address: self.address? as u64,
            },
            name => What::Call {
                call: Call::ALL.iter().find(|(known, _)| *known == name)?.1,
                address: self.address? as u64,
                length: self.length? as u64,
                argument: self.argument? as u64,
            },
        })
    }
}
