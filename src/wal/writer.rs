//! The log's thread: takes everything queued, writes it with one call, syncs once, answers; then cuts the segment if it
//! is full and lets go of released ones. The first error of any kind is final.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Options, Record, WalError, WalMetrics, Written,
    keeper::{Keeper, Prepared},
    queue::{Batch, Queue},
    record::Encoder,
    room::Room,
    segment::{Head, SegmentName, activate, io_error, reserve},
};
use crate::disk::{Disk, File};

/// Room the write buffer keeps after a larger batch, in bytes.
const BUFFER_BYTES_KEPT_MAX: usize = 4 << 20;

/// After which the segment's growth is tried again where there was no room.
const NO_ROOM_RETRY: Duration = Duration::from_millis(100);

/// What the log is written with: by its thread, or by who finds it idle.
pub(super) struct Writer {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) metrics: WalMetrics,
    pub(super) queue: Arc<Queue>,
    pub(super) keeper: Keeper,
    pub(super) room: Arc<Room>,
    /// All segments on disk; the last is written.
    pub(super) segments: VecDeque<SegmentName>,
    pub(super) segment: Segment,
    pub(super) encoder: Encoder,
    pub(super) head: Head,
    pub(super) buffer: Vec<u8>,
}

/// The segment being written.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) name: SegmentName,
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn File>,
    /// Size at which it is cut.
    pub(super) bytes: u64,
    /// Where its beginning ends.
    pub(super) begun: u64,
    /// Where the next record goes.
    pub(super) offset: u64,
    /// Up to where blocks are reserved.
    pub(super) reserved: u64,
}

/// Tells the queue when the thread ends, however it ends.
struct AbandonAtEnd(Arc<Queue>);

impl Drop for AbandonAtEnd {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The log's thread: works until the queue is closed and drained. The error is what stopped the log, if anything did.
pub(super) fn run(writer: &Mutex<Writer>, queue: &Arc<Queue>) -> Result<(), WalError> {
    let _abandon = AbandonAtEnd(Arc::clone(queue));
    let mut batches: Vec<Batch> = Vec::new();
    while queue.wait_filled() {
        // Taken under the lock: whoever writes in this thread's place finds all that comes before written, or queued.
        let mut writer = writer.lock();
        queue.take(&mut batches);
        let outcome = writer.write_and_answer(&mut batches);
        if outcome.is_ok() {
            writer.note(Writer::tidy);
        }
    }
    let stopped = writer.lock().keeper.stop();
    queue.check().and(stopped)
}

impl Writer {
    /// Writes a batch on the caller's thread. It comes back if somebody else writes, if others wait, or if there may be
    /// no room for it: then it is the log's thread that waits. Otherwise, whether the thread has something to do now.
    pub(super) fn write_here(&mut self, batch: Batch) -> Result<bool, Batch> {
        let end = self.segment.offset.saturating_add(batch.written_bytes_max());
        if end > self.segment.reserved || !self.queue.is_idle() {
            return Err(batch);
        }
        Ok(self.write_and_answer(&mut vec![batch]).is_ok() && self.is_untidy())
    }

    /// Makes the batches durable and tells those who brought them.
    fn write_and_answer(&mut self, batches: &mut Vec<Batch>) -> Result<Written, WalError> {
        let outcome = self.queue.check().and_then(|()| self.write(batches));
        if let Err(error) = &outcome {
            self.queue.fail(error.clone());
        }
        for batch in batches.drain(..) {
            (batch.done)(outcome.clone());
        }
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT_MAX);
        outcome
    }

    /// Does something nobody waits for; its failure meets those who come next.
    pub(super) fn note(&mut self, work: impl FnOnce(&mut Self) -> Result<(), WalError>) {
        if let Err(error) = work(self) {
            self.queue.fail(error);
        }
    }

