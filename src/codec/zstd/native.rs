//! The Zstandard library: the only file that calls it.
//!
//! Three things: decoding and encoding of one whole frame in memory (for Blosc), encoding of a frame piece by piece, and
//! [`Running`], a decoder whose whole state can be copied and put back.
//!
//! The last needs `unsafe`. `ZSTD_initStaticDStream` (facebook/zstd 1.5.7, lib/zstd.h, experimental section) places a decoder in
//! memory of the caller: the context, its input buffer and the window lie in one allocation, and the library neither grows it
//! nor allocates anything else. Its pointers lead into that allocation and to constants of the library. So a copy of the
//! allocation is a snapshot, and copying it back to the same address restores it. A snapshot is therefore bound to the
//! [`Running`] it was taken from. `Cargo.toml` pins the library's version; the tests read on from restored snapshots.
#![expect(
    unsafe_code,
    reason = "a decoder can be copied only where its memory is known"
)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(feature = "blosc")]
use zstd_safe::DCtx;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::codec::input::{Step, Stop};
use crate::error::{Result, corrupt};

/// Decodes whole frames in memory, one after the other.
#[cfg(feature = "blosc")]
pub(in crate::codec) struct Decoder(DCtx<'static>);

#[cfg(feature = "blosc")]
impl Decoder {
    /// A decoder without a frame.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if the library has no memory for it.
    pub(in crate::codec) fn new() -> Result<Self> {
        DCtx::try_create()
            .map(Self)
            .ok_or_else(|| corrupt("no memory for a zstd decoder"))
    }

    /// Decodes the frame `packed` into `out`, which may be longer, and gives the decoded length.
    ///
    /// `dictionary` may be empty.
    pub(in crate::codec) fn decode(
        &mut self,
        packed: &[u8],
        dictionary: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        let decoded = if dictionary.is_empty() {
            self.0.decompress(out, packed)
        } else {
            self.0.decompress_using_dict(out, packed, dictionary)
        };
        decoded.map_err(|code| corrupt(format!("zstd: {}", zstd_safe::get_error_name(code))))
    }
}

/// Encodes frames.
pub(in crate::codec) struct ZstdEncoder(CCtx<'static>);

impl ZstdEncoder {
    /// An encoder of a compression level.
    pub(in crate::codec) fn new(level: i32) -> Result<Self> {
        let mut context =
            CCtx::try_create().ok_or_else(|| corrupt("no memory for a zstd encoder"))?;
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .map_err(refused)?;
        Ok(Self(context))
    }

    /// Encodes `bytes` as one frame into `out`, and gives its length; `None` if it does not fit.
    #[cfg(any(test, feature = "blosc"))]
    pub(in crate::codec) fn encode(&mut self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.compress2(out, bytes).ok()
    }

    /// Begins a frame of `len` decoded bytes, to be fed through [`ZstdEncoder::push`].
    pub(super) fn begin(&mut self, len: u64) -> Result<()> {
        self.0
            .reset(ResetDirective::SessionOnly)
            .and_then(|_| self.0.set_pledged_src_size(Some(len)))
            .map_err(refused)?;
        Ok(())
    }

    /// Encodes a part of `bytes`, and gives how many bytes of it were taken and how many of `out` were filled.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<(usize, usize)> {
        let (mut input, mut output) = (InBuffer::around(bytes), OutBuffer::around(out));
        self.0
            .compress_stream(&mut output, &mut input)
            .map_err(refused)?;
        Ok((input.pos(), output.pos()))
    }

    /// Ends the frame: gives how many bytes of `out` were filled, and whether that was all.
    pub(super) fn finish(&mut self, out: &mut [u8]) -> Result<(usize, bool)> {
        let mut output = OutBuffer::around(out);
        let left = self.0.end_stream(&mut output).map_err(refused)?;
        Ok((output.pos(), left == 0))
    }
}

fn refused(code: usize) -> crate::error::Error {
    corrupt(format!("zstd: {}", zstd_safe::get_error_name(code)))
}

/// A decoder of a stream of frames in memory of its own.
///
/// Invariant: `memory` is an allocation from `Box<[u64]>` that nothing else points to, and holds at its beginning a context that
/// `ZSTD_initStaticDStream` made there.
pub(super) struct Running {
    memory: NonNull<[u64]>,
    /// Tells this decoder's snapshots from those of others.
    name: Arc<()>,
}

// SAFETY: the memory is owned like that of a box, and the library keeps no state of a context in a thread.
unsafe impl Send for Running {}

/// A copy of a decoder's memory, of use to that decoder only.
pub(super) struct Snapshot {
    words: Box<[u64]>,
    of: Arc<()>,
}

impl Snapshot {
    /// Bytes of memory held.
    pub(super) fn len(&self) -> usize {
        size_of_val(&*self.words)
    }
}

impl Running {
    /// A decoder at the start of a frame, for windows of up to `window` bytes, which the caller has bounded.
    pub(super) fn new(window: usize) -> Result<Self> {
        let bytes = Self::bytes_for(window);
        let words = bytes.div_ceil(size_of::<u64>());
        let memory = NonNull::from(Box::leak(vec![0u64; words].into_boxed_slice()));
        let mut running = Self {
            memory,
            name: Arc::new(()),
        };
        if !running.reset() {
            return Err(corrupt(format!("zstd takes no {bytes} bytes of memory")));
        }
        Ok(running)
    }

    /// Bytes of memory of a decoder for windows of up to `window` bytes.
    pub(super) fn bytes_for(window: usize) -> usize {
        // SAFETY: a pure computation.
        unsafe { zstd_sys::ZSTD_estimateDStreamSize(window) }
    }

    /// Starts over at the start of a frame, and says whether the memory is enough for any.
    pub(super) fn reset(&mut self) -> bool {
        // SAFETY: the memory is aligned to 8 bytes, as long as said, and lives until `drop`.
        let context = unsafe { zstd_sys::ZSTD_initStaticDStream(self.address(), self.bytes()) };
        !context.is_null()
    }

    /// Decodes some of `input` into `out`.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step> {
        let mut to = zstd_sys::ZSTD_outBuffer {
            dst: out.as_mut_ptr().cast(),
            size: out.len(),
            pos: 0,
        };
        let mut from = zstd_sys::ZSTD_inBuffer {
            src: input.as_ptr().cast(),
            size: input.len(),
            pos: 0,
        };
        // SAFETY: the context was made by `new`, or is a copy of one at the same address (`restore`). Both buffers are as long
        // as said, and the library keeps no pointer to them that it would read or write through later: its output mode is the
        // buffered one.
        let code = unsafe {
            zstd_sys::ZSTD_decompressStream(self.address().cast(), &raw mut to, &raw mut from)
        };
        // SAFETY: a pure computation.
        if unsafe { zstd_sys::ZSTD_isError(code) } != 0 {
            return Err(refused(code));
        }
        Ok(Step {
            used: from.pos,
            filled: to.pos,
            stop: if code == 0 { Stop::End } else { Stop::Full },
        })
    }

    /// A copy of the state.
    pub(super) fn snapshot(&self) -> Snapshot {
        // SAFETY: the memory is owned and initialised, and nothing writes it while `self` is borrowed.
        let words = unsafe { self.memory.as_ref() };
        Snapshot {
            words: words.into(),
            of: Arc::clone(&self.name),
        }
    }

    /// Puts back a state that was taken from this decoder; `false` if it is that of another.
    #[must_use]
    pub(super) fn restore(&mut self, snapshot: &Snapshot) -> bool {
        if !self.is_mine(snapshot) {
            return false;
        }
        // SAFETY: both are that long and do not overlap. The state's pointers lead into this memory, because it is a copy of it.
        unsafe {
            self.memory.cast::<u64>().copy_from_nonoverlapping(
                NonNull::from(&*snapshot.words).cast(),
                snapshot.words.len(),
            );
        }
        true
    }

    /// The same, and the state before is in `snapshot` then.
    #[must_use]
    pub(super) fn exchange(&mut self, snapshot: &mut Snapshot) -> bool {
        if !self.is_mine(snapshot) {
            return false;
        }
        // SAFETY: the memory is owned and initialised, and nothing else refers to it while `self` is borrowed.
        let words = unsafe { self.memory.as_mut() };
        words.swap_with_slice(&mut snapshot.words);
        true
    }

    /// Whether a snapshot was taken from this decoder: its pointers lead into this memory only.
    fn is_mine(&self, snapshot: &Snapshot) -> bool {
        Arc::ptr_eq(&self.name, &snapshot.of) && snapshot.words.len() == self.memory.len()
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> usize {
        self.memory.len().saturating_mul(size_of::<u64>())
    }

    fn address(&self) -> *mut c_void {
        self.memory.as_ptr().cast()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: the memory was leaked from a box in `new`, and is freed once; the library owns nothing else for it.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}
