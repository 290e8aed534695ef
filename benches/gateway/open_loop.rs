//! A load that does not wait: every request has a time at which it is due, whatever became of those before it, and its
//! latency counts from then. A server that stalls is so charged with every request that came meanwhile.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{io::AsyncWriteExt, net::TcpStream, task::LocalSet, time::sleep_until};

use crate::load::{Load, read_answer};

/// Requests of one kind: how long between two, and the n-th of them.
pub(crate) struct Kind<'a> {
    pub(crate) interval: Duration,
    pub(crate) request: &'a dyn Fn(u64) -> Rc<[u8]>,
}

/// Sends each kind at its pace until `is_over`; the loads by kind.
///
/// # Panics
///
/// On any answer other than 200, and on a connection that breaks.
pub(crate) fn run(address: SocketAddr, kinds: &[Kind<'_>], is_over: &dyn Fn() -> bool) -> Vec<Load> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Connections with nothing under way.
    let idle: Rc<RefCell<Vec<TcpStream>>> = Rc::default();
    let latencies: Vec<Rc<RefCell<Vec<u64>>>> = kinds.iter().map(|_| Rc::default()).collect();
    let under_way = Rc::new(Cell::new(0_usize));
    let tasks = LocalSet::new();
    let begin = Instant::now();
    runtime.block_on(tasks.run_until(async {
        let mut sent = vec![0_u64; kinds.len()];
        loop {
            // The kinds take turns within an interval, so that they do not fall on the same moment.
            let due_of = |kind: usize| {
                let offset = kinds[kind].interval * kind as u32 / kinds.len() as u32;
                begin + offset + kinds[kind].interval * sent[kind] as u32
            };
            let kind = (0..kinds.len()).min_by_key(|kind| due_of(*kind)).unwrap();
            let due = due_of(kind);
            sleep_until(due.into()).await;
            if is_over() {
                break;
            }
            let request = (kinds[kind].request)(sent[kind]);
            sent[kind] += 1;
            let (idle, latencies, under_way) = (Rc::clone(&idle), Rc::clone(&latencies[kind]), Rc::clone(&under_way));
            under_way.set(under_way.get() + 1);
            tokio::task::spawn_local(async move {
                let kept = idle.borrow_mut().pop();
                let mut stream = match kept {
                    Some(stream) => stream,
                    None => TcpStream::connect(address).await.unwrap(),
                };
                stream.set_nodelay(true).unwrap();
                stream.write_all(&request).await.unwrap();
                read_answer(&mut stream, &mut Vec::with_capacity(4096)).await;
                latencies.borrow_mut().push(due.elapsed().as_nanos() as u64);
                idle.borrow_mut().push(stream);
                under_way.set(under_way.get() - 1);
            });
        }
        while under_way.get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }));
    let elapsed = begin.elapsed();
    latencies.iter().map(|latencies| Load::new(elapsed, latencies.take())).collect()
}