    /// Makes the batches durable; when that was.
    fn write(&mut self, batches: &[Batch]) -> Result<Written, WalError> {
        self.make_room(batches.iter().map(Batch::written_bytes_max).sum())?;
        for record in batches.iter().flat_map(|batch| &batch.records) {
            self.follow(record)?;
            self.encoder.record(&mut self.buffer, record);
        }
        let buffer = &self.buffer;
        if buffer.is_empty() {
            let now = self.metrics.time.now();
            return Ok(Written { began: now, written: now, durable: now });
        }
        let Segment { path, file, offset, reserved, .. } = &mut self.segment;
        let write = self.metrics.write.begin();
        let began = write.began();
        file.write_all_at(buffer, *offset).map_err(io_error(path, "writing"))?;
        let written = write.end();
        let sync = self.metrics.fsync.begin();
        file.sync_data().map_err(io_error(path, "syncing"))?;
        let durable = sync.end();
        *offset += buffer.len() as u64;
        self.room.set_left(reserved.saturating_sub(*offset));
        self.metrics.batch_records.observe(batches.iter().map(|batch| batch.records.len()).sum::<usize>() as f64);
        self.metrics.write_bytes.add(i64::try_from(buffer.len()).unwrap_or(i64::MAX));
        Ok(Written { began, written, durable })
    }

    /// Makes sure that so many bytes can be written: nothing is ever written where there is no room. Waits for room as
    /// long as it takes, or until the log is closed.
    fn make_room(&mut self, bytes: u64) -> Result<(), WalError> {
        loop {
            let Segment { path, file, offset, reserved, begun, .. } = &mut self.segment;
            let end = offset.saturating_add(bytes);
            let Err(error) = reserve(file.as_ref(), path, *reserved, end) else {
                *reserved = end.max(*reserved);
                return Ok(());
            };
            if !error.is_no_room() {
                return Err(error);
            }
            // A segment that is prepared has room, if this one is not as good as new.
            if *offset > *begun
                && let Some(prepared) = self.keeper.take_ready()?
            {
                self.cut(prepared)?;
                continue;
            }
            self.room.found_short(&error);
            if self.queue.wait_closed(NO_ROOM_RETRY) {
                return Err(error);
            }
        }
    }

    /// Keeps what a new segment begins with, and refuses what could not be read back.
    fn follow(&mut self, record: &Record) -> Result<(), WalError> {
        match record {
            Record::Entry(entry) => {
                let entered = self.head.position.enter(entry.index);
                entered.map_err(|hole| WalError::Stopped(format!("appending would leave a hole: {hole}")))?;
            }
            Record::State(state) => self.head.state = Some(state.clone()),
            Record::Truncate { last_index } => self.head.position.truncate(*last_index),
            Record::Released { index, term } => self.head.position.release(*index, *term),
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.segment.offset >= self.segment.bytes
    }

    /// Whether the thread has something to do.
    fn is_untidy(&self) -> bool {
        self.is_full() || self.removable() > 0 || self.keeper.is_behind(self.segment.offset)
    }

    fn tidy(&mut self) -> Result<(), WalError> {
        if self.is_full() {
            // Without room for another segment this one goes on.
            if let Some(prepared) = self.keeper.take()? {
                self.cut(prepared)?;
            }
        } else {
            self.keeper.reached(self.segment.offset)?;
        }
        self.remove_released()
    }

    /// Ends the segment and begins the next.
    fn cut(&mut self, prepared: Prepared) -> Result<(), WalError> {
        let Segment { name, path, file, offset, .. } = &self.segment;
        tracing::debug!(after = %name, zeros_end = prepared.zeros_end, "the log goes on in another segment");
        file.set_len(*offset).map_err(io_error(path, "cutting the segment to its length"))?;
        file.sync_all().map_err(io_error(path, "syncing"))?;
        let name = SegmentName { sequence: name.sequence + 1, first_index: self.head.position.last.saturating_add(1) };
        let temporary: (&Path, &dyn File) = (&prepared.path, prepared.file.as_ref());
        let offset = activate(self.disk.as_ref(), &self.dir, temporary, name, &mut self.encoder, &self.head)?;
        let Prepared { file, bytes, .. } = prepared;
        self.segment =
            Segment { name, path: name.path(&self.dir), file, bytes, begun: offset, offset, reserved: bytes };
        self.room.set_left(bytes.saturating_sub(offset));
        self.segments.push_back(name);
        Ok(())
    }

    /// How many segments hold only released entries, but for the newest of them.
    fn removable(&self) -> usize {
        let floor = self.head.position.floor();
        let released =
            self.segments.iter().skip(1).rposition(|next| next.last_before() <= floor).map_or(0, |at| at + 1);
        released.saturating_sub(self.options.released_segments_kept)
    }

    /// Has them removed.
    pub(super) fn remove_released(&mut self) -> Result<(), WalError> {
        let removed = self.removable();
        if removed > 0 {
            self.keeper.remove(self.segments.drain(..removed).collect())?;
        }
        Ok(())
    }
}
