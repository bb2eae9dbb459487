//! Reads bodies of requests within bounds: of one body, of all bodies at once, and of time.
//!
//! Rules:
//! - A body that says or turns out to be longer than a limit is refused before it is kept.
//! - All bodies together hold at most so many bytes until they are answered. Where one more byte does not fit, the
//!   unfinished body that waits longest for its next bytes is given up. Part of the room is kept for small bodies.
//! - A body must be complete within a time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How much of bodies is kept, and for how long they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyBounds {
    /// Bytes of one body.
    pub one: usize,
    /// Bytes of all bodies that are not answered yet.
    pub all: usize,
    /// Of these, for small bodies alone.
    pub reserve: usize,
    /// From the headers to the last byte.
    pub within: Duration,
}

/// A body of no more than this may use the reserve.
const SMALL_BODY_BYTES: usize = 64 * 1024;
/// The first piece of room that a body takes.
const FIRST_PIECE_BYTES: usize = 4 * 1024;

/// Why a body was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than allowed.
    #[error("the body is larger than the {0} bytes that are taken")]
    TooLarge(usize),
    /// Not complete in time.
    #[error("the body was not complete after {0:?}")]
    TooSlow(Duration),
    /// Others need the room.
    #[error("too many bodies are being read; this one was given up, try again")]
    NoMemory,
    /// The connection broke, or the body is not framed as HTTP says.
    #[error("failed to read the body: {0}")]
    Broken(String),
}

impl BodyError {
    /// The HTTP status that says so.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::NoMemory => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// Room for bodies. Clones share it.
#[derive(Debug, Clone)]
pub struct BodyMemory {
    bounds: BodyBounds,
    ledger: Arc<Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    taken: usize,
    next: u64,
    /// Bodies that are not complete.
    unfinished: BTreeMap<u64, Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    held: usize,
    progress: Instant,
    give_up: CancellationToken,
}

/// A complete body. Its room is free again when it is dropped.
#[derive(Debug)]
pub struct HeldBody {
    bytes: Vec<u8>,
    memory: MemoryTaken,
}

impl std::ops::Deref for HeldBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Debug)]
struct MemoryTaken {
    id: u64,
    bytes: usize,
    ledger: Arc<Mutex<MemoryState>>,
}

fn lock(ledger: &Mutex<MemoryState>) -> MutexGuard<'_, MemoryState> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for MemoryTaken {
    fn drop(&mut self) {
        let mut ledger = lock(&self.ledger);
        // Of a body that was given up the room went to another at once.
        let held = ledger.unfinished.remove(&self.id).map_or(self.bytes, |unfinished| unfinished.held);
        ledger.taken -= held;
    }
}

impl BodyMemory {
    /// Room within `bounds`.
    #[must_use]
    pub fn new(bounds: BodyBounds) -> Self {
        Self { bounds, ledger: Arc::default() }
    }

    /// Reads a whole body.
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn read_body(&self, body: Body) -> Result<HeldBody, BodyError> {
        let announced = body.size_hint().lower();
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > self.bounds.one {
            return Err(BodyError::TooLarge(self.bounds.one));
        }
        let give_up = CancellationToken::new();
        let mut memory = self.begin_body(give_up.clone());
        let reading = self.collect_body(body, announced, &memory);
        let bytes = tokio::select! {
            biased;
            () = give_up.cancelled() => Err(BodyError::NoMemory),
            read = tokio::time::timeout(self.bounds.within, reading) => {
                read.unwrap_or(Err(BodyError::TooSlow(self.bounds.within)))
            }
        }?;
        let mut ledger = lock(&self.ledger);
        // Between its last byte and here it may have been given up; then its room is another's.
        let Some(finished) = ledger.unfinished.remove(&memory.id) else {
            drop(ledger);
            memory.bytes = 0;
            return Err(BodyError::NoMemory);
        };
        memory.bytes = finished.held;
        drop(ledger);
        Ok(HeldBody { bytes, memory })
    }

    fn begin_body(&self, give_up: CancellationToken) -> MemoryTaken {
        let mut ledger = lock(&self.ledger);
        ledger.next += 1;
        let id = ledger.next;
        ledger.unfinished.insert(id, Unfinished { held: 0, progress: Instant::now(), give_up });
        MemoryTaken { id, bytes: 0, ledger: Arc::clone(&self.ledger) }
    }

    async fn collect_body(&self, mut body: Body, announced: usize, memory: &MemoryTaken) -> Result<Vec<u8>, BodyError> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            let wanted = bytes.len().saturating_add(data.len());
            if wanted > self.bounds.one {
                return Err(BodyError::TooLarge(self.bounds.one));
            }
            let mut capacity = bytes.capacity();
            if wanted > capacity {
                // Twice as much, but no more than was announced, and no more than may be.
                capacity =
                    (2 * capacity).max(FIRST_PIECE_BYTES).min(announced.max(wanted)).max(wanted).min(self.bounds.one);
            }
            self.take_memory(memory.id, capacity - bytes.capacity(), capacity)?;
            bytes.reserve_exact(capacity - bytes.len());
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }

    /// Room for `more` bytes of a body that then holds `held`.
    fn take_memory(&self, id: u64, more: usize, held: usize) -> Result<(), BodyError> {
        let most = self.bounds.all - if held > SMALL_BODY_BYTES { self.bounds.reserve } else { 0 };
        let mut guard = lock(&self.ledger);
        let ledger = &mut *guard;
        while more > 0 && ledger.taken + more > most {
            let others = ledger.unfinished.iter().filter(|(other, body)| **other != id && body.held > 0);
            let slowest = others.min_by_key(|(_, body)| body.progress).map(|(other, _)| *other);
            let Some(slowest) = slowest.and_then(|other| ledger.unfinished.remove(&other)) else {
                return Err(BodyError::NoMemory);
            };
            ledger.taken -= slowest.held;
            slowest.give_up.cancel();
        }
        let Some(own) = ledger.unfinished.get_mut(&id) else { return Err(BodyError::NoMemory) };
        own.held += more;
        own.progress = Instant::now();
        ledger.taken += more;
        Ok(())
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn taken_bytes(&self) -> usize {
        lock(&self.ledger).taken
    }
}

impl HeldBody {
    /// Bytes of room that it takes.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.memory.bytes
    }
}
