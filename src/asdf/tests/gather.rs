use super::*;
use crate::asdf::tests::view_cases::{Case, cases};
use crate::asdf::tile::Grain;
use crate::codec::Cache;
use crate::error::{Error, Place};
use crate::source::Memory;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

/// A block that counts what is read of it.
struct Counted {
    bytes: Memory,
    lends: bool,
    /// Who asked for loans.
    borrowers: Mutex<Vec<Borrower>>,
    read: AtomicU64,
    broken: AtomicBool,
}

impl Counted {
    fn new(len: u64, lends: bool) -> Arc<Self> {
        Arc::new(Self {
            bytes: Memory::new((0..len).map(byte).collect()),
            lends,
            borrowers: Mutex::default(),
            read: AtomicU64::new(0),
            broken: AtomicBool::new(false),
        })
    }

    fn read(&self) -> u64 {
        self.read.swap(0, Ordering::Relaxed)
    }
}

impl Source for Counted {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        if self.broken.load(Ordering::Relaxed) {
            return Err(Error::corrupt(Place::Byte(offset), "broken"));
        }
        self.bytes.read_exact_at(buf, offset)
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        self.borrowers.lock().unwrap().push(to);
        if !self.lends {
            return Ok(None);
        }
        self.bytes.lend(offset, len, to)
    }
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Numbers so small that arrays of a few hundred bytes meet every case.
fn grains() -> impl Strategy<Value = Grain> {
    (1u64..400, 0u64..20, 1u64..80, 1u64..100).prop_map(|(scratch, gap, direct, usual)| Grain {
        scratch,
        gap,
        direct,
        usual,
    })
}

fn read(source: &dyn Source, offset: u64, len: u64) -> Vec<u8> {
    let mut buf = vec![0xAA; len as usize];
    source.read_exact_at(&mut buf, offset).unwrap();
    buf
}

/// `rows` × `columns` numbers of eight bytes, transposed.
fn transposed(rows: u64, columns: u64) -> View {
    let strides = [8, 8 * rows as i64];
    View::new(8, &[rows, columns], Some(&strides), 0, 8 * rows * columns).unwrap()
}

const SMALL: Grain = Grain {
    scratch: 1 << 12,
    gap: 64,
    direct: 1 << 12,
    usual: 1 << 10,
};

proptest! {
    #[test]
    fn any_read_gives_the_bytes_of_the_elements(
        case in cases(),
        grain in grains(),
        budget in prop_oneof![Just(0usize), 1usize..3000],
        lends in any::<bool>(),
        reads in prop::collection::vec((any::<u16>(), 0u64..200, any::<bool>()), 1..20),
    ) {
        let inner = Counted::new(case.block_len, lends);
        let want: Vec<_> = case.places().iter().map(|&at| byte(at as u64)).collect();
        let array = Strided::new(inner, case.view(), &Buffers::alone(budget, grain)).unwrap();
        prop_assert_eq!(array.len(), want.len() as u64);
        let mut next = 0;
        for (at, len, sequential) in reads {
            let start = if sequential { next } else { u64::from(at) % (array.len() + 1) };
            next = (start + len).min(array.len());
            let want = &want[start as usize..next as usize];
            prop_assert_eq!(&read(&array, start, next - start)[..], want);
            if let Some(Loan::Shared(bytes, range)) = array.lend(start, want.len(), Borrower::Kernel).unwrap() {
                prop_assert_eq!(&(*bytes).as_ref()[range], want);
            }
        }
        prop_assert!(array.read_exact_at(&mut [0], array.len()).is_err());
        prop_assert!(array.lend(array.len(), 1, Borrower::Kernel).is_err());
    }
}

#[test]
fn numbers_for_files_are_right_for_large_arrays_too() {
    let (rows, columns) = (300u64, 1000u64);
    let inner = Counted::new(rows * columns * 8 + 5, false);
    for (itemsize, shape, strides, offset) in [
        (8u64, vec![columns, rows], vec![8i64, 8000], 5u64),
        (8, vec![columns, rows], vec![-8, 8000], 5 + 7992),
        (4, vec![rows, columns], vec![-8000, 8], 5 + 299 * 8000),
        (1, vec![8, columns, rows], vec![1, 8, 8000], 0),
        (2, vec![columns, 4, rows], vec![8, 2, 8000], 1),
    ] {
        let case = Case {
            itemsize,
            shape,
            strides,
            offset,
            block_len: inner.len(),
        };
        let want: Vec<_> = case.places().iter().map(|&at| byte(at as u64)).collect();
        let inner = Arc::clone(&inner) as Arc<dyn Source>;
        let array =
            Strided::new(inner, case.view(), &Buffers::alone(1 << 20, Grain::DEFAULT)).unwrap();
        assert!(read(&array, 3, array.len() - 3) == want[3..], "{case:?}");
        let mut parts = Vec::new();
        while parts.len() < want.len() {
            let len = (want.len() - parts.len()).min(100_001);
            parts.extend(read(&array, parts.len() as u64, len as u64));
        }
        assert!(parts == want, "{case:?}");
    }
}

#[test]
fn a_sequential_read_of_a_transposed_array_reads_each_byte_once() {
    let inner = Counted::new(128 * 128 * 8, false);
    let buffers = Buffers::alone(32 << 10, SMALL);
    let array = Strided::new(Arc::clone(&inner) as _, transposed(128, 128), &buffers).unwrap();
    for at in (0..array.len()).step_by(1 << 10) {
        read(&array, at, 1 << 10);
    }
    assert_eq!(inner.read(), array.len());
}

