//! A view of the file as the bytes of a file of its own: what is sent to a client that makes a backup.
//!
//! The two meta pages are made here, for the view's commit; everything behind them is read as it lies in the file.
//! Pages that were free for the view may hold anything, since nothing of the tree refers to them.

use super::{
    error::BoltError,
    meta::{Meta, NO_FREELIST},
    page::FIRST_DATA_PAGE,
    read::ReadTx,
};

impl ReadTx {
    /// Length of the file that [`read_snapshot`](Self::read_snapshot) yields.
    pub fn snapshot_bytes(&self) -> u64 {
        self.meta().used_bytes()
    }

    /// Reads that file's bytes from `offset` on into `buf`; how many there were, which is less than asked for only at
    /// the end. Any bbolt opens the file, and builds its list of free pages anew.
    pub fn read_snapshot(&self, offset: u64, buf: &mut [u8]) -> Result<usize, BoltError> {
        let left = self.snapshot_bytes().saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let page_bytes = u64::from(self.meta().page_bytes);
            let rest = &mut buf[done..wanted];
            done += match at / page_bytes {
                page if page < FIRST_DATA_PAGE => copy_from(&self.meta_page(page), at % page_bytes, rest),
                _ => {
                    // Not through the map: free pages in between may be written this moment.
                    let failed = |source| BoltError::io(self.path(), "reading pages", source);
                    self.file().read_exact_at(rest, at).map_err(failed)?;
                    rest.len()
                }
            };
        }
        Ok(done)
    }

    /// The first page holds the view's commit, the second one an older number, so that the first rules.
    fn meta_page(&self, page: u64) -> Vec<u8> {
        let meta = self.meta();
        Meta { freelist: NO_FREELIST, txid: meta.txid.saturating_sub(page), ..meta }.encode_at(page)
    }
}

/// Copies from `at` in a page to the front of `out`, as much as there is; how much that was.
fn copy_from(page: &[u8], at: u64, out: &mut [u8]) -> usize {
    let rest = &page[usize::try_from(at).unwrap_or(page.len()).min(page.len())..];
    let length = rest.len().min(out.len());
    out[..length].copy_from_slice(&rest[..length]);
    length
}
