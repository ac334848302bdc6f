//! An IOMMU: devices that translate through the page tables of spaces, with their own TLBs.
//!
//! Owns the devices' side: attaching, DMA, and the queue of invalidation commands. Commands are carried out in order,
//! some time after they were given. A device has translation caches as a CPU has, numbered after the CPUs, so the
//! oracle judges it by the same rules. It is never lazy and never between two spaces. It also walks the kernel half of
//! those tables, and keeps links to tables there, whether or not it may access them. Broadcasts of CPUs and their tags
//! do not reach it (INVLPGB does not reach an IOMMU; an SMMU that takes part in broadcasts needs no hook).

use super::invalidate::Of;
use super::{Access, Hw, PageFault, Privilege, Translation};
use shootdown::Secondary;
use std::collections::VecDeque;

/// Devices behind an IOMMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iommu {
    /// How many.
    pub devices: usize,
    /// Time that one invalidation command takes, cycles.
    pub command_cycles: u64,
}

/// The queue of invalidation commands.
#[derive(Debug, Clone, Default)]
pub(super) struct Commands {
    given: u64,
    done: u64,
    /// Completion time of the last command.
    last_due: u64,
    queue: VecDeque<Command>,
}

#[derive(Debug, Clone, Copy)]
struct Command {
    due: u64,
    agent: usize,
    /// For the kernel's half, which devices walk too.
    of_kernel: bool,
    what: Secondary,
}

/// The PASIDs of devices, above every tag of a CPU: tags have up to 12 bits on x86.
const PASID: u16 = 0x8000;

/// Most pages that are invalidated one by one; above that the whole PASID is invalidated.
const MOST_PAGES: u32 = 32;

impl Hw {
    /// Whether a set of translation caches is a device's.
    #[inline]
    pub(super) fn is_device(&self, agent: usize) -> bool {
        agent >= self.config.cpus
    }

    fn agent(&self, device: usize) -> usize {
        let agent = self.config.cpus + device;
        assert!(agent < self.cpus.len(), "there is no device {device}");
        agent
    }

    /// Attaches `device` to `space`: it accesses memory through the tables of that space.
    ///
    /// # Panics
    /// If there is no such device, or on another instruction set than x86-64, whose devices are not modelled.
    pub fn attach_device(&mut self, device: usize, space: u32) {
        assert!(self.later.is_none(), "devices are modelled on x86-64 only");
        let (agent, root) = (self.agent(device), self.root(space));
        self.frames.get_mut(self.cpus[agent].root).loaded -= 1;
        self.frames.get_mut(root).loaded += 1;
        let tag = PASID + device as u16;
        let c = &mut self.cpus[agent];
        (c.root, c.tag, c.space, c.online) = (root, tag, space, true);
        c.tag_state_mut(tag).space = space + 1;
        self.tag_used(agent, tag, space);
        self.refresh(agent);
    }

    /// One access of `device` through its translation caches, checked by the oracle. A device that is attached to no
    /// space makes no access.
    ///
    /// # Errors
    /// [`PageFault`] when the tables grant nothing or not enough.
    pub fn dma(&mut self, device: usize, va: u64, access: Access, now: u64) -> Option<Result<Translation, PageFault>> {
        self.carry_out_commands(now);
        let agent = self.agent(device);
        let attached = self.cpus[agent].space != 0;
        attached.then(|| self.translate(agent, va, access, Privilege::User, now))
    }

    /// Gives a command to every device that is attached to the space with this root, or to any if it is the kernel's.
    /// Returns a ticket for [`commands_due`](Hw::commands_due), 0 if there is none.
    pub fn command(&mut self, root: u32, what: Secondary, now: u64) -> u64 {
        let Some(iommu) = self.config.iommu else { return 0 };
        let (mut ticket, of_kernel) = (0, root == self.kernel_root);
        for agent in self.config.cpus..self.cpus.len() {
            let c = &self.cpus[agent];
            if c.space != 0 && (c.root == root || of_kernel) {
                let commands = &mut self.commands;
                let due = commands.last_due.max(now) + iommu.command_cycles;
                (commands.last_due, commands.given) = (due, commands.given + 1);
                commands.queue.push_back(Command {
                    due,
                    agent,
                    of_kernel,
                    what,
                });
                ticket = commands.given;
            }
        }
        ticket
    }

    /// The time, cycles and not before `now`, at which every command up to `ticket` has been carried out.
    pub fn commands_due(&self, ticket: u64, now: u64) -> u64 {
        let Some(ahead) = ticket.checked_sub(self.commands.done + 1) else {
            return now;
        };
        let command = self.commands.queue.get(ahead as usize);
        command.map_or(now, |command| command.due.max(now))
    }

    /// Carries out the commands that are due.
    pub fn carry_out_commands(&mut self, now: u64) {
        while let Some(&command) = self.commands.queue.front().filter(|command| command.due <= now) {
            self.commands.queue.pop_front();
            self.commands.done += 1;
            self.carry_out(command);
        }
    }

    fn carry_out(&mut self, command: Command) {
        let Command {
            agent, of_kernel, what, ..
        } = command;
        let tag = self.cpus[agent].tag;
        let of = if of_kernel { Of::TagAndGlobal(tag) } else { Of::Tag(tag) };
        match what {
            Secondary::Flush(range) if range.is_walkable(MOST_PAGES) => {
                for address in range.addresses() {
                    self.drop_page(agent, address, of, u64::MAX);
                    if range.tables() {
                        self.drop_links_for(agent, address, Some(tag), u64::MAX);
                    }
                }
            }
            Secondary::Flush(_) => {
                if of_kernel {
                    self.cpus[agent].flushed_all = self.tick();
                }
                self.drop_pasid(agent, tag);
            }
            Secondary::End => {
                self.drop_pasid(agent, tag);
                self.frames.get_mut(self.cpus[agent].root).loaded -= 1;
                self.frames.get_mut(self.kernel_root).loaded += 1;
                let c = &mut self.cpus[agent];
                (c.root, c.space) = (self.kernel_root, 0);
            }
        }
    }

    fn drop_pasid(&mut self, agent: usize, tag: u16) {
        let seq = self.tick();
        self.cpus[agent].tag_state_mut(tag).flushed = seq;
        self.refresh(agent);
    }
}
