//! An allocator that counts the allocated memory: the memory that a process has from its system
//! depends more on its earlier use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The overhead of an allocation in bytes.
const OVERHEAD: usize = 16;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a counter.
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
// SAFETY: every call is passed to the system's allocator with the same arguments.
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
        // A large allocation is moved by its pages: it does not exist twice.
        more(size);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Returns the number of allocated bytes, and resets the maximum to it.
pub(crate) fn begin() -> usize {
    let held = HELD.load(Ordering::Relaxed);
    PEAK.store(held, Ordering::Relaxed);
    held
}

/// Returns the maximum number of allocated bytes since the reset.
pub(crate) fn most() -> usize {
    PEAK.load(Ordering::Relaxed)
}
