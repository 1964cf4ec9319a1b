//! A list whose copies share what did not change: a file may have a million blocks, and each save of one makes another state.

use std::sync::Arc;

/// How many items lie together. They are copied when one of them is changed.
const PART: usize = 64;

/// A list in parts. Copies of the list share each part until one of them changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts<T> {
    /// All but the last have [`PART`] items; none is empty.
    parts: Vec<Arc<Vec<T>>>,
}

impl<T> Parts<T> {
    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let last = self.parts.last().map_or(0, |part| part.len());
        let full = self.parts.len().saturating_sub(1);
        full.saturating_mul(PART).saturating_add(last)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The item at `n`.
    #[must_use]
    pub fn get(&self, n: usize) -> Option<&T> {
        self.parts.get(n / PART)?.get(n % PART)
    }

    /// The first item.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last item.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.parts.last()?.last()
    }

    /// The items in their order.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// How many items at the start satisfy `holds`. No item behind them may satisfy it.
    #[must_use]
    pub fn partition_point(&self, holds: impl Fn(&T) -> bool) -> usize {
        // first among parts, by their last items, and then within one part
        let whole = |part: &Arc<Vec<T>>| part.last().is_some_and(&holds);
        let before = self.parts.partition_point(whole);
        let inside = self.parts.get(before);
        let inside = inside.map_or(0, |part| part.partition_point(&holds));
        // the last part may not be full
        let found = before.saturating_mul(PART).saturating_add(inside);
        found.min(self.len())
    }

    /// Whether both share all their items.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        self.parts.len() == other.parts.len() && self.unshared(other).next().is_none()
    }

    /// The numbers of items that a list of the same length does not share with this one.
    pub fn unshared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let pairs = self.parts.iter().zip(&other.parts).enumerate();
        let unshared = pairs.filter(|(_, (mine, others))| !Arc::ptr_eq(mine, others));
        unshared.flat_map(|(n, (mine, _))| {
            let start = n.saturating_mul(PART);
            start..start.saturating_add(mine.len())
        })
    }
}

impl<T: Clone> Parts<T> {
    /// The item at `n`, to be changed.
    pub fn get_mut(&mut self, n: usize) -> Option<&mut T> {
        let part = self.parts.get_mut(n / PART)?;
        // copies the part if another list still shares it
        Arc::make_mut(part).get_mut(n % PART)
    }

    /// Adds an item at the end.
    pub fn push(&mut self, item: T) {
        match self.parts.last_mut().filter(|last| last.len() < PART) {
            Some(last) => Arc::make_mut(last).push(item),
            None => self.parts.push(Arc::new(vec![item])),
        }
    }
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self { parts: Vec::new() }
    }
}

impl<T> FromIterator<T> for Parts<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        let part = || {
            let part: Vec<T> = items.by_ref().take(PART).collect();
            (!part.is_empty()).then(|| Arc::new(part))
        };
        let parts = std::iter::from_fn(part).collect();
        Self { parts }
    }
}

#[cfg(test)]
impl<T> std::ops::Index<usize> for Parts<T> {
    type Output = T;

    fn index(&self, n: usize) -> &T {
        self.get(n).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list(items in prop::collection::vec(0..1000_u32, 0..300), more: Vec<u32>, n in 0..400_usize) {
            let mut want = items.clone();
            let mut list: Parts<u32> = items.into_iter().collect();
            let copy = list.clone();
            prop_assert!(copy.is_copy_of(&list));
            for item in more {
                want.push(item);
                list.push(item);
            }
            prop_assert_eq!(list.len(), want.len());
            prop_assert_eq!(list.get(n), want.get(n));
            prop_assert_eq!((list.first(), list.last()), (want.first(), want.last()));
            prop_assert!(list.iter().eq(&want) && list.iter().rev().eq(want.iter().rev()));
            want.sort_unstable();
            let sorted: Parts<u32> = want.iter().copied().collect();
            let below = |item: &u32| (*item as usize) < 3 * n;
            prop_assert_eq!(sorted.partition_point(below), want.partition_point(below));
        }
    }

    /// A state of a file of 10,000 blocks took a megabyte, of which one header was its own.
    #[test]
    fn a_copy_shares_what_is_not_changed() {
        let list: Parts<usize> = (0..1000).collect();
        let mut other = list.clone();
        *other.get_mut(200).unwrap() = 7;
        assert_eq!(other.unshared(&list).count(), PART);
        assert!(other != list && !other.is_copy_of(&list));
        *other.get_mut(200).unwrap() = 200;
        assert!(other == list && !other.is_copy_of(&list));
    }
}
