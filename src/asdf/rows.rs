//! Rows of a table, or elements of an image, made of the elements of other arrays when they are read.
//!
//! A row is put together from one record of each part. A part is an array; a record is one of its elements or rows. `conversion`
//! changes the elements. An image is a table whose rows are single elements.

mod conversion;

use std::sync::Arc;

use self::conversion::Cells;
use super::tile::{in_memory, misplaced};
use crate::error::Result;
use crate::source::{PooledBuf, Source, checked_end, len_u64};

pub(crate) use self::conversion::Conversion;

/// Bytes of rows, or of the records of a part, that are converted at a time: they stay in the processor's second cache.
const BATCH: u64 = 256 << 10;
/// Bytes of rows that are put together at a time: they stay in the processor's first cache, and some records beside them.
const TILE: usize = 16 << 10;

/// Elements of one kind, one behind the other in a record and in a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowField {
    /// Where they begin in the record.
    pub(crate) from: u64,
    /// Where they begin in the row.
    pub(crate) to: u64,
    /// Number of elements, at least 1.
    pub(crate) count: u64,
    /// The conversion of each.
    pub(crate) change: Conversion,
}

impl RowField {
    /// Bytes of its elements before and after the conversion.
    fn lens(&self) -> (u64, u64) {
        let (from, to) = self.change.sizes();
        // exact: both lie in a record or row, whose length is known
        (
            self.count.saturating_mul(from),
            self.count.saturating_mul(to),
        )
    }

    /// Converts the elements of every row.
    fn convert_rows(
        &self,
        (records, record): (&[u8], usize),
        (rows, row): (&mut [u8], usize),
    ) -> Result<()> {
        let (from, to) = (in_memory(self.from)?, in_memory(self.to)?);
        let (from_len, to_len) = (in_memory(self.lens().0)?, in_memory(self.lens().1)?);
        // no field may reach into the next record or row
        let is_within = |at: usize, len, all| at.checked_add(len).is_some_and(|end| end <= all);
        if !is_within(from, from_len, record) || !is_within(to, to_len, row) {
            return Err(misplaced());
        }
        self.change.convert(Cells {
            from: records.get(from..).unwrap_or_default(),
            record,
            to: rows.get_mut(to..).unwrap_or_default(),
            row,
            count: in_memory(self.count)?,
        })
    }
}

/// An array, and the conversion of its records.
#[derive(Debug)]
pub(crate) struct RowPart<R> {
    /// The records, one behind the other: a [`Source`] of them, or the number of the array that has them.
    pub(crate) records: R,
    /// Bytes of a record.
    pub(crate) record: u64,
    /// The parts of a record that a row shows, in the order of the row.
    pub(crate) fields: Vec<RowField>,
}

/// The rows of a table, or the elements of an image.
pub(crate) struct Rows {
    parts: Vec<RowPart<Arc<dyn Source>>>,
    /// Bytes of a row.
    width: u64,
    len: u64,
}

impl Rows {
    /// `count` rows of `width` bytes.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::Error::Corrupt) if a part has fewer records, or the rows together exceed 2^64 bytes.
    pub(crate) fn new(
        parts: Vec<RowPart<Arc<dyn Source>>>,
        width: u64,
        count: u64,
    ) -> Result<Self> {
        let len = width.checked_mul(count).ok_or_else(misplaced)?;
        let short = |part: &RowPart<Arc<dyn Source>>| {
            let records = part.record.checked_mul(count);
            records.is_none_or(|records| records > part.records.len())
        };
        if parts.iter().any(short) {
            return Err(misplaced());
        }
        Ok(Self { parts, width, len })
    }

    /// The rows as a source of bytes. If one array has exactly these rows and nothing is converted, it is that array.
    pub(crate) fn into_source(self) -> Arc<dyn Source> {
        let same = |field: &RowField| field.from == field.to && field.change.is_nothing();
        match self.parts.as_slice() {
            [part]
                if part.record == self.width
                    && part.fields.iter().all(same)
                    && part.records.len() == self.len =>
            {
                Arc::clone(&part.records)
            }
            _ => Arc::new(self),
        }
    }

    /// Bytes of all records that make up one row.
    fn records_len(&self) -> u64 {
        let records = self.parts.iter().map(|part| part.record);
        records.fold(0, u64::saturating_add)
    }

