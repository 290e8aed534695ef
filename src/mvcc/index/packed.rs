//! A short list of keys in one piece of memory: what a node of the index's tree holds of its keys.

/// Room added at once, in bytes: growth by doubling would leave a node half empty.
const GROWTH_BYTES: usize = 256;
/// Room for ends added at once.
const GROWTH_KEYS: usize = 8;

/// Keys in the order they were put in. Together they must stay below 4 GiB, which the tree sees to by splitting.
#[derive(Debug, Default)]
pub(super) struct PackedKeys {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<u32>,
}

impl PackedKeys {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at] as usize]
    }

    /// How many keys, from the first on, satisfy `is_before`.
    pub(super) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Where a key is, or where it would have to be put. The keys must be sorted.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let at = self.partition_point(|other| other < key);
        if at < self.len() && self.get(at) == key { Ok(at) } else { Err(at) }
    }

    pub(super) fn push(&mut self, key: &[u8]) {
        self.insert(self.len(), key);
    }

    pub(super) fn insert(&mut self, at: usize, key: &[u8]) {
        let (start, old_len) = (self.start(at), self.bytes.len());
        reserve(&mut self.bytes, key.len(), GROWTH_BYTES);
        self.bytes.extend_from_slice(key);
        if start < old_len {
            self.bytes[start..].rotate_right(key.len());
        }
        reserve(&mut self.ends, 1, GROWTH_KEYS);
        self.ends.insert(at, offset(start));
        for end in &mut self.ends[at..] {
            *end += offset(key.len());
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.ends.remove(at) as usize);
        self.bytes.drain(start..end);
        for later in &mut self.ends[at..] {
            *later -= offset(end - start);
        }
    }

    /// Takes the keys from `at` on away.
    pub(super) fn split_off(&mut self, at: usize) -> PackedKeys {
        let start = self.start(at);
        let bytes = self.bytes.split_off(start);
        let ends = self.ends.split_off(at).into_iter().map(|end| end - offset(start)).collect();
        PackedKeys { bytes, ends }
    }

    pub(super) fn append(&mut self, others: &PackedKeys) {
        let start = offset(self.bytes.len());
        reserve(&mut self.bytes, others.bytes.len(), 0);
        self.bytes.extend_from_slice(&others.bytes);
        reserve(&mut self.ends, others.ends.len(), 0);
        self.ends.extend(others.ends.iter().map(|end| end + start));
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }
}

/// Makes room for `more` items, and for `spare` beyond them if there is too little.
pub(super) fn reserve<T>(items: &mut Vec<T>, more: usize, spare: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more + spare);
    }
}

fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a node is split long before its keys take 4 GiB, and a request is smaller")
}
