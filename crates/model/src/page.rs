//! A list is read in pages, by key, so that the last page costs what the first one does.

use uuid::Uuid;

/// Which part of a list: so many, after this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest<K = Uuid> {
    pub limit: u32,
    pub after: Option<K>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, K = Uuid> {
    pub items: Vec<T>,
    /// The key to go on after; none on the last page.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// From one row more than asked for: its presence says that there is another page.
    pub fn of(mut items: Vec<T>, request: &PageRequest<K>, key: impl Fn(&T) -> K) -> Self {
        let limit = request.limit as usize;
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(key) } else { None };
        Page { items, next }
    }
}