    /// Puts whole rows together, from row `first` on. Callers ask for so few that rows and records stay in the
    /// processor's second cache.
    fn convert(&self, first: u64, rows: &mut [u8]) -> Result<()> {
        let width = in_memory(self.width)?;
        let count = rows.len().checked_div(width).unwrap_or(0);
        // One field that keeps place and size, as in an image, is
        // read into `rows` and converted there, without a copy.
        if let [part] = self.parts.as_slice()
            && let [field] = part.fields.as_slice()
            && field.lens() == (self.width, self.width)
            && part.record == self.width
        {
            let at = first.checked_mul(part.record).ok_or_else(misplaced)?;
            part.records.read_exact_at(rows, at)?;
            field.change.in_place(rows);
            return Ok(());
        }
        let len = in_memory(self.records_len())?.checked_mul(count);
        let mut records = PooledBuf::of(len.ok_or_else(misplaced)?);
        // one buffer, in which the records of each part follow those of the part before
        let mut rest: &mut [u8] = &mut records;
        for part in &self.parts {
            let len = count.checked_mul(in_memory(part.record)?);
            let read = rest.split_off_mut(..len.ok_or_else(misplaced)?);
            let at = first.checked_mul(part.record).ok_or_else(misplaced)?;
            part.records
                .read_exact_at(read.ok_or_else(misplaced)?, at)?;
        }
        // each field goes over all rows, so few that they stay in the first cache meanwhile
        let few = TILE.checked_div(width).unwrap_or(1).max(1);
        let tiles = rows.chunks_mut(few.saturating_mul(width).max(1));
        for (n, tile) in tiles.enumerate() {
            let mut rest: &[u8] = &records;
            for part in &self.parts {
                let record = in_memory(part.record)?;
                let of_part = rest.split_off(..count.saturating_mul(record));
                let before = n.saturating_mul(few).saturating_mul(record);
                let of_tile = of_part.and_then(|records| records.get(before..));
                let of_tile = of_tile.ok_or_else(misplaced)?;
                for field in &part.fields {
                    field.convert_rows((of_tile, record), (tile, width))?;
                }
            }
        }
        Ok(())
    }

    /// Reads some bytes of a row that is too long to be put together as a whole, from byte `within` of it on. Returns how many.
    fn convert_piece(&self, row: u64, within: u64, out: &mut [u8]) -> Result<usize> {
        let fields = self.parts.iter();
        let mut fields = fields.flat_map(|part| part.fields.iter().map(move |field| (part, field)));
        let holds = |field: &RowField| {
            let skipped = within.checked_sub(field.to);
            skipped.is_some_and(|skipped| skipped < field.lens().1)
        };
        let (part, field) = fields
            .find(|(_, field)| holds(field))
            .ok_or_else(misplaced)?;
        let (from_size, to_size) = field.change.sizes();
        let skipped = within.saturating_sub(field.to);
        let element = skipped.checked_div(to_size).unwrap_or(0);
        let inside = in_memory(skipped.checked_rem(to_size).unwrap_or(0))?;
        // an element has at most 8 bytes on either side, so both buffers keep within a batch
        let most = (BATCH / 8).min(field.count.saturating_sub(element));
        let wanted = len_u64(out.len().saturating_add(inside)).div_ceil(to_size);
        let count = wanted.min(most);
        let mut elements = PooledBuf::of(in_memory(count.saturating_mul(from_size))?);
        let at = row
            .checked_mul(part.record)
            .and_then(|at| at.checked_add(field.from))
            .and_then(|at| at.checked_add(element.checked_mul(from_size)?));
        part.records
            .read_exact_at(&mut elements, at.ok_or_else(misplaced)?)?;
        let mut converted = PooledBuf::of(in_memory(count.saturating_mul(to_size))?);
        let (record, row) = (elements.len(), converted.len());
        field.change.convert(Cells {
            from: &elements,
            record,
            to: &mut converted,
            row,
            count: in_memory(count)?,
        })?;
        let converted = converted.get(inside..).unwrap_or_default();
        let len = converted.len().min(out.len());
        for (to, from) in out.iter_mut().zip(converted) {
            *to = *from;
        }
        Ok(len)
    }

