//! A queue, with other CPUs that push, claim and take between its operations, at every point.

use super::*;
use crate::testing::interleave::{self, Interleaved};
use std::vec::Vec;

type SharedRequest = Request<Interleaved>;

/// Points at which another CPU intervenes.
const MOMENTS: u32 = 10;

fn queue() -> &'static Queue<Interleaved> {
    Box::leak(Box::new(Queue::new()))
}

fn request() -> &'static SharedRequest {
    Box::leak(Box::new(Request::sending()))
}

fn taken(queue: &Queue<Interleaved>) -> Vec<*const SharedRequest> {
    let mut all = Vec::new();
    if queue.has_ready() {
        serve(queue, |request| all.push(request));
    }
    all
}

fn serve(queue: &Queue<Interleaved>, mut each: impl FnMut(*const SharedRequest)) {
    let mut ready = queue.take();
    while let Some(request) = queue.next(&mut ready) {
        each(request);
    }
}

/// By CPU 3.
fn put(queue: &Queue<Interleaved>, request: &SharedRequest) -> (u32, bool) {
    queue.put(3, request).expect("a free slot")
}

fn is_empty(queue: &Queue<Interleaved>) -> bool {
    queue.slots.0.iter().all(|slot| slot.load(Ordering::Relaxed) == 0) && !queue.has_ready()
}

#[test]
fn first_push_needs_an_ipi_and_each_request_is_taken_once() {
    for count in [1, 2, 3, QUEUE_SLOTS] {
        let queue = queue();
        for _ in 0..2 {
            let requests: Vec<_> = (0..count).map(|_| request()).collect();
            for (index, request) in requests.iter().enumerate() {
                let (slot, first) = put(queue, request);
                assert_eq!((slot, first), ((3 + index) as u32 % 64, index == 0));
                assert!(queue.holds(*request));
            }
            if count == QUEUE_SLOTS {
                assert_eq!(queue.put(3, request()), None);
            }
            let mut all: Vec<_> = requests.iter().map(|request| core::ptr::from_ref(*request)).collect();
            // From the lowest slot.
            all.rotate_left(if count == QUEUE_SLOTS { 61 } else { 0 });
            assert_eq!(taken(queue), all);
            assert_eq!(taken(queue), []);
            assert!(requests.iter().all(|request| !queue.holds(*request)));
            assert!(is_empty(queue));
        }
    }
}

#[test]
fn slot_is_freed_before_its_request_is_served() {
    for count in [1, 2, QUEUE_SLOTS] {
        let queue = queue();
        (0..count).for_each(|_| assert!(put(queue, request()).0 < 64));
        let mut served = 0;
        serve(queue, |_| {
            let taken = queue.slots.0.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0);
            served += 1;
            assert_eq!(taken.count(), count - served);
        });
        assert_eq!(served, count);
    }
}

#[test]
fn later_request_can_be_cancelled_during_service() {
    let queue = queue();
    let requests: Vec<_> = (0..3).map(|_| request()).collect();
    let slots: Vec<_> = requests.iter().map(|request| put(queue, request).0).collect();
    let mut served = 0;
    serve(queue, |request| {
        if served == 0 {
            assert!(!queue.cancel(slots[0], requests[0]), "its target has it");
            assert!(queue.cancel(slots[2], requests[2]));
            assert_ne!(
                put(queue, self::request()).0,
                slots[2],
                "no other request gets the slot meanwhile"
            );
        }
        assert_ne!(request, core::ptr::from_ref(requests[2]));
        served += 1;
    });
    assert_eq!(served, 2);
    assert_eq!(taken(queue).len(), 1, "what was put meanwhile");
    assert!(is_empty(queue));
}

#[test]
fn simultaneous_pushes_get_distinct_slots() {
    for before in [0, 1, 62] {
        for moment in 0..MOMENTS {
            let queue = queue();
            (0..before).for_each(|_| assert!(put(queue, request()).0 < 64));
            let theirs: &'static core::cell::Cell<Option<u32>> = Box::leak(Box::default());
            interleave::after(moment, move || theirs.set(Some(put(queue, request()).0)));
            let mine = put(queue, request()).0;
            interleave::never();
            assert!(Some(mine) != theirs.get(), "at operation {moment}");
        }
    }
}