#[test]
fn a_small_read_far_from_the_last_is_gathered_alone() {
    let inner = Counted::new(128 * 128 * 8, false);
    let buffers = Buffers::alone(32 << 10, SMALL);
    let array = Strided::new(Arc::clone(&inner) as _, transposed(128, 128), &buffers).unwrap();
    read(&array, 50_000, 16);
    assert_eq!(inner.read(), 16);
    read(&array, 50_016, 16);
    assert_eq!(
        inner.read(),
        16 << 10,
        "a second one beside it gathers the band"
    );
    read(&array, 60_000, 16);
    assert_eq!(inner.read(), 0, "which is kept");
}

/// Each small read of a block of some bytes that is shown over and over made half the budget of copies of them.
#[test]
fn what_copies_few_bytes_is_no_reason_for_a_band() {
    let inner = Counted::new(8, false);
    let view = View::new(8, &[1000, 1000], Some(&[0, 0]), 0, 8).unwrap();
    let buffers = Buffers::alone(1 << 20, SMALL);
    let array = Strided::new(Arc::clone(&inner) as _, view, &buffers).unwrap();
    for at in [4_000_000, 4_000_080] {
        read(&array, at, 8);
        assert_eq!(inner.read(), 8, "alone");
    }
}

#[test]
fn a_column_of_a_table_reads_its_rows_once() {
    let inner = Counted::new(24 * 1000, false);
    let view = View::new(8, &[1000], Some(&[24]), 8, 24 * 1000).unwrap();
    let array = Strided::new(
        Arc::clone(&inner) as _,
        view,
        &Buffers::alone(1 << 20, Grain::DEFAULT),
    )
    .unwrap();
    read(&array, 0, 8000);
    assert_eq!(inner.read(), 24 * 1000 - 16);
}

#[test]
fn the_bytes_of_a_mapped_file_are_never_asked_for() {
    let inner = Counted::new(128 * 128 * 8, false);
    let buffers = Buffers::alone(32 << 10, SMALL);
    let array = Strided::new(Arc::clone(&inner) as _, transposed(128, 128), &buffers).unwrap();
    read(&array, 0, array.len());
    assert_eq!(inner.read(), array.len());
    let borrowers = inner.borrowers.lock().unwrap();
    assert!(borrowers.iter().all(|to| *to == Borrower::Program));
    assert!(!borrowers.is_empty());
}

#[test]
fn what_lies_in_one_run_is_lent_by_the_block() {
    let inner = Counted::new(1000, true);
    let view = View::new(1, &[3, 100], Some(&[200, 1]), 10, 1000).unwrap();
    let array = Strided::new(inner, view, &Buffers::alone(1 << 20, Grain::DEFAULT)).unwrap();
    assert!(
        matches!(array.lend(130, 70, Borrower::Kernel), Ok(Some(Loan::Shared(_, range))) if range == (240..310))
    );
    assert!(array.lend(130, 71, Borrower::Kernel).unwrap().is_none());
}

#[test]
fn bands_of_many_arrays_stay_within_the_budget() {
    let inner = Counted::new(128 * 128 * 8, false);
    let buffers = Buffers::alone(32 << 10, SMALL);
    let want = read(
        &Strided::new(
            Arc::clone(&inner) as _,
            transposed(128, 128),
            &Buffers::alone(0, Grain::DEFAULT),
        )
        .unwrap(),
        0,
        inner.len(),
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let inner = Arc::clone(&inner) as Arc<dyn Source>;
                let array = Strided::new(inner, transposed(128, 128), &buffers).unwrap();
                for at in (0..array.len()).step_by(1 << 10) {
                    assert!(read(&array, at, 1 << 10) == want[at as usize..][..1 << 10]);
                    assert!(buffers.held() <= 32 << 10);
                }
            });
        }
    });
    assert_eq!(buffers.held(), 0, "closed arrays keep nothing");
}

#[test]
fn a_failed_read_gives_its_room_back() {
    let inner = Counted::new(128 * 128 * 8, false);
    let cache = Cache::new(64 << 10);
    let buffers = Buffers::with_grain(&cache, 32 << 10, SMALL);
    let array = Strided::new(Arc::clone(&inner) as _, transposed(128, 128), &buffers).unwrap();
    inner.broken.store(true, Ordering::Relaxed);
    assert_eq!(
        array
            .read_exact_at(&mut [0; 1024], 0)
            .unwrap_err()
            .to_string(),
        "byte 0: broken"
    );
    assert!(array.lend(0, 1024, Borrower::Kernel).is_err());
    assert_eq!((buffers.held(), cache.used()), (0, 0));
    inner.broken.store(false, Ordering::Relaxed);
    assert!(array.read_exact_at(&mut [0; 1024], 0).is_ok());
    assert_eq!((buffers.held(), cache.used()), (16 << 10, 16 << 10));
    drop(array);
    assert_eq!((buffers.held(), cache.used()), (0, 0));
}

#[test]
fn a_view_of_a_longer_block_is_refused() {
    let view = View::new(8, &[10], None, 0, 80).unwrap();
    assert!(
        Strided::new(
            Counted::new(79, false),
            view,
            &Buffers::alone(0, Grain::DEFAULT)
        )
        .is_err()
    );
}