    /// Reads bytes from `at` on into the start of `out`. Returns how many.
    fn read_some(&self, out: &mut [u8], at: u64) -> Result<usize> {
        let row = at.checked_div(self.width).ok_or_else(misplaced)?;
        let within = at.checked_rem(self.width).ok_or_else(misplaced)?;
        let longest = self.width.max(self.records_len());
        // not even one row and its records would fit into a batch
        if longest > BATCH {
            return self.convert_piece(row, within, out);
        }
        let width = in_memory(self.width)?;
        if within == 0 && out.len() >= width {
            let most = in_memory(BATCH.checked_div(longest).unwrap_or(1))?;
            let rows = out.len().checked_div(width).unwrap_or(1).min(most);
            let len = rows.saturating_mul(width);
            self.convert(row, out.get_mut(..len).ok_or_else(misplaced)?)?;
            return Ok(len);
        }
        // a read begins or ends within this row: it is made whole, and a piece of it copied
        let mut whole = PooledBuf::of(width);
        self.convert(row, &mut whole)?;
        let found = whole.get(in_memory(within)?..).ok_or_else(misplaced)?;
        for (to, from) in out.iter_mut().zip(found) {
            *to = *from;
        }
        Ok(found.len().min(out.len()))
    }
}

impl Source for Rows {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let done = self.read_some(rest, at)?;
            if done == 0 {
                return Err(misplaced());
            }
            rest = rest.get_mut(done..).unwrap_or_default();
            at = at.saturating_add(len_u64(done));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::conversion::SIGN;
    use super::*;
    use crate::asdf::datatype::ByteOrder;
    use crate::source::{Memory, read_all};
    use proptest::prelude::*;

    fn number(size: u8, swap: bool, flip: bool) -> Conversion {
        Conversion::Number { size, swap, flip }
    }

    fn part(bytes: Vec<u8>, record: u64, fields: &[RowField]) -> RowPart<Arc<dyn Source>> {
        RowPart {
            records: Arc::new(Memory::new(bytes)),
            record,
            fields: fields.to_vec(),
        }
    }

    fn field(from: u64, to: u64, count: u64, change: Conversion) -> RowField {
        RowField {
            from,
            to,
            count,
            change,
        }
    }

    /// The bytes of a column, by the values.
    fn image(bytes: Vec<u8>, change: Conversion) -> Vec<u8> {
        let size = change.sizes().0;
        let count = bytes.len() as u64 / size;
        let parts = vec![part(bytes, size, &[field(0, 0, 1, change)])];
        let rows = Rows::new(parts, size, count).unwrap();
        read_all(&rows, 1 << 20).unwrap()
    }

    #[test]
    fn unsigned_numbers_are_signed_ones_with_an_offset() {
        let bytes = [0_u16, 1, 32768, 65535].map(u16::to_le_bytes).concat();
        let want = [i16::MIN, i16::MIN + 1, 0, i16::MAX].map(i16::to_be_bytes);
        assert_eq!(image(bytes, number(2, true, true)), want.concat());
        let bytes = [0_u64, u64::MAX].map(u64::to_be_bytes).concat();
        let want = [i64::MIN, i64::MAX].map(i64::to_be_bytes);
        assert_eq!(image(bytes, number(8, false, true)), want.concat());
        // BZERO is -128 there
        let bytes = [-128_i8, 0, 127].map(i8::to_le_bytes).concat();
        assert_eq!(image(bytes, number(1, false, true)), [0, 128, 255]);
    }

    #[test]
    fn truth_values_are_letters_and_characters_bytes() {
        assert_eq!(image(vec![0, 1, 7], Conversion::Truth), b"FTT");
        assert_eq!(image(vec![0, 1, 7], Conversion::Bit), [0, 1, 1]);
        let text = ['a', '\0'].map(|c| u32::from(c).to_le_bytes()).concat();
        let of = |text: Vec<u8>| {
            let narrow = field(0, 0, 2, Conversion::Narrow(ByteOrder::Little));
            let rows = Rows::new(vec![part(text, 8, &[narrow])], 2, 1).unwrap();
            read_all(&rows, 10)
        };
        assert_eq!(of(text).unwrap(), b"a\0");
        let text = ['a', 'é'].map(|c| u32::from(c).to_le_bytes()).concat();
        let why = of(text).unwrap_err().to_string();
        assert!(why.contains("U+00E9 is not ASCII"), "{why}");
    }

