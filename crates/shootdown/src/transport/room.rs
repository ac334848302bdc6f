//! Room for a request in a frame or in a token, aligned by hand. Where the compiler aligns a request, it aligns the
//! whole frame, and rounds its size up twice (`cargo xtask stack`).

use crate::cache_padded::CachePadded;
use crate::cpuset::CpuId;
use crate::facade::Facade;
use crate::transport::request::Request;
use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Deref;

/// A cache line, to which a request is aligned.
const LINE: usize = align_of::<CachePadded<u8>>();

/// Bytes of a room that may lie before its request.
const BEFORE: usize = LINE - align_of::<u64>();

/// Tickets for which a room suffices instead.
pub(crate) const TICKETS: usize = 16;

/// Room for a request, wherever it lies, or for tickets of posts. A flush needs either. While a request is in it, it is
/// only borrowed shared: targets write the request.
pub(crate) struct Room<F: Facade>(UnsafeCell<Contents<F>>);

/// Bytes of a room of the processor's own words.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
pub(crate) const ROOM: usize = size_of::<Room<crate::facade::Native>>();

#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = assert!(ROOM == 128);

/// What a room is for, as bytes that may not be written yet.
#[repr(C)]
union Contents<F: Facade> {
    tickets: [MaybeUninit<u64>; TICKETS],
    _request: ManuallyDrop<Unaligned<F>>,
}

/// A request after the most bytes that may lie before it.
#[repr(C)]
struct Unaligned<F: Facade> {
    _before: [MaybeUninit<u8>; BEFORE],
    _request: MaybeUninit<Request<F>>,
}

impl<F: Facade> Room<F> {
    #[inline]
    pub(crate) const fn new() -> Self {
        const { assert!(align_of::<Self>() >= LINE - BEFORE && align_of::<Request<F>>() <= LINE) };
        Room(UnsafeCell::new(Contents {
            tickets: [MaybeUninit::uninit(); TICKETS],
        }))
    }

    /// Keeps a ticket, if there is room for one with this index.
    ///
    /// # Safety
    /// There is no request in the room, and it is used by no other thread.
    #[inline]
    pub(crate) unsafe fn keep(&self, index: usize, ticket: u64) {
        // SAFETY: the caller's; any bytes are tickets that may not be written yet.
        let tickets = unsafe { &mut (*self.0.get()).tickets };
        if let Some(kept) = tickets.get_mut(index) {
            kept.write(ticket);
        }
    }

    /// The ticket with this index.
    ///
    /// # Safety
    /// It [was kept](Self::keep).
    #[inline]
    pub(crate) unsafe fn ticket(&self, index: usize) -> u64 {
        // SAFETY: the caller's.
        unsafe { (*self.0.get()).tickets[index].assume_init() }
    }

    /// Puts `request` into it, and completes it by `fill`.
    ///
    /// # Safety
    /// There is no request in the room, and it is used by no other thread. It is not moved before the request is
    /// [taken out](Self::take_out).
    #[inline]
    pub(crate) unsafe fn put(&self, request: Request<F>, fill: impl FnOnce(&mut Request<F>)) -> &Request<F> {
        let place = self.place();
        // SAFETY: aligned and within the room; nothing else refers to it yet.
        unsafe {
            place.write(request);
            fill(&mut *place);
            &*place
        }
    }

    /// The request in it.
    ///
    /// # Safety
    /// There is one.
    #[inline]
    pub(crate) unsafe fn request(&self) -> &Request<F> {
        // SAFETY: the caller's.
        unsafe { &*self.place() }
    }

    /// Ends the request in it. Words of a simulation are dropped.
    ///
    /// # Safety
    /// There is one, and nothing uses it after this.
    #[inline]
    pub(crate) unsafe fn take_out(&self) {
        // SAFETY: the caller's.
        unsafe { core::ptr::drop_in_place(self.place()) }
    }

    /// The first address in it that is aligned to a line.
    #[inline]
    fn place(&self) -> *mut Request<F> {
        let first = self.0.get().cast::<u8>();
        first.map_addr(|address| (address + BEFORE) & !(LINE - 1)).cast()
    }
}

/// A request in a room of its own. Taken out when this is dropped.
pub(crate) struct Placed<'r, F: Facade>(&'r Room<F>);

impl<'r, F: Facade> Placed<'r, F> {
    /// Puts `request` into `room`, which is empty, and completes it by `fill`.
    #[inline]
    pub(crate) fn new(room: &'r mut Room<F>, request: Request<F>, fill: impl FnOnce(&mut Request<F>)) -> Self {
        // SAFETY: borrowed, so it is neither used by others nor moved.
        unsafe { room.put(request, fill) };
        Placed(room)
    }
}

impl<F: Facade> Deref for Placed<'_, F> {
    type Target = Request<F>;

    #[inline]
    fn deref(&self) -> &Request<F> {
        // SAFETY: `new` has put it there.
        unsafe { self.0.request() }
    }
}

impl<F: Facade> Drop for Placed<'_, F> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has put it there, and the room is borrowed until here.
        unsafe { self.0.take_out() }
    }
}

/// Where the request of a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Place {
    /// There is none, or every target is done with it.
    pub(crate) const NOWHERE: Place = Place(0);
    /// In the token.
    pub(crate) const TOKEN: Place = Place(1);

    /// The descriptor of that CPU.
    pub(crate) const fn of(cpu: CpuId) -> Place {
        Place(cpu as u32 + 2)
    }

    /// The CPU whose descriptor it is; only where it is one.
    pub(crate) const fn cpu(self) -> CpuId {
        self.0 as CpuId - 2
    }
}
