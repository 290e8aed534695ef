//! How long something took in the last minute: a ring of short stretches, each with its counts by duration.
//!
//! A Prometheus histogram tells of the whole life of a process, and a Prometheus server makes rates of it. Who asks one
//! member at three in the morning has no such server: this tells of now. Plain data: whoever calls brings the time.

use std::time::Duration;

/// Length of a stretch.
const STRETCH: Duration = Duration::from_secs(5);
/// Stretches that are kept: the one in progress, and as many before it as make a minute.
const STRETCHES: usize = 13;
/// Buckets in which durations double.
const STEPS_PER_OCTAVE: usize = 4;
/// Doublings from four microseconds on; the last bucket, of more than two minutes, is for all that is longer.
const OCTAVES: usize = 26;
const BUCKETS: usize = STEPS_PER_OCTAVE * (OCTAVES + 1);

/// What the last minute was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// How often it happened.
    pub count: u64,
    /// Half took at most this. Never too small, and at most a quarter too large; so are the other two.
    pub p50: Duration,
    /// Nine of ten took at most this.
    pub p90: Duration,
    /// All but one in a hundred took at most this.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// How long what is going on now has been going on.
    pub running: Option<Duration>,
}

/// Durations of the last minute.
#[derive(Debug)]
pub(super) struct Window {
    stretches: Vec<Stretch>,
}

#[derive(Clone, Debug)]
struct Stretch {
    /// Its number since the beginning of time.
    number: u64,
    counts: [u32; BUCKETS],
    max: Duration,
}

impl Stretch {
    fn new(number: u64) -> Stretch {
        Stretch { number, counts: [0; BUCKETS], max: Duration::ZERO }
    }
}

impl Window {
    pub(super) fn new() -> Window {
        Window { stretches: vec![Stretch::new(0); STRETCHES] }
    }

    /// Notes that something took so long, and ended now.
    pub(super) fn add(&mut self, now: Duration, took: Duration) {
        let number = stretch_number(now);
        let place = usize::try_from(number % STRETCHES as u64).unwrap_or(0);
        let Some(stretch) = self.stretches.get_mut(place) else { return };
        if stretch.number != number {
            *stretch = Stretch::new(number);
        }
        let count = &mut stretch.counts[bucket(took)];
        *count = count.saturating_add(1);
        stretch.max = stretch.max.max(took);
    }

    /// The last minute, and the part of the stretch that was begun.
    pub(super) fn recent(&self, now: Duration) -> Recent {
        let newest = stretch_number(now);
        let oldest = newest.saturating_sub(STRETCHES as u64 - 1);
        let mut counts = [0u64; BUCKETS];
        let mut max = Duration::ZERO;
        for stretch in self.stretches.iter().filter(|stretch| (oldest..=newest).contains(&stretch.number)) {
            max = max.max(stretch.max);
            for (sum, count) in counts.iter_mut().zip(stretch.counts) {
                *sum += u64::from(count);
            }
        }
        let count = counts.iter().sum();
        let at = |percent: u64| percentile(&counts, count, percent).min(max);
        Recent { count, p50: at(50), p90: at(90), p99: at(99), max, running: None }
    }
}

fn stretch_number(now: Duration) -> u64 {
    now.as_secs() / STRETCH.as_secs()
}

/// The upper end of the bucket in which the percentile lies.
fn percentile(counts: &[u64; BUCKETS], count: u64, percent: u64) -> Duration {
    let rank = (count * percent).div_ceil(100).max(1);
    let mut seen = 0;
    for (bucket, in_bucket) in counts.iter().enumerate() {
        seen += in_bucket;
        if seen >= rank {
            return upper_end(bucket);
        }
    }
    Duration::MAX
}

/// The bucket of a duration: microseconds one by one up to four, then four buckets for each doubling.
fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if micros < STEPS_PER_OCTAVE as u64 {
        return micros as usize;
    }
    let octave = micros.ilog2() as usize - 2;
    let step = (micros >> octave) as usize - STEPS_PER_OCTAVE;
    (STEPS_PER_OCTAVE * (octave + 1) + step).min(BUCKETS - 1)
}

/// The longest duration of a bucket.
fn upper_end(bucket: usize) -> Duration {
    if bucket == BUCKETS - 1 {
        return Duration::MAX;
    }
    let end = if bucket < STEPS_PER_OCTAVE {
        bucket as u64 + 1
    } else {
        let (octave, step) = (bucket / STEPS_PER_OCTAVE - 1, bucket % STEPS_PER_OCTAVE);
        ((STEPS_PER_OCTAVE + step + 1) as u64) << octave
    };
    // Durations are cut to microseconds: those of the bucket end a nanosecond before the next one's.
    Duration::from_micros(end) - Duration::from_nanos(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_bucket_holds_what_ends_at_its_upper_end_and_is_no_wider_than_a_quarter() {
        for n in 0..BUCKETS - 1 {
            let end = upper_end(n);
            assert_eq!(bucket(end), n, "{end:?}");
            assert_eq!(bucket(end + Duration::from_nanos(1)), n + 1, "{end:?}");
            if n >= STEPS_PER_OCTAVE {
                let begin = upper_end(n - 1) + Duration::from_nanos(1);
                assert!(end - begin <= begin / 4, "{begin:?} to {end:?}");
            }
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        assert!(upper_end(BUCKETS - 2) > secs(120));
    }

    #[test]
    fn percentiles_are_never_too_small_and_at_most_a_quarter_too_large() {
        let mut window = Window::new();
        for millis in 1..=1000 {
            window.add(secs(3), Duration::from_millis(millis));
        }
        let recent = window.recent(secs(3));
        assert_eq!((recent.count, recent.max), (1000, secs(1)));
        for (found, exact) in [(recent.p50, 500), (recent.p90, 900), (recent.p99, 990)] {
            let exact = Duration::from_millis(exact);
            assert!(exact <= found && found <= (exact * 5 / 4).min(secs(1)), "{found:?} for {exact:?}");
        }
    }

    #[test]
    fn one_value_is_every_percentile() {
        let mut window = Window::new();
        for took in [Duration::ZERO, Duration::from_micros(3), Duration::from_millis(7), secs(600)] {
            window = Window::new();
            window.add(secs(1), took);
            assert_eq!(
                window.recent(secs(1)),
                Recent { count: 1, p50: took, p90: took, p99: took, max: took, running: None }
            );
        }
        assert_eq!(window.recent(secs(1_000_000)), Recent::default());
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten_and_nothing_younger() {
        let mut window = Window::new();
        for now in 0..300 {
            window.add(secs(now), secs(1));
            let expected = (now + 1).min(60 + now % 5 + 1);
            assert_eq!(window.recent(secs(now)).count, expected, "after {now} s");
        }
        assert_eq!(window.recent(secs(299 + 59)).count, 5);
        assert_eq!(window.recent(secs(299 + 70)), Recent::default());
    }
}
