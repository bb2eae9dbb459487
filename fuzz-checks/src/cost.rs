//! What one execution may cost: processor time of its thread, and memory above what there was when it began.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

/// Counts bytes; only the thread that checks allocates.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count_more(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    if held > MOST.load(Relaxed) {
        MOST.store(held, Relaxed);
    }
}

// SAFETY: it hands everything to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_more(layout.size());
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_more(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What an execution may cost for an input of some bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Milliseconds, whatever the input.
    pub ms: u64,
    /// And so many nanoseconds for each byte.
    pub ns_per_byte: u64,
    /// KiB, whatever the input.
    pub kib: usize,
    /// And so many bytes for each byte.
    pub bytes_per_byte: usize,
}

/// How much slower code is that is not optimised: a plain build plays what was kept too.
const SLOWNESS: u32 = if cfg!(all(debug_assertions, not(fuzzing))) { 40 } else { 1 };

/// Does `work` within its bound, else panics. What takes too long is done once more before it counts.
pub fn within<R>(what: &str, bound: Bound, input: usize, mut work: impl FnMut() -> R) -> R {
    let most = SLOWNESS * (Duration::from_millis(bound.ms) + Duration::from_nanos(bound.ns_per_byte * input as u64));
    let most_bytes = bound.kib * 1024 + bound.bytes_per_byte * input;
    let (mut done, took, bytes) = measure(&mut work);
    assert!(bytes <= most_bytes, "{what}: {bytes} bytes of memory for {input} bytes, at most {most_bytes}");
    if took > most {
        let (again, twice, _) = measure(&mut work);
        done = again;
        assert!(twice <= most, "{what}: {took:?} and {twice:?} for {input} bytes, at most {most:?}");
    }
    done
}

fn measure<R>(work: &mut impl FnMut() -> R) -> (R, Duration, usize) {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let began = thread_time();
    let done = work();
    let took = thread_time().saturating_sub(began);
    (done, took, MOST.load(Relaxed).saturating_sub(before))
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
