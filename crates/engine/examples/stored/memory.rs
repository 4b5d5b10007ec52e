//! What is allocated, counted: what a process has from its system says more of what it had before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an allocation takes beside what was asked for.
const OVERHEAD: usize = 16;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts.
pub(crate) struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn more(size: usize) {
    let held = HELD.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

#[expect(
    unsafe_code,
    reason = "an allocator is; it hands everything on as it came"
)]
// SAFETY: every call goes to the system's allocator with the arguments that came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size() + OVERHEAD);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() + OVERHEAD, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // What is large is moved by its pages: it is not there twice.
        more(size);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// How many bytes are held, from which the most is counted anew.
pub(crate) fn begin() -> usize {
    let held = HELD.load(Ordering::Relaxed);
    PEAK.store(held, Ordering::Relaxed);
    held
}

/// How many bytes were held at most since it began.
pub(crate) fn most() -> usize {
    PEAK.load(Ordering::Relaxed)
}