    #[test]
    fn letters_are_truth_values_and_float16_are_float32() {
        let bytes = b"TFt\0\x01".to_vec();
        assert_eq!(image(bytes, Conversion::Letter), [1, 0, 0, 0, 0]);
        for order in [ByteOrder::Big, ByteOrder::Little] {
            let (change, bits) = (Conversion::Widen(order), [0x3c00_u16, 0xc000]);
            let bytes = bits.map(|bits| match order {
                ByteOrder::Big => bits.to_be_bytes(),
                ByteOrder::Little => bits.to_le_bytes(),
            });
            let want = [1.0_f32, -2.0].map(f32::to_be_bytes);
            let parts = vec![part(bytes.concat(), 2, &[field(0, 0, 1, change)])];
            let rows = Rows::new(parts, 4, 2).unwrap();
            assert_eq!(read_all(&rows, 10).unwrap(), want.concat());
        }
    }

    #[test]
    fn rows_need_all_their_records() {
        let fields = [field(0, 0, 1, number(2, true, false))];
        assert!(Rows::new(vec![part(vec![0; 5], 2, &fields)], 2, 3).is_err());
    }

    /// A table of three columns, the second of so many characters, and its bytes.
    fn table(rows: u64, long: u64) -> (Rows, Vec<u8>) {
        let numbers: Vec<u8> = (0..rows * 6).map(|i| i as u8).collect();
        let text: Vec<u8> = (0..rows * long)
            .flat_map(|i| u32::from(b'a' + (i % 26) as u8).to_be_bytes())
            .collect();
        let mut want = Vec::new();
        for row in 0..rows {
            let record = &numbers[row as usize * 6..][..6];
            want.extend([record[3], record[2], record[1], record[0]]);
            want.extend((0..long).map(|i| b'a' + ((row * long + i) % 26) as u8));
            want.push(if record[5] == 0 { b'F' } else { b'T' });
        }
        let fields = [
            field(0, 0, 1, number(4, true, false)),
            field(5, 4 + long, 1, Conversion::Truth),
        ];
        let narrow = field(0, 4, long, Conversion::Narrow(ByteOrder::Big));
        let parts = vec![part(numbers, 6, &fields), part(text, long * 4, &[narrow])];
        (Rows::new(parts, long + 5, rows).unwrap(), want)
    }

    proptest! {
        #[test]
        fn numbers_of_any_size_are_turned_wherever_they_lie(
            size in prop::sample::select(vec![1_u8, 2, 4, 8]),
            swap: bool,
            flip: bool,
            (count, before, behind) in (1_u64..5, 0_u64..3, 0_u64..3),
            rows in 1_u64..20,
        ) {
            let bytes = u64::from(size) * count;
            let (record, width) = (before + bytes + behind, behind + bytes + before);
            let numbers: Vec<u8> = (0..rows * record).map(|i| i as u8).collect();
            let mut want = vec![0; (rows * width) as usize];
            for row in 0..rows {
                for byte in 0..bytes {
                    let within = byte % u64::from(size);
                    let from = if swap { byte + u64::from(size) - 1 - 2 * within } else { byte };
                    let mut value = numbers[(row * record + before + from) as usize];
                    if flip && within == 0 {
                        value ^= SIGN;
                    }
                    want[(row * width + behind + byte) as usize] = value;
                }
            }
            let field = field(before, behind, count, number(size, swap, flip));
            let mut out = vec![0; want.len()];
            field.convert_rows((&numbers, record as usize), (&mut out, width as usize)).unwrap();
            prop_assert_eq!(out, want);
            let short = field.convert_rows((&numbers, record as usize), (&mut [0; 9][..], 0));
            prop_assert!(short.is_err());
        }

        #[test]
        fn any_part_can_be_read(rows in 1_u64..40, long in 1_u64..20, at in 0_usize..1000, len in 0_usize..1000) {
            let (table, want) = table(rows, long);
            let at = at.min(want.len());
            let mut buf = vec![0; len.min(want.len() - at)];
            table.read_exact_at(&mut buf, at as u64).unwrap();
            prop_assert_eq!(&buf[..], &want[at..at + buf.len()]);
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn rows_that_are_too_long_are_read_in_pieces(at in 0_usize..600_000, len in 0_usize..300_000) {
            let (table, want) = table(3, BATCH / 4 * 3);
            let at = at.min(want.len());
            let mut buf = vec![0; len.min(want.len() - at)];
            table.read_exact_at(&mut buf, at as u64).unwrap();
            prop_assert_eq!(&buf[..], &want[at..at + buf.len()]);
        }
    }
}
