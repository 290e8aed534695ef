//! Long answers: made where they keep nobody waiting.

use std::{pin::pin, time::Instant};

use futures_util::poll;
use tokio::runtime::Builder;

use super::harness::{Member, REQUEST_BYTES_MAX};
use crate::{
    http::{limits::Limits, record::Observer, routes::Method, unary},
    service::Caller,
};

/// Above what is read on the spot.
const KEYS: usize = 1_024;
const KEYS_IN_TXN: usize = 128;

/// `"key":…,"range_end":…` of everything.
const ALL: &str = r#""key":"AA==","range_end":"AA==""#;

fn puts(from: usize) -> String {
    let put = |n| format!(r#"{{"request_put":{{"key":"{:08}","value":"YQ=="}}}}"#, n);
    let puts: Vec<String> = (from..from + KEYS_IN_TXN).map(put).collect();
    format!(r#"{{"success":[{}]}}"#, puts.join(","))
}

/// With the only other thread taken, what is long waits for it, and what is short does not.
#[test]
fn long_reads_keep_no_short_ones_waiting() {
    let runtime = Builder::new_multi_thread().worker_threads(2).max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let member = Member::start().await;
        for from in (0..KEYS).step_by(KEYS_IN_TXN) {
            assert_eq!(member.post("/v3/kv/txn", &puts(from)).await.status, 200);
        }
        // The first page there is makes the secret of the tokens for the next.
        assert_eq!(member.post("/v3/kv/range", &format!(r#"{{{ALL},"limit":1}}"#)).await.status, 200);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let holding = tokio::task::spawn_blocking(move || held.recv());

        let (services, limits) = (member.server.front.services.clone(), Limits::new(REQUEST_BYTES_MAX));
        let call = |method, body: String| {
            let (services, limits) = (services.clone(), limits);
            Box::pin(async move {
                let observer = Observer::default();
                let mut record = observer.begin("/", Instant::now());
                unary::call(&services, &limits, method, &Caller::default(), body.as_bytes(), &mut record).await
            })
        };
        let long = [
            (Method::Range, format!("{{{ALL}}}")),
            (Method::Range, format!(r#"{{{ALL},"limit":1,"sort_target":"VALUE"}}"#)),
            (Method::Range, format!(r#"{{{ALL},"min_mod_revision":1000}}"#)),
            (Method::Txn, format!(r#"{{"success":[{{"request_range":{{{ALL}}}}}]}}"#)),
            (Method::Txn, format!(r#"{{"compare":[{{{ALL},"target":"VERSION","version":1}}]}}"#)),
        ];
        let mut waiting = Vec::new();
        for (method, body) in long {
            let mut answer = call(method, body.clone());
            assert!(poll!(&mut answer).is_pending(), "{body}");
            waiting.push(answer);
        }
        let short = [
            (Method::Range, r#"{"key":"00000001"}"#.to_owned()),
            (Method::Range, format!(r#"{{{ALL},"count_only":true}}"#)),
            (Method::Range, format!(r#"{{{ALL},"limit":1}}"#)),
            (Method::Range, format!(r#"{{{ALL},"limit":1,"sort_order":"DESCEND"}}"#)),
            (Method::Range, r#"{"key":"00000001","range_end":"00000100","sort_target":"VALUE"}"#.to_owned()),
            (Method::Txn, r#"{"success":[{"request_range":{"key":"00000001"}}]}"#.to_owned()),
        ];
        for (method, body) in short {
            let answer = pin!(call(method, body.clone()));
            assert!(poll!(answer).is_ready(), "{body}");
        }
        release.send(()).unwrap();
        holding.await.unwrap().unwrap();
        for answer in waiting {
            answer.await.unwrap();
        }
        member.stop().await;
    });
}
