//! Random tokens: sixteen letters, a dot, and the log index they were given at. Known to this member's memory only, good
//! until nobody has used them for a while.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};

use crate::{clock::Clock, error::ApiError};

/// Letters of a token.
const PREFIX_LETTERS: usize = 16;
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Bytes from here on are thrown away, so that every letter is as likely as any other.
const UNBIASED_BELOW: u8 = 52 * 4;
/// Random bytes fetched at a time.
const RANDOM_BYTES: usize = 32;
/// Most tokens at once. Beyond that the ones that end first end at once.
const TOKENS_MAX: usize = 100_000;
/// How many end when there are too many.
const EVICTED_AT_ONCE: usize = TOKENS_MAX / 16;

/// The tokens of one member.
pub struct SimpleTokens {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    tokens: HashMap<String, Token>,
    /// When those that have ended are looked for again.
    swept_next: Duration,
}

struct Token {
    user: String,
    /// By the monotonic clock.
    ends: Duration,
}

/// Sixteen letters nobody can guess: what a token begins with.
pub fn new_token_prefix() -> Result<String, ApiError> {
    let random = SystemRandom::new();
    let mut prefix = String::with_capacity(PREFIX_LETTERS);
    while prefix.len() < PREFIX_LETTERS {
        let mut bytes = [0; RANDOM_BYTES];
        random.fill(&mut bytes).map_err(|_| ApiError::Internal("the system has no random numbers".into()))?;
        let unbiased = bytes.iter().filter(|byte| **byte < UNBIASED_BELOW);
        let letters = unbiased.map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
        prefix.extend(letters.take(PREFIX_LETTERS - prefix.len()));
    }
    Ok(prefix)
}

impl SimpleTokens {
    /// No tokens; each will be good for `ttl` after its last use.
    pub fn new(clock: Arc<dyn Clock>, ttl: Duration) -> SimpleTokens {
        SimpleTokens { clock, ttl, known: Mutex::default() }
    }

    pub(super) fn assign(&self, token: &str, user: &str) {
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        if known.swept_next <= now {
            known.tokens.retain(|_, token| token.ends > now);
            known.swept_next = now + self.ttl;
        }
        if known.tokens.len() >= TOKENS_MAX {
            evict(&mut known.tokens);
        }
        known.tokens.insert(token.to_owned(), Token { user: user.to_owned(), ends: now + self.ttl });
    }

    /// The user behind a token, which is good for its whole time again.
    pub(super) fn user_of(&self, token: &str) -> Option<String> {
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        let found = known.tokens.get_mut(token)?;
        if found.ends <= now {
            known.tokens.remove(token);
            return None;
        }
        found.ends = now + self.ttl;
        Some(found.user.clone())
    }

    pub(super) fn drop_user(&self, user: &str) {
        self.known.lock().tokens.retain(|_, token| token.user != user);
    }

    pub(super) fn drop_all(&self) {
        self.known.lock().tokens.clear();
    }
}

/// Ends the tokens that were used the longest ago.
fn evict(tokens: &mut HashMap<String, Token>) {
    let mut ends: Vec<Duration> = tokens.values().map(|token| token.ends).collect();
    let (_, last, _) = ends.select_nth_unstable(EVICTED_AT_ONCE);
    let last = *last;
    tokens.retain(|_, token| token.ends > last);
    tracing::warn!(kept = tokens.len(), "too many tokens: the ones that were used the longest ago are void");
}

impl std::fmt::Debug for SimpleTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimpleTokens").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::clock::ManualClock;

    const TTL: Duration = Duration::from_secs(300);

    fn tokens() -> (Arc<ManualClock>, SimpleTokens) {
        let clock = Arc::new(ManualClock::default());
        (Arc::clone(&clock), SimpleTokens::new(clock, TTL))
    }

    #[test]
    fn a_token_ends_a_while_after_its_last_use() {
        let (clock, tokens) = tokens();
        tokens.assign("t.1", "ann");
        for _ in 0..5 {
            clock.advance(TTL - Duration::from_nanos(1));
            assert_eq!(tokens.user_of("t.1").as_deref(), Some("ann"), "each use begins the time anew");
        }
        clock.advance(TTL);
        assert_eq!(tokens.user_of("t.1"), None);
        assert_eq!(tokens.user_of("t.2"), None);
    }

    #[test]
    fn tokens_that_ended_are_not_kept() {
        let (clock, tokens) = tokens();
        tokens.assign("t.1", "ann");
        clock.advance(TTL);
        tokens.assign("t.2", "ann");
        assert_eq!(tokens.known.lock().tokens.len(), 1);
    }

    #[test]
    fn a_users_tokens_end_together() {
        let (_, tokens) = tokens();
        for (token, user) in [("t.1", "ann"), ("t.2", "bob"), ("t.3", "ann")] {
            tokens.assign(token, user);
        }
        tokens.drop_user("ann");
        assert_eq!((tokens.user_of("t.1"), tokens.user_of("t.3")), (None, None));
        assert_eq!(tokens.user_of("t.2").as_deref(), Some("bob"));
        tokens.drop_all();
        assert_eq!(tokens.user_of("t.2"), None);
    }

    #[test]
    fn there_is_a_limit_and_the_oldest_go_first() {
        let (clock, tokens) = tokens();
        for number in 0..TOKENS_MAX {
            tokens.assign(&format!("t.{number}"), "ann");
            if number % 1000 == 0 {
                clock.advance(Duration::from_millis(1));
            }
        }
        tokens.assign("t.last", "ann");
        assert!(tokens.known.lock().tokens.len() < TOKENS_MAX);
        assert_eq!(tokens.user_of("t.0"), None);
        assert_eq!(tokens.user_of("t.last").as_deref(), Some("ann"));
        assert_eq!(tokens.user_of(&format!("t.{}", TOKENS_MAX - 1)).as_deref(), Some("ann"));
    }

    #[test]
    fn a_prefix_is_sixteen_letters_and_never_the_same() {
        let prefixes: std::collections::HashSet<String> = (0..100).map(|_| new_token_prefix().unwrap()).collect();
        assert_eq!(prefixes.len(), 100);
        assert!(prefixes.iter().all(|p| p.len() == 16 && p.bytes().all(|letter| letter.is_ascii_alphabetic())));
    }
}
