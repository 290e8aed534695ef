//! How many passwords are worked on at once.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    future::{Future, poll_fn},
    sync::{Arc, Condvar, Mutex},
    task::Poll,
    time::Duration,
};

use super::passwords::Passwords;
use crate::error::ApiError;

const LONG: Duration = Duration::from_secs(600);
const CLIENTS: usize = 50;

/// Work that stops where it is until it is let go, and counts itself.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        state.1 = state.1.max(state.0);
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |(_, _, open)| !*open).unwrap();
        state.0 -= 1;
    }

    fn wait_for_inside(&self, inside: usize) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |(now, ..)| *now < inside).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().2 = true;
        self.changed.notify_all();
    }

    fn most_inside(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

#[tokio::test]
async fn fifty_clients_that_authenticate_at_once_take_two_threads_and_leave_the_runtime_to_readers() {
    let passwords = Passwords::with_at_work_max(4, LONG, 2);
    let gate = Arc::new(Gate::default());
    let work: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (passwords, gate) = (passwords.clone(), Arc::clone(&gate));
            tokio::spawn(async move { passwords.run(move || gate.pass()).await })
        })
        .collect();
    // All fifty are on their way, and not one can finish. This runtime has one thread: that anything else runs on it
    // shows that none of them holds it.
    let inside = Arc::clone(&gate);
    tokio::task::spawn_blocking(move || inside.wait_for_inside(2)).await.unwrap();
    for _ in 0..CLIENTS {
        tokio::spawn(async {}).await.unwrap();
    }
    assert!(work.iter().all(|work| !work.is_finished()));
    gate.open();
    for work in work {
        work.await.unwrap().unwrap();
    }
    assert_eq!(gate.most_inside(), 2);
}

#[tokio::test]
async fn the_line_has_an_end() {
    let passwords = Passwords::with_at_work_max(4, LONG, 1);
    let gate = Arc::new(Gate::default());
    let mut work = Vec::new();
    loop {
        let (passwords, held) = (passwords.clone(), Arc::clone(&gate));
        let mut passing = Box::pin(async move { passwords.run(move || held.pass()).await });
        // Polled once: it stands in line then, or is refused.
        match poll_fn(|context| Poll::Ready(passing.as_mut().poll(context))).await {
            Poll::Ready(refused) => {
                assert_eq!(refused, Err(ApiError::TooManyRequests));
                gate.open();
                break;
            }
            Poll::Pending => work.push(passing),
        }
    }
    assert_eq!(work.len(), 1 + 1024);
    for work in work {
        work.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_told() {
    let passwords = Passwords::with_at_work_max(4, Duration::from_secs(7), 1);
    let gate = Arc::new(Gate::default());
    let (first, held) = (passwords.clone(), Arc::clone(&gate));
    let first = tokio::spawn(async move { first.run(move || held.pass()).await });
    tokio::task::yield_now().await;
    let second = tokio::spawn(async move { passwords.run(|| ()).await });
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(8)).await;
    assert_eq!(second.await.unwrap(), Err(ApiError::Timeout));
    gate.open();
    first.await.unwrap().unwrap();
}