#[test]
fn one_of_two_requesters_gets_the_last_slot() {
    for moment in 0..MOMENTS {
        let queue = queue();
        (0..63).for_each(|_| assert!(put(queue, request()).0 < 64));
        let theirs: &'static core::cell::Cell<Option<bool>> = Box::leak(Box::default());
        interleave::after(moment, move || theirs.set(Some(queue.put(3, request()).is_some())));
        let mine = queue.put(3, request()).is_some();
        interleave::never();
        let theirs = theirs.get().unwrap_or(!mine);
        assert!(mine != theirs, "at operation {moment}: mine {mine}, theirs {theirs}");
        assert_eq!(taken(queue).len(), 64);
    }
}

#[test]
fn simultaneous_pushes_are_kept_and_one_interrupts() {
    for moment in 0..MOMENTS {
        let (queue, mine, theirs) = (queue(), request(), request());
        let interrupts: &'static core::cell::Cell<u32> = Box::leak(Box::default());
        interleave::after(moment, move || interrupts.set(u32::from(put(queue, theirs).1)));
        let first = put(queue, mine).1;
        interleave::never();
        assert_eq!(interrupts.get() + u32::from(first), 1, "at operation {moment}");
        assert!(
            taken(queue).contains(&core::ptr::from_ref(mine)),
            "at operation {moment}"
        );
        assert!(!queue.holds(theirs));
    }
}

#[test]
fn push_during_take_is_taken_or_interrupts() {
    for before in [1, 2] {
        for moment in 0..MOMENTS {
            let (queue, theirs) = (queue(), request());
            (0..before).for_each(|_| assert!(put(queue, request()).0 < 3 + before));
            let interrupts: &'static core::cell::Cell<Option<bool>> = Box::leak(Box::default());
            interleave::after(moment, move || interrupts.set(Some(put(queue, theirs).1)));
            let mut all = taken(queue);
            interleave::never();
            let late = !all.contains(&core::ptr::from_ref(theirs)) && interrupts.get().is_some();
            if late {
                assert_eq!(interrupts.get(), Some(true), "at operation {moment}");
                all.extend(taken(queue));
                assert!(all.contains(&core::ptr::from_ref(theirs)), "at operation {moment}");
            }
            assert!(is_empty(queue), "at operation {moment}");
        }
    }
}

#[test]
fn request_is_either_cancelled_or_taken() {
    for moment in 0..MOMENTS {
        let (queue, mine) = (queue(), request());
        let (slot, _) = put(queue, mine);
        let cancelled: &'static core::cell::Cell<Option<bool>> = Box::leak(Box::default());
        interleave::after(moment, move || cancelled.set(Some(queue.cancel(slot, mine))));
        let all = taken(queue);
        interleave::never();
        let cancelled = cancelled.get().unwrap_or_else(|| queue.cancel(slot, mine));
        let served = all.contains(&core::ptr::from_ref(mine));
        assert!(
            served != cancelled,
            "at operation {moment}: served {served}, cancelled {cancelled}"
        );
    }
    // The reverse: the target takes while the requester cancels.
    for moment in 0..3 {
        let (queue, mine) = (queue(), request());
        let (slot, _) = put(queue, mine);
        let served: &'static core::cell::Cell<bool> = Box::leak(Box::default());
        interleave::after(moment, move || {
            served.set(taken(queue).contains(&core::ptr::from_ref(mine)))
        });
        let cancelled = queue.cancel(slot, mine);
        interleave::never();
        let served = served.get() || taken(queue).contains(&core::ptr::from_ref(mine));
        assert!(
            served != cancelled,
            "at operation {moment}: served {served}, cancelled {cancelled}"
        );
    }
}

#[test]
fn cancel_ignores_another_request_in_the_slot() {
    let (queue, mine, theirs) = (queue(), request(), request());
    let (slot, _) = put(queue, mine);
    assert_eq!(taken(queue).len(), 1);
    assert_eq!(put(queue, theirs).0, slot);
    assert!(!queue.cancel(slot, mine));
    assert_eq!(taken(queue), [core::ptr::from_ref(theirs)]);
}

#[test]
fn occupied_slot_is_not_written() {
    let queue = queue();
    let writes = || queue.slots.0.iter().map(|slot| slot.writes()).sum::<u32>();
    // CPU 3 finds its own slot ready, and the next one claimed but not published yet.
    assert_eq!(put(queue, request()), (3, true));
    assert_eq!(queue.claim(4, TAKEN_BACK), Some(4));
    let before = writes();
    assert_eq!(put(queue, request()), (5, false));
    assert_eq!(writes(), before + 1);
}
