//! Room for a request in the frame of its requester or in a token, aligned by hand. Where the compiler aligns a
//! request, it aligns the whole frame, and rounds its size up twice (`cargo xtask stack`).

use crate::cache_padded::CachePadded;
use crate::facade::Facade;
use crate::transport::request::Request;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};

/// A cache line, to which a request is aligned.
const LINE: usize = align_of::<CachePadded<u8>>();

/// Bytes of a room that may lie before its request.
const BEFORE: usize = LINE - align_of::<u64>();

/// Tickets for which a room suffices instead.
pub(crate) const TICKETS: usize = 16;

/// Room for a request, wherever it lies, or for tickets of posts. A flush needs either.
#[repr(C)]
pub(crate) struct Room<F: Facade> {
    before: [MaybeUninit<u8>; BEFORE],
    rest: Rest<F>,
}

/// Bytes of a room of the processor's own words.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
pub(crate) const ROOM: usize = size_of::<Room<crate::facade::Native>>();

#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = assert!(ROOM == 184);

/// The larger of tickets and a request's words, and their alignment.
#[repr(C)]
union Rest<F: Facade> {
    tickets: [MaybeUninit<u64>; TICKETS],
    _words: [ManuallyDrop<MaybeUninit<F::U64>>; TICKETS],
}

impl<F: Facade> Room<F> {
    #[inline]
    pub(crate) const fn new() -> Self {
        const {
            assert!(align_of::<Request<F>>() == LINE && align_of::<Self>() >= LINE - BEFORE);
            assert!(size_of::<Self>() >= BEFORE + size_of::<Request<F>>());
        }
        Room {
            before: [MaybeUninit::uninit(); BEFORE],
            rest: Rest {
                tickets: [MaybeUninit::uninit(); TICKETS],
            },
        }
    }

    #[inline]
    pub(crate) fn tickets(&self) -> &[MaybeUninit<u64>; TICKETS] {
        // SAFETY: any bytes are tickets that may not be written yet.
        unsafe { &self.rest.tickets }
    }

    #[inline]
    pub(crate) fn tickets_mut(&mut self) -> &mut [MaybeUninit<u64>; TICKETS] {
        // SAFETY: as above.
        unsafe { &mut self.rest.tickets }
    }

    /// Puts `request` into it, at the first address that is aligned.
    #[inline]
    pub(crate) fn put(&mut self, request: Request<F>) -> Placed<'_, F> {
        let first = core::ptr::from_mut(self).cast::<u8>();
        let aligned = first.map_addr(|address| (address + BEFORE) & !(LINE - 1));
        // SAFETY: aligned, and the request ends within the room: `new` has compared the sizes. The room is borrowed.
        let place = unsafe { &mut *aligned.cast::<MaybeUninit<Request<F>>>() };
        *place = MaybeUninit::new(request);
        // SAFETY: the line above initialised it.
        Placed(unsafe { place.assume_init_mut() })
    }
}

/// A request in its room. Dropped with this: words of a simulation are.
pub(crate) struct Placed<'r, F: Facade>(&'r mut Request<F>);

impl<F: Facade> Deref for Placed<'_, F> {
    type Target = Request<F>;

    #[inline]
    fn deref(&self) -> &Request<F> {
        self.0
    }
}

impl<F: Facade> DerefMut for Placed<'_, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Request<F> {
        self.0
    }
}

impl<F: Facade> Drop for Placed<'_, F> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `put` has initialised it, and nothing uses it after this.
        unsafe { core::ptr::drop_in_place(self.0) }
    }
}
