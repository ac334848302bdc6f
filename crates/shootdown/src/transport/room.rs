//! Room for a request in the frame of its requester, aligned by hand. Where the compiler aligns a request, it aligns the
//! whole frame, and rounds its size up twice (`cargo xtask stack`).

use crate::cache_padded::CachePadded;
use crate::facade::Facade;
use crate::transport::request::Request;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

/// Alignment of stacks, and so of [`Room`].
const STACK: usize = 16;

/// Bytes that may lie before the request: a cache line less the alignment of the stack.
const BEFORE: usize = align_of::<CachePadded<u8>>() - STACK;

/// Room for a request, wherever it lies on the stack.
#[repr(C, align(16))]
pub(crate) struct Room<F: Facade> {
    before: [MaybeUninit<u8>; BEFORE],
    words: [MaybeUninit<F::U64>; 16],
}

impl<F: Facade> Room<F> {
    #[inline]
    pub(crate) const fn new() -> Self {
        const {
            assert!(align_of::<Request<F>>() == BEFORE + STACK && align_of::<Self>() == STACK);
            assert!(size_of::<Self>() >= BEFORE + size_of::<Request<F>>());
        }
        Room {
            before: [MaybeUninit::uninit(); BEFORE],
            words: [const { MaybeUninit::uninit() }; 16],
        }
    }

    /// Puts `request` into it, at the first address that is aligned.
    #[inline]
    pub(crate) fn put(&mut self, request: Request<F>) -> Placed<'_, F> {
        let first = core::ptr::from_mut(self).cast::<u8>();
        let aligned = first.map_addr(|address| (address + BEFORE) & !(BEFORE + STACK - 1));
        // SAFETY: aligned, and the request ends within the room: `new` has compared the sizes. The room is borrowed.
        Placed(unsafe { (*aligned.cast::<MaybeUninit<Request<F>>>()).write(request) })
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
        // SAFETY: `put` has written it, and nothing uses it after this.
        unsafe { core::ptr::drop_in_place(self.0) }
    }
}
